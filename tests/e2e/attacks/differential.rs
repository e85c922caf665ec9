//! Requests with random mistakes, compared with a strict parser of the same bytes.
//!
//! The upstream must get as many requests as the client gets 200s. Each of them must be in the result of the strict
//! parser, in the same order and with the same body.

use super::lab::Lab;
use crate::ops::until;
use crate::support::Received;

/// Seeds; each is a whole run. A failure names its seed and case.
const SEEDS: [u64; 4] = [0x5eed_0001, 0x5eed_0002, 0x5eed_0003, 0x5eed_0004];
const CASES: usize = 150;

const CORPUS: [&str; 8] = [
    "GET /get?a=b HTTP/1.1\r\nHost: weir.test\r\nAccept: */*\r\n\r\n",
    "POST /cl HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 11\r\n\r\nhello world",
    "POST /te HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    "PUT /trailers HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\na\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
    "POST /hide HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 43\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: weir.test\r\n\r\n",
    "GET http://weir.test/absolute HTTP/1.1\r\nHost: weir.test\r\nConnection: keep-alive\r\n\r\n",
    "GET /old HTTP/1.0\r\nHost: weir.test\r\nConnection: keep-alive\r\n\r\n",
    "DELETE /empty HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n",
];

/// Pieces of mistakes.
const PIECES: [&[u8]; 22] = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\0",
    b"\t",
    b" ",
    b"\x0b",
    b"\xff",
    b":",
    b",",
    b";",
    b"0",
    b"5",
    b"+",
    b"chunked",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Connection: close\r\n",
    b"0\r\n\r\n",
    b"HTTP/1.0",
    b"GET /smuggled HTTP/1.1\r\nHost: weir.test\r\n\r\n",
];

/// The generator `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// A few requests with one or two mistakes.
    fn attack(&mut self) -> Vec<u8> {
        let count = 1 + self.below(3);
        let mut bytes: Vec<u8> = (0..count).flat_map(|_| CORPUS[self.below(CORPUS.len())].bytes()).collect();
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(8)).min(bytes.len());
            let piece = PIECES[self.below(PIECES.len())];
            match self.below(5) {
                0 => drop(bytes.drain(at..end)),
                1 => drop(bytes.splice(at..at, piece.iter().copied())),
                2 => drop(bytes.splice(at..end, piece.iter().copied())),
                3 => bytes[at] ^= 1 << self.below(8),
                _ => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
            }
            if bytes.is_empty() {
                bytes.push(b'G');
            }
        }
        bytes
    }
}

/// The first attacks of a seed.
pub fn attacks(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    (0..count).map(|_| random.attack()).collect()
}

/// A request as the strict parser reads it.
struct Read {
    target: String,
    body: Vec<u8>,
}

/// All requests before the first ambiguous one.
fn read_strictly(mut bytes: &[u8]) -> Vec<Read> {
    let mut all = Vec::new();
    while let Some((request, rest)) = read_one(bytes) {
        all.push(request);
        bytes = rest;
    }
    all
}

fn read_one(bytes: &[u8]) -> Option<(Read, &[u8])> {
    let bytes = (0..2).fold(bytes, |bytes, _| bytes.strip_prefix(b"\r\n").unwrap_or(bytes));
    let (head, rest) = cut(bytes, b"\r\n\r\n")?;
    let head = head.iter().map(|&byte| char::from(byte)).collect::<String>();
    let mut lines = head.split("\r\n");
    let [method, target, version] = lines.next()?.split(' ').collect::<Vec<_>>()[..] else { return None };
    let is_clean = is_token(method) && !target.is_empty() && target.chars().all(|it| it.is_ascii_graphic());
    if !is_clean || !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
        return None;
    }
    let (mut lengths, mut codings) = (Vec::new(), Vec::new());
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if !is_token(name) || value.chars().any(|it| it != '\t' && (it < ' ' || it == '\x7f')) {
            return None;
        }
        match name.to_ascii_lowercase().as_str() {
            "content-length" => lengths.push(value.trim_matches([' ', '\t'])),
            "transfer-encoding" => codings.push(value.trim_matches([' ', '\t'])),
            _ => {}
        }
    }
    let (body, rest) = match (&lengths[..], &codings[..]) {
        ([], []) => (Vec::new(), rest),
        ([length], []) if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) => {
            let (body, rest) = rest.split_at_checked(length.parse().ok()?)?;
            (body.to_vec(), rest)
        }
        ([], [coding]) if version == "HTTP/1.1" && coding.eq_ignore_ascii_case("chunked") => read_chunks(rest)?,
        _ => return None,
    };
    Some((Read { target: target.to_owned(), body }, rest))
}

fn read_chunks(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut body = Vec::new();
    loop {
        let (line, rest) = cut(bytes, b"\r\n")?;
        let (size, extension) = line.split_at(line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count());
        let is_extension = extension.is_empty() || extension.trim_ascii_start().starts_with(b";");
        if size.is_empty() || !is_extension || !extension.iter().copied().all(is_value) {
            return None;
        }
        let size = usize::from_str_radix(str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            bytes = rest;
            break;
        }
        let (chunk, rest) = rest.split_at_checked(size)?;
        body.extend_from_slice(chunk);
        bytes = rest.strip_prefix(b"\r\n")?;
    }
    loop {
        let (line, rest) = cut(bytes, b"\r\n")?;
        bytes = rest;
        if line.is_empty() {
            return Some((body, bytes));
        }
        let colon = line.iter().position(|&byte| byte == b':')?;
        if !is_token(str::from_utf8(&line[..colon]).ok()?) || !line[colon..].iter().copied().all(is_value) {
            return None;
        }
    }
}

fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn cut<'b>(bytes: &'b [u8], at: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let start = bytes.windows(at.len()).position(|window| window == at)?;
    Some((&bytes[..start], &bytes[start + at.len()..]))
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it))
}

/// Whether Weir forwards this target unchanged.
fn is_plain(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or("");
    path.starts_with('/') && path[1..].chars().all(|it| it.is_ascii_alphanumeric())
}

/// Whether `seen` agrees with `read`. Requests may be missing that were refused for their content.
fn agrees(seen: &[Received], read: &[Read]) -> bool {
    let mut read = read.iter();
    seen.iter().all(|seen| {
        read.any(|read| read.body == seen.body && (!is_plain(&read.target) || read.target == seen.target()))
    })
}

fn run(seed: u64) {
    let timeouts = "[timeouts]\nrequest_head = \"100ms\"\nkeep_alive = \"100ms\"\nbody_idle = \"100ms\"";
    let lab = Lab::start("", timeouts);
    for (case, attack) in attacks(seed, CASES).into_iter().enumerate() {
        let before = lab.upstream.received_count();
        let mut client = lab.client();
        client.send(&attack);
        let mut passed = 0;
        while let Some(answer) = client.try_answer() {
            passed += usize::from(answer.status == 200);
        }
        let seen = lab.upstream.received_after(before);
        let about = || format!("seed {seed:#x}, case {case}: {}\nseen: {seen:#?}", attack.escape_ascii());
        assert_eq!(seen.len(), passed, "{}", about());
        assert!(agrees(&seen, &read_strictly(&attack)), "{}", about());
    }
    // A connection that waits for its first request ends after `request_head`.
    until("a clean request", || lab.probe(&mut lab.client()).is_ok());
    lab.is_well();
}

#[test]
fn forwarded_requests_are_unambiguous() {
    let runs = SEEDS.map(|seed| std::thread::spawn(move || run(seed)));
    let failed = runs.into_iter().filter_map(|run| run.join().err()).count();
    assert_eq!(failed, 0, "see above");
}

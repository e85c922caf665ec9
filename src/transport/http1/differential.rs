//! Compares this parser with httparse, and with a real hyper server that reads the accepted bytes.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::tests::{LIMITS, Phase, Run, run};

/// A request as a reader took it from the stream.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    method: String,
    /// `None` if `http::Uri` refuses it; then hyper refuses it, too.
    uri: Option<Uri>,
    http_10: bool,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    complete: bool,
}

fn sorted(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<_> = map.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    fields.sort();
    fields
}

fn fields_of(parsed: &[httparse::Header<'_>]) -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<_> = parsed.iter().map(|f| (f.name.to_ascii_lowercase(), f.value.to_vec())).collect();
    fields.sort();
    fields
}

/// A plain reader: all complete messages of `stream`, and the last incomplete one.
fn read_all(stream: &[u8]) -> Vec<Message> {
    read_all_until(stream).into_iter().map(|(message, _)| message).collect()
}

/// All messages of [`read_all`], with the offset where each ends.
fn read_all_until(stream: &[u8]) -> Vec<(Message, usize)> {
    let mut messages = Vec::new();
    let mut left = stream;
    while let Some((message, rest)) = read_one(left) {
        let complete = message.complete;
        messages.push((message, stream.len() - rest.len()));
        if !complete {
            break;
        }
        left = rest;
    }
    messages
}

/// The messages of the plain reader in the released bytes. Asserts that both readers agree on the ends.
fn accounted(run: &Run) -> Vec<Message> {
    let messages = read_all_until(&run.released);
    for (message, end) in &messages {
        assert!(!message.complete || run.ends.contains(end), "{message:?} ends at {end}, not in {run:?}");
    }
    let messages: Vec<_> = messages.into_iter().map(|(message, _)| message).collect();
    let complete = messages.iter().all(|message| message.complete);
    assert_eq!(complete, !matches!(run.phase, Phase::InBody | Phase::Broken), "{messages:?} of {run:?}");
    assert_eq!(messages.len(), run.requests.len(), "{messages:?} of {run:?}");
    for (message, read) in messages.iter().zip(&run.requests) {
        assert_eq!(message.method.as_bytes(), read.method);
        assert_eq!(message.uri, str::from_utf8(&read.target).unwrap().parse::<Uri>().ok());
        assert_eq!((message.http_10, &message.fields), (!read.is_http_11, &read.fields));
        assert_eq!((&message.body, &message.trailers), (&read.body, &read.trailers));
    }
    messages
}

fn read_one(stream: &[u8]) -> Option<(Message, &[u8])> {
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut slots);
    let httparse::Status::Complete(len) = request.parse(stream).ok()? else { return None };
    let mut message = Message {
        method: request.method?.to_owned(),
        uri: request.path?.parse().ok(),
        http_10: request.version? == 0,
        fields: fields_of(request.headers),
        body: Vec::new(),
        trailers: Vec::new(),
        complete: true,
    };
    let value = |name: &str| {
        message.fields.iter().find(|field| field.0 == name).map(|field| String::from_utf8_lossy(&field.1).into_owned())
    };
    let rest = &stream[len..];
    if value("transfer-encoding").is_some() {
        let rest = read_chunks(&mut message, rest);
        message.complete = rest.is_some();
        return Some((message, rest.unwrap_or_default()));
    }
    let length = value("content-length").map_or(Ok(0), |digits| digits.parse::<u64>()).ok()?;
    let here = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
    message.body.extend_from_slice(&rest[..here]);
    message.complete = here as u64 == length;
    Some((message, &rest[here..]))
}

fn read_chunks<'a>(message: &mut Message, mut rest: &'a [u8]) -> Option<&'a [u8]> {
    loop {
        let httparse::Status::Complete((len, size)) = httparse::parse_chunk_size(rest).ok()? else { return None };
        rest = &rest[len..];
        if size == 0 {
            let mut slots = [httparse::EMPTY_HEADER; 64];
            let httparse::Status::Complete((len, trailers)) = httparse::parse_headers(rest, &mut slots).ok()? else {
                return None;
            };
            message.trailers = fields_of(trailers);
            return Some(&rest[len..]);
        }
        let here = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
        message.body.extend_from_slice(&rest[..here]);
        rest = rest[here..].strip_prefix(b"\r\n")?;
    }
}

/// Asserts that `seen` equals the messages of the plain reader, except for a last message that breaks off.
fn assert_prefix(seen: &[Message], of: &[Message], label: &str) {
    assert!(seen.len() <= of.len(), "{label}: {seen:?} in {of:?}");
    for (seen, of) in seen.iter().zip(of) {
        if seen.complete {
            assert_eq!(seen, of, "{label}");
        } else {
            assert_eq!((&seen.method, &seen.uri, &seen.fields), (&of.method, &of.uri, &of.fields), "{label}");
            assert!(of.body.starts_with(&seen.body), "{label}");
        }
    }
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => Just("GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        2 => Just("\r\n".to_owned()),
        2 => Just("GET / HTTP/1.0\r\n\r\n".to_owned()),
        2 => Just("GET http://h/x HTTP/1.1\r\nHost: h\r\nA: b \t\r\n\r\n".to_owned()),
        8 => "[ -~]{0,20}".prop_map(|body| {
            format!("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }),
        8 => proptest::collection::vec("[ -~\r\n]{1,20}", 0..4).prop_map(|chunks| {
            let chunks: Vec<_> = chunks.iter().map(|data| format!("{:X}\r\n{data}\r\n", data.len())).collect();
            let chunks = chunks.concat();
            format!("PUT /c HTTP/1.1\r\nHost: h\r\ntransfer-encoding: Chunked\r\n\r\n{chunks}0\r\n\r\n")
        }),
        2 => Just("PUT /t HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\nC:\r\n\r\n".to_owned()),
    ]
}

/// Bytes that a mutation inserts: those that framing depends on.
fn splinter() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::sample::select(&b"\r\n \t:;,0123af/?#\x00\x7f\xe4"[..]).prop_map(|byte| vec![byte]),
        proptest::sample::select(vec!["\r\n", "\r\n\r\n", "0\r\n\r\n", "A: b\r\n", "Content-Length: 3\r\n"])
            .prop_map(|text| text.as_bytes().to_vec()),
        proptest::sample::select(vec!["Transfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n"])
            .prop_map(|text| text.as_bytes().to_vec()),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let mutation = (any::<proptest::sample::Index>(), 0..3_usize, splinter());
    (proptest::collection::vec(piece(), 1..6), proptest::collection::vec(mutation, 0..3)).prop_map(
        |(pieces, mutations)| {
            let mut stream = pieces.concat().into_bytes();
            for (at, removed, inserted) in mutations {
                let at = at.index(stream.len());
                let end = (at + removed).min(stream.len() - 1);
                stream.splice(at..end.max(at), inserted);
            }
            stream
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn httparse_reads_accepted_bytes_alike(
        stream in stream(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let whole = run(LIMITS, &stream, &[]);
        let cut = run(LIMITS, &stream, &cuts);
        prop_assert_eq!((whole.fault, whole.phase), (cut.fault, cut.phase));

        let released = accounted(&cut);
        prop_assert_eq!(&released, &accounted(&whole));
        assert_prefix(&released, &read_all(&stream), "released");

        if let Some((ordinal, _)) = cut.fault {
            prop_assert_eq!(ordinal, released.len() as u64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn hyper_reads_accepted_bytes_of_any_stream_alike(stream in stream(), cut in any::<proptest::sample::Index>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(compare(&stream, &[cut.index(stream.len())]));
    }
}

async fn record(request: Request<Incoming>) -> Message {
    let (parts, mut body) = request.into_parts();
    let mut message = Message {
        method: parts.method.to_string(),
        uri: Some(parts.uri),
        http_10: parts.version == http::Version::HTTP_10,
        fields: sorted(&parts.headers),
        body: Vec::new(),
        trailers: Vec::new(),
        complete: true,
    };
    while let Some(frame) = body.frame().await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(data)) => message.body.extend_from_slice(&data),
            Ok(Err(frame)) => message.trailers = sorted(frame.trailers_ref().unwrap()),
            Err(_) => message.complete = false,
        }
    }
    message
}

/// The messages that a service behind hyper receives.
async fn serve(bytes: &[u8]) -> Vec<Message> {
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = service_fn(|request| {
        let seen = Arc::clone(&seen);
        async move {
            let message = record(request).await;
            seen.lock().unwrap().push(message);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .max_buf_size(8192)
        .serve_connection(TokioIo::new(server), service);
    let writing = async {
        // The server may have closed, after a fault or HTTP/1.0.
        let _ = client.write_all(bytes).await;
        let _ = client.shutdown().await;
    };
    let both = async { tokio::join!(connection, writing) };
    let _ = tokio::time::timeout(Duration::from_secs(5), both).await.unwrap();
    std::mem::take(&mut *seen.lock().unwrap())
}

fn keeps_alive(message: &Message) -> bool {
    message.fields.iter().any(|(name, value)| name == "connection" && value == b"keep-alive")
}

async fn compare(stream: &[u8], cuts: &[usize]) {
    let label = format!("{}, cut at {cuts:?}", stream.escape_ascii());
    let run = run(LIMITS, stream, cuts);
    let mut expected = accounted(&run);
    let seen = serve(&run.released).await;
    if let Some(last) = expected.iter().position(|message| message.http_10 && !keeps_alive(message)) {
        expected.truncate(last + 1);
    }
    assert_eq!(seen.len(), expected.len(), "{label}: {seen:?}");
    assert_prefix(&seen, &expected, &label);
    let complete = |messages: &[Message]| messages.iter().all(|message| message.complete);
    assert_eq!(complete(&seen), complete(&expected), "{label}");
}

#[tokio::test]
async fn hyper_reads_accepted_bytes_alike() {
    const GET: &str = "GET /g?x=%20 HTTP/1.1\r\nHost: h\r\n\r\n";
    const POST: &str = "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na\r\n";
    const PUT: &str = "PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let rows = [
        format!("{GET}{POST}{GET}"),
        format!("\r\n{PUT}3\r\n0\r\n\r\n00A\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n\r\n{GET}"),
        format!("{PUT}1\r\na\r\n0\r\nA: b \r\nC:\r\nd: e\r\n\r\n{POST}"),
        format!("{PUT}0\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\n\r\n{GET}"),
        format!("{POST}{POST}GET /\"{{|}}~[]^?`{{|}}~?? HTTP/1.1\r\nHost: h\r\nA:\u{e4}\r\n\r\n"),
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\nM-SEARCH! http://h HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n".to_owned(),
        format!("{PUT}3\r\nabc\r\n3;x\r\nabc\r\n0\r\n\r\n{GET}"),
        format!("{PUT}3\r\nabcd\r\n0\r\n\r\n"),
        format!("{PUT}3\r\nabc\r\n0\r\nA : b\r\n\r\n"),
        format!("{PUT}3\r\nab"),
        format!("{GET}POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nab"),
        format!("{GET}{POST}GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n{GET}"),
        format!("{GET}GET / HTTP/1.1\nHost: h\r\n\r\n{GET}"),
        format!("{PUT}0\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na{GET}"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc".to_owned() + GET,
    ];
    for row in rows {
        let stream = row.as_bytes();
        compare(stream, &[]).await;
        compare(stream, &(1..stream.len()).collect::<Vec<_>>()).await;
        for cut in 1..stream.len() {
            compare(stream, &[cut]).await;
        }
    }
}

#[tokio::test]
async fn limits_are_within_the_limits_of_hyper() {
    let target = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(LIMITS.max_uri_bytes - 1));
    let fields = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A:\r\n".repeat(LIMITS.max_headers - 1));
    let trailer = "b".repeat(super::TRAILER_BYTES_MAX - "A:\r\n\r\n".len());
    let trailers =
        format!("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA:{trailer}\r\n\r\n{target}");
    for row in [target.clone(), fields, trailers] {
        compare(row.as_bytes(), &[]).await;
        compare(row.as_bytes(), &[row.len() / 2]).await;
    }
}

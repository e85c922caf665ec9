//! The media types that a client prefers (RFC 9110, section 12.5.1).

use crate::base::fields::Fields;

/// Whether a client names `text/html` in `Accept`, and wants JSON no more than it. Browsers do; programs send `*/*`.
pub(super) fn prefers_html(headers: Fields<'_>) -> bool {
    let (mut html, mut json) = (0, 0);
    for member in headers.all("accept").flat_map(|line| line.split(|&byte| byte == b',')) {
        let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default();
        let is_one_of = |kinds: &[&str]| kinds.iter().any(|one| kind.eq_ignore_ascii_case(one.as_bytes()));
        let quality = || parts.clone().find_map(quality).unwrap_or(1000);
        if is_one_of(&["text/html"]) {
            html = html.max(quality());
        } else if is_one_of(&["application/json", "application/problem+json"]) {
            json = json.max(quality());
        }
    }
    html > 0 && html >= json
}

/// The thousandths of a `q` parameter; zero if it is malformed, `None` if this is another parameter.
fn quality(part: &[u8]) -> Option<u16> {
    let value = part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q="))?;
    let (whole, rest) = value.split_first().unwrap_or((&b'0', b""));
    let digits = match rest.split_first() {
        None => b"",
        Some((b'.', digits)) if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => digits,
        Some(_) => return Some(0),
    };
    let part = (0..3).fold(0, |sum, at| sum * 10 + digits.get(at).map_or(0, |digit| u16::from(digit - b'0')));
    Some(match whole {
        b'1' if part == 0 => 1000,
        b'0' => part,
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;

    #[test]
    fn browsers_prefer_html() {
        for (lines, expected) in [
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"][..], true),
            (&["TEXT/HTML"], true),
            (&["text/plain", "text/html"], true),
            (&["text/html ; level=1 ; q=0.5, */*"], true),
            (&["text/html;q=0.5, application/json"], false),
            (&["text/html, application/problem+json"], true),
            (&["text/html;q=0.5, application/json;q=0.4"], true),
            (&["text/html;q=0.000"], false),
            (&["text/html;q=0"], false),
            (&["text/html;q="], false),
            (&["text/html;q=2"], false),
            (&["text/html;q=0.1234"], false),
            (&["text/html;q=1.5"], false),
            (&["text/html2"], false),
            (&["*/*"], false),
            (&["text/*"], false),
            (&["application/json"], false),
            (&[""], false),
            (&[], false),
        ] {
            let headers: FieldBuf = lines.iter().map(|line| ("accept", *line)).collect();
            assert_eq!(prefers_html(headers.fields()), expected, "{lines:?}");
        }
    }
}

//! How far an HTTP/1.1 answer reaches, and its status. Pure. Only answers with a `Content-Length` are understood,
//! because the backends and proxies under comparison send no others.

/// Header fields of an answer; more are an error.
const FIELDS_MAX: usize = 64;

/// The head of an answer that is there in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status code.
    pub status: u16,
    /// Bytes of head and body together.
    pub length: usize,
    /// Whether the connection may be used again.
    pub keeps_alive: bool,
}

/// Reads the head of an answer; `None` if there is more of it to come.
///
/// # Errors
///
/// Says what is wrong: it is not HTTP, or its end is not known.
pub fn parse(bytes: &[u8]) -> Result<Option<Answer>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head_length) = head.parse(bytes).map_err(|_| "the answer is not HTTP")? else {
        return Ok(None);
    };
    let (mut body_length, mut keeps_alive) = (None, head.version == Some(1));
    for field in head.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            body_length = str::from_utf8(field.value).ok().and_then(|digits| digits.parse::<usize>().ok());
        } else if field.name.eq_ignore_ascii_case("connection") {
            keeps_alive &= !field.value.eq_ignore_ascii_case(b"close");
        }
    }
    let status = head.code.unwrap_or(0);
    let body_length = if matches!(status, 204 | 304) { Some(0) } else { body_length };
    let length = body_length.and_then(|body| body.checked_add(head_length)).ok_or("the answer has no length")?;
    Ok(Some(Answer { status, length, keeps_alive }))
}

//! The style and the script of all pages, as parts of the program.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::admin::answer::Answer;

/// The style.
pub(super) async fn style() -> Answer {
    answer("text/css; charset=utf-8", include_str!("weir.css"))
}

/// The script, which refreshes pages.
pub(super) async fn script() -> Answer {
    answer("text/javascript; charset=utf-8", include_str!("weir.js"))
}

fn answer(kind: &'static str, text: &'static str) -> Answer {
    let mut answer = Response::new(Body::from(text));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

//! A verdict as a response: status, headers, body.
//!
//! Not here: sending the response (proxy), and the reason for the verdict (gate).

mod accept;
mod check_reply;
mod escapes;
mod headers;
mod local_reply;
mod own_limits;
mod problem;
mod pushback;
mod reply;
mod reply_id;
mod stored_reply;

pub use check_reply::{CheckDecision, CheckReply};
pub use headers::{Disposition, HeaderSink, Profiles, expose, is_limit_header, is_retirement_header, limit_headers};
pub use local_reply::{LocalReply, is_grpc};
pub use own_limits::OwnLimitsReply;
pub use problem::ProblemKind;
pub use reply::Reply;
pub use reply_id::ReplyId;
pub use stored_reply::StoredReply;

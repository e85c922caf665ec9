//! `weir demo`.
use std::net::SocketAddr;
use std::process::ExitCode;
pub(super) fn demo(_listen: Option<SocketAddr>) -> ExitCode {
    ExitCode::SUCCESS
}

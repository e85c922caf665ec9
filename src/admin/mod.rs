//! The operators' front door.
/// What the admin listener is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens; `None` for not at all.
    pub listen: Option<std::net::SocketAddr>,
}

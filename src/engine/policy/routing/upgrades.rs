//! What clients may change to from HTTP.

/// Protocols that a connection may change to, each as its name and perhaps `/` and a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upgrades(pub Box<[Box<str>]>);

impl Upgrades {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one that is asked for by this name; the case does not matter.
    pub fn find(&self, wanted: &[u8]) -> Option<&str> {
        self.0.iter().find(|name| name.as_bytes().eq_ignore_ascii_case(wanted)).map(|name| &**name)
    }
}

//! Paths as other proxies have them, and their patterns in Weir.

/// One path, or all paths that begin alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    Exact(String),
    Prefix(String),
}

impl Path {
    /// One path; errs if Weir has no such pattern.
    pub(super) fn exact(text: &str) -> Result<Self, &'static str> {
        plain(text).map(Self::Exact)
    }

    /// All paths that begin with `text`; errs if Weir has no such pattern.
    pub(super) fn prefix(text: &str) -> Result<Self, &'static str> {
        plain(text).map(Self::Prefix)
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Exact(path) | Self::Prefix(path) => path,
        }
    }

    /// Whether it is all paths.
    pub(super) fn is_all(&self) -> bool {
        matches!(self, Self::Prefix(path) if path == "/")
    }

    /// Whether all of its paths are within `outer`.
    pub(super) fn is_within(&self, outer: &Self) -> bool {
        self == outer || matches!(outer, Self::Prefix(start) if self.text().starts_with(start.as_str()))
    }

    /// The patterns of Weir; none for all paths.
    pub(super) fn patterns(&self) -> Vec<String> {
        match self {
            Self::Exact(path) => vec![path.clone()],
            Self::Prefix(_) if self.is_all() => Vec::new(),
            Self::Prefix(path) if path.ends_with('/') => vec![format!("{path}{{*rest}}")],
            Self::Prefix(path) => vec![path.clone(), format!("{path}/{{*rest}}")],
        }
    }

    /// The difference between the paths and the patterns, if there is one.
    pub(super) fn difference(&self) -> Option<String> {
        let text = self.text();
        let is_cut = matches!(self, Self::Prefix(_)) && !text.ends_with('/');
        is_cut.then(|| format!("Weir takes `{text}` and paths below `{text}/`, but no others that begin so"))
    }
}

fn plain(path: &str) -> Result<String, &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let fits = path.starts_with('/') && path.bytes().all(is_plain);
    fits.then(|| path.to_owned()).ok_or("Weir has no such pattern of paths")
}

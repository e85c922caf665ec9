//! The ports of all servers, also of those that are not translated: the server that has requests for unknown hosts.

use super::directives::Directive;

/// All servers in their order.
#[derive(Default)]
pub(super) struct Servers(Vec<Ports>);

struct Ports {
    /// Each port, and whether the server is the default there.
    ports: Vec<(String, bool)>,
    /// Whether it has requests of its own hosts if it is no default.
    has_names: bool,
}

impl Servers {
    /// Adds a server. Returns its index.
    pub(super) fn add(&mut self, server: &Directive) -> usize {
        let named = |name: &'static str| server.directives().iter().filter(move |directive| directive.name == name);
        let has_names = named("server_name").flat_map(|names| &names.words).any(|name| name != "_" && !name.is_empty());
        let port = |listen: &Directive| {
            let is_default = listen.words.iter().any(|word| word.starts_with("default"));
            let address = address(listen);
            let port = if address.starts_with("unix:") { &address } else { address.rsplit(':').next().unwrap_or("") };
            (port.to_owned(), is_default)
        };
        let mut ports: Vec<_> = named("listen").map(port).collect();
        if ports.is_empty() {
            ports.push(("80".to_owned(), false));
        }
        self.0.push(Ports { ports, has_names });
        self.0.len() - 1
    }

    /// Whether the server has names of hosts.
    pub(super) fn has_names(&self, index: usize) -> bool {
        self.0[index].has_names
    }

    /// Whether the server has the requests for unknown hosts on one of its ports.
    pub(super) fn is_default(&self, index: usize) -> bool {
        self.0[index].ports.iter().any(|(port, _)| self.default(port) == Some(index))
    }

    /// Whether the server has all requests on its ports.
    pub(super) fn has_all(&self, index: usize) -> bool {
        self.0[index].ports.iter().all(|(port, _)| {
            let mut others = self.on(port).filter(|(other, _)| *other != index);
            self.default(port) == Some(index) && !others.any(|(_, other)| other.has_names)
        })
    }

    fn default(&self, port: &str) -> Option<usize> {
        let is_set = |(_, server): &(usize, &Ports)| server.ports.iter().any(|(own, is_set)| own == port && *is_set);
        self.on(port).find(is_set).or_else(|| self.on(port).next()).map(|(index, _)| index)
    }

    fn on(&self, port: &str) -> impl Iterator<Item = (usize, &Ports)> {
        self.0.iter().enumerate().filter(move |(_, server)| server.ports.iter().any(|(own, _)| own == port))
    }
}

/// The address of a `listen`, with its port.
pub(super) fn address(listen: &Directive) -> String {
    let address = listen.word(0);
    let is_port = !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_digit());
    let has_port = address.rsplit(']').next().is_some_and(|end| end.contains(':'));
    match address.strip_prefix("*:") {
        _ if is_port => format!("0.0.0.0:{address}"),
        Some(port) => format!("0.0.0.0:{port}"),
        None if has_port => address.to_owned(),
        None => format!("{address}:80"),
    }
}

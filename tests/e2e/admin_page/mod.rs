//! The web page of operators: its requests, and the page in a real browser.

mod api_keys;
mod browser;
mod in_browser;
mod overview;
mod requests;

use crate::support::{Answer, Client, Upstream, Weir};

const READER: &str = "0123456789abcdef-reader";
const WRITER: &str = "0123456789abcdef-writer";

/// A Weir with a token of each role, and a limit of three requests an hour for each seller.
fn start(upstream: &Upstream) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("read.token"), READER).unwrap();
    std::fs::write(folder.path().join("write.token"), WRITER).unwrap();
    let admin = "[admin]\ntokens = [{ name = \"grafana\", role = \"read\", token = { file = \"read.token\" } },\n\
        { name = \"night-shift\", role = \"write\", token = { file = \"write.token\" } }]\n\
        overrides = \"overrides.toml\"\naudit = \"audit.jsonl\"\n";
    let config = Weir::config(upstream, "", LIMIT).replacen("[admin]\n", admin, 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in(folder)
}

const LIMIT: &str = "[identity.seller]\nheader = \"x-seller\"\n\
    [[limit]]\nname = \"sellers\"\nkey = [\"seller\"]\nrate = \"3/h\"\nmatch = { path = [\"/api/{*rest}\"] }\n";

/// A request of a seller.
fn sell(weir: &Weir, seller: &str) -> Answer {
    let request = format!("GET /api/x HTTP/1.1\r\nHost: shop\r\nx-seller: {seller}\r\n\r\n");
    Client::connect(weir.address()).send(request).answer()
}

//! Configurations: whatever is wrong with one is said, and its secrets are not.

use std::path::Path;

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A file would be read as well: names of them stay within a folder that is not there.
    let folder = Path::new("/nonexistent/folder");
    let compiled = weir::config::compile(text, "weir.toml", folder, &|name| (name == "S").then(|| "hunter2".repeat(5)));
    let said = match &compiled {
        Ok(config) => format!("{config:?}"),
        Err(problems) => {
            assert_ne!(problems.len(), 0, "it fails without a reason");
            problems.to_string()
        }
    };
    assert!(text.contains("hunter2") || !said.contains("hunter2"), "{said}");
}

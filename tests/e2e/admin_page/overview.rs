//! The first page: troubles first, rates of the last minute, the most refused keys, and charts with values.

use super::browser::Browser;
use super::requests::{ask, log_in};
use super::{READER, sell, start};
use crate::support::{NEVER, Upstream, Weir};

/// A limit whose table has space for two keys, and a store that nothing serves.
const TROUBLES: &str = "[fleet]\nstrategy = \"local\"\nreplicas = 2\nsecret = { env = \"WEIR_FLEET_SECRET\" }\n[store.shared]\nredis = [\"redis://127.0.0.1:1\"]\n\
    [[limit]]\nname = \"few\"\nkey = [\"header:x-seller\"]\nrate = \"3/h\"\nmax_keys = 2\n\
    [[limit]]\nname = \"far\"\nkey = [\"ip\"]\nrate = \"1000/s\"\nstrategy = \"redis\"\n";

#[test]
fn troubles_are_above_everything() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), Weir::config(&upstream, "", TROUBLES)).unwrap();
    let weir = Weir::start_in_env(folder, &[("WEIR_FLEET_SECRET", "c2VjcmV0IG9mIHRoZSBvdmVydmlldw-7Qx")]);
    for seller in ["a", "b", "c", "d"] {
        sell(&weir, seller);
    }
    let config = std::fs::read_to_string(weir.config_file()).unwrap();
    std::fs::write(weir.config_file(), config.replace("3/h", "three an hour")).unwrap();
    weir.wait_for_line("the new configuration is invalid");
    weir.wait_for("all troubles above the rates", || {
        let page = ask(&weir, "GET", "/", &[], "").text();
        let rates = page.find("id=\"requests\"").unwrap();
        let troubles = ["The last reload failed.", "The store shared is down", "The table of the limit few is full"];
        troubles.iter().all(|words| page.find(words).is_some_and(|at| at < rates)).then_some(())
    });
    // The excerpt of the file, as `weir check` prints it, and a link.
    let excerpt = "| rate = &#34;three an hour&#34;";
    let page = ask(&weir, "GET", "/", &[], "").text();
    assert!([excerpt, "^^^^", "href=\"/configuration\""].iter().all(|words| page.contains(words)), "{page}");
    let page = ask(&weir, "GET", "/configuration", &[], "").text();
    assert!(page.contains(excerpt), "{page}");
}

#[test]
fn an_empty_instance_says_how_to_send_the_first_request() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, NEVER);
    let look = || ask(&weir, "GET", "/", &[], "").text();
    assert!(look().contains(&format!("curl -i http://{}/", weir.address())), "{}", look());
    sell(&weir, "a");
    weir.wait_for("no advice", || (!look().contains("No request has come yet.")).then_some(()));
    // The endpoint that answered it.
    assert!(look().contains(&upstream.address().to_string()), "{}", look());
}

/// The numbers are rates, the keys that are refused most have a row, and a chart shows its values.
#[test]
fn the_overview_has_rates_refused_keys_and_values_of_charts() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    for _ in 0..40 {
        sell(&weir, "abc");
    }
    let cookie = log_in(&weir, READER);
    let page = weir.wait_for("the first rates", || {
        let page = ask(&weir, "GET", "/", &[&cookie], "").text();
        (page.contains("of the last ") && page.contains(">limit ")).then_some(page)
    });
    let (_, refused) = page.split_once("verdict-refused").unwrap();
    let (_, rate) = refused.split_once("<dd>").unwrap();
    assert!(!rate.starts_with("0/s") && !rate.starts_with('–'), "{page}");
    let row = page.split("<tr>").find(|row| row.contains(">a..#")).unwrap_or_else(|| panic!("{page}"));
    assert!(row.contains("limit=sellers") && row.contains("class=\"num\">37</td>"), "{row}");

    let browser = Browser::start(true);
    browser.go(&format!("http://{}/", weir.admin()));
    browser.fill("#token", READER);
    browser.click("main button");
    browser.wait_for("Charts of the last");
    let script = "const svg = document.querySelector('svg[data-times]');
        const chart = svg.closest('.chart');
        const values = () => [chart.querySelector('.at').textContent, chart.querySelector('[data-values]').textContent];
        const point = (x) => svg.dispatchEvent(new PointerEvent('pointermove', { clientX: x, bubbles: true }));
        const times = svg.dataset.times.split('|');
        const seen = [values()[0] === chart.querySelector('.at').dataset.range];
        point(svg.getBoundingClientRect().left);
        seen.push(values()[0] === times[0], values()[1] === chart.querySelector('[data-values]').dataset.values.split('|')[0]);
        svg.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
        seen.push(values()[0] === times[1]);
        document.body.dispatchEvent(new PointerEvent('pointermove', { clientX: 0, bubbles: true }));
        seen.push(values()[0] === chart.querySelector('.at').dataset.range, chart.querySelectorAll('.scale li').length === 3);
        return seen;";
    assert_eq!(browser.run(script), serde_json::json!([true, true, true, true, true, true]));
    browser.click("a[href='/?minutes=5']");
    browser.wait_for("Headroom, 5 min");
}

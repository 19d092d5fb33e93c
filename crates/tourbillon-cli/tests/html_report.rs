//! Tests the page that `tourbillon check --html` writes: parsed as XML, and loaded in a browser where there is one.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;
use tourbillon_tools::browser;

const SECTIONS: [&str; 5] = ["promises", "ledger", "lateness", "machine", "repeat"];

/// A report on disk, removed at the end of its test.
struct Report {
    path: PathBuf,
    page: String,
    json: Value,
    status: Option<i32>,
}

impl Report {
    /// Runs a small check that writes its page to a file of this name.
    fn of(name: &str, more: &[&str]) -> Report {
        let path = std::env::temp_dir().join(format!("tourbillon-{}-{name}.html", std::process::id()));
        let file = path.to_str().expect("a path in UTF-8");
        let small = ["check", "--for=300ms", "--timers=1000", "--threads=2", "--seed=42", "--json", "--html", file];
        let output = tourbillon(&[&small, more].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let page = std::fs::read_to_string(&path).expect("the page is there");
        Report { path, page, json, status: output.status.code() }
    }

    fn document(&self) -> Document<'_> {
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        Document::parse_with_options(&self.page, options).unwrap_or_else(|error| panic!("{error}: {}", self.page))
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn tourbillon(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tourbillon")).args(arguments).output().expect("the program can be run")
}

fn text_of(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| if node.is_text() { node.text() } else { None }).collect()
}

fn by_id<'a>(document: &'a Document<'_>, id: &str) -> Node<'a, 'a> {
    let found = document.descendants().find(|node| node.attribute("id") == Some(id));
    found.unwrap_or_else(|| panic!("the page has no section {id}"))
}

#[test]
fn e9_the_page_is_well_formed_and_says_what_the_check_found() {
    let report = Report::of("plain", &[]);
    assert_eq!(report.status, Some(0));
    let document = report.document();
    for id in SECTIONS {
        assert!(text_of(by_id(&document, id)).trim().len() > 20, "section {id} is empty");
    }
    let items = by_id(&document, "promises").descendants().filter(|node| node.has_tag_name("li")).count();
    assert_eq!(items, 11);
    let surfaces = report.json["surfaces"].as_array().expect("surfaces");
    let ledger = text_of(by_id(&document, "ledger"));
    for surface in surfaces {
        assert!(ledger.contains(surface["name"].as_str().expect("a name")), "{surface}: {ledger}");
    }
    let repeat = text_of(by_id(&document, "repeat"));
    assert!(repeat.contains(report.json["repeat"].as_str().expect("a command")) && repeat.contains("42"), "{repeat}");
    let lateness = by_id(&document, "lateness");
    let curves = lateness.descendants().filter(|node| node.has_tag_name("polyline")).count();
    let buckets = report.json["lateness_under_load"]["buckets"].as_array().map_or(0, Vec::len);
    let bars = lateness
        .descendants()
        .filter(|node| node.attribute("class").is_some_and(|class| class.starts_with("bar ") || class == "bar"))
        .count();
    assert_eq!((curves, bars), (3, buckets));
    assert!(text_of(by_id(&document, "machine")).contains("wake-up floor"));
}

#[test]
fn e9_the_page_needs_nothing_but_itself() {
    let report = Report::of("alone", &[]);
    let document = report.document();
    for node in document.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        assert!(
            !["script", "link", "img", "iframe", "object", "base"].contains(&name),
            "the page has an element {name}"
        );
        for attribute in node.attributes() {
            assert!(!["src", "href", "srcset", "action", "data"].contains(&attribute.name()), "{attribute:?}");
            assert!(!attribute.value().contains("url("), "{attribute:?}");
        }
    }
    assert!(!report.page.contains("://") && !report.page.contains("@import") && !report.page.contains("url("));
}

#[test]
fn e9_a_broken_promise_is_the_headline_with_its_complaints() {
    let report = Report::of("broken", &["--break", "P3"]);
    assert_eq!(report.status, Some(1));
    let document = report.document();
    let headline = document.descendants().find(|node| node.has_tag_name("h1")).map(text_of).expect("a headline");
    assert!(headline.contains("1 of 11 promises broken"), "{headline}");
    let complaint = report.json["promises"][2]["broken"][0].as_str().expect("a complaint");
    assert!(text_of(by_id(&document, "promises")).contains(complaint), "{complaint}");
    assert!(report.page.contains("Planted with --break P3"));
}

#[test]
fn e9_p6_a_page_that_cannot_be_written_is_refused_before_the_check_begins() {
    let output = tourbillon(&["check", "--for=200ms", "--html", "/no such folder/report.html"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("/no such folder/report.html") && error.contains("choose another path"), "{error}");
    assert!(output.stdout.is_empty(), "the check has begun: {}", String::from_utf8_lossy(&output.stdout));
}

/// The page has no script. The test adds one to a copy, which writes the size of the page into its title.
#[test]
fn e9_a_browser_shows_the_page_without_scrolling_sideways_on_a_phone_and_on_a_screen() {
    let Some(chromium) = browser::chromium("the page of check --html") else { return };
    let mut report = Report::of("browser", &["--break", "P1"]);
    // No window is as narrow as a phone, so the script also makes the body of the page so narrow.
    let script = "<script>\n\
        const all = document.documentElement, widths = [all.scrollWidth - all.clientWidth];\n\
        if (all.clientWidth < 640) { document.body.style.width = '340px'; widths.push(document.body.scrollWidth - 340); }\n\
        const plot = document.querySelector('polyline').getBoundingClientRect().width > 200 ? 'a plot' : 'no plot';\n\
        const sections = document.querySelectorAll('section').length;\n\
        document.title = 'too wide by ' + Math.max(...widths) + ', ' + sections + ' sections, ' + plot;\n\
        </script></body>";
    report.page = report.page.replace("</body>", script);
    std::fs::write(&report.path, &report.page).expect("the copy is written");
    for width in [500, 1200] {
        let address = format!("file://{}", report.path.display());
        let dom = browser::dom_of(&chromium, &address, width, Duration::from_secs(1));
        let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap_or_default();
        assert_eq!(title, "too wide by 0, 5 sections, a plot", "in a window of {width}");
    }
}

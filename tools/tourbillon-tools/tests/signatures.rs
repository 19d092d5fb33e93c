//! Checks that the public signatures of `tourbillon` have the standard library's `Duration` and an `Instant`, and not the `Time` and `Span`
//! of its queues. Items that are hidden from the documentation, which are for runtimes, may have them.

use std::fs;
use std::path::Path;

#[test]
fn e7_no_public_signature_has_a_type_of_the_queues() {
    let mut found = Vec::new();
    let mut count = 0;
    read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/tourbillon/src"), &mut |path, text| {
        for signature in public_signatures(text) {
            count += 1;
            if has_queue_type(&signature) {
                found.push(format!("{}: {signature}", path.display()));
            }
        }
    });
    assert!(count > 300, "found {count} signatures only");
    assert!(found.is_empty(), "use `Duration` or `Instant`: {found:#?}");
}

#[test]
fn e7_a_signature_over_several_lines_and_a_field_are_found_and_a_hidden_one_is_not() {
    let source = "
impl Clock {
    pub fn two(
        at: Time,
    ) -> Span {
        Time::now()
    }
    /// For runtimes.
    #[doc(hidden)]
    #[must_use]
    pub fn hidden(&self) -> Time {}
    pub(crate) fn inner(&self) -> Time {}
}
pub struct Turn {
    pub next: Option<Time>,
    pub left: Duration,
}
#[doc(hidden)]
impl Engine {
    pub fn next(&self) -> Time {}
}
impl Engine {
    pub fn set(&self, at: SystemTime) {}
}
";
    let signatures = public_signatures(source);
    let found: Vec<_> = signatures.iter().filter(|signature| has_queue_type(signature)).map(String::as_str).collect();
    assert_eq!(found, ["pub fn two( at: Time, ) -> Span", "pub next: Option<Time>"]);
    assert_eq!(signatures.len(), 5, "{signatures:?}");
}

/// Returns the public functions, fields, constants and types of a source, each on one line, without those that are hidden. It relies on the
/// layout of `cargo fmt`: an item at the beginning of a line ends with a line that is `}`.
fn public_signatures(text: &str) -> Vec<String> {
    let mut signatures = Vec::new();
    let (mut is_hidden, mut in_hidden_item) = (false, false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let item = line.trim_start();
        if in_hidden_item {
            in_hidden_item = line != "}";
        } else if item == "#[doc(hidden)]" {
            is_hidden = true;
        } else if !item.starts_with('#') && !item.starts_with("//") {
            in_hidden_item = is_hidden && line == item && item.ends_with('{');
            if item.starts_with("pub ") && !item.starts_with("pub use ") {
                let mut signature = item.to_owned();
                while !signature.ends_with(['{', ';', ',', '}']) || is_open(&signature) {
                    let Some(next) = lines.next() else { break };
                    signature.push(' ');
                    signature.push_str(next.trim());
                }
                let end = signature.find(" {").unwrap_or(signature.len());
                signatures.extend((!is_hidden).then(|| signature[..end].trim_end_matches([',', ';']).to_owned()));
            }
            is_hidden = false;
        }
    }
    signatures
}

fn is_open(signature: &str) -> bool {
    signature.matches('(').count() > signature.matches(')').count()
}

fn has_queue_type(signature: &str) -> bool {
    signature.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "Time" || word == "Span")
}

fn read_sources(folder: &Path, file: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read_sources(&path, file);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            file(&path, &fs::read_to_string(&path).expect("a source can be read"));
        }
    }
}

//! Checks the repository's documents without network or tools: every link to a file or heading leads somewhere, and every path that a
//! document names exists.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A Markdown file: its path below the root, its text without code blocks, and the anchors of its headings.
struct Document {
    path: PathBuf,
    prose: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

/// Documents whose paths in backticks must exist. (The design log names files as they were on its dates.)
const CHECKED_PATHS: [&str; 4] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/trust.md"];

/// Folders that are not part of the repository's own text.
const SKIPPED: [&str; 6] = [".git", "target", "node_modules", "corpus", "seeds", "artifacts"];

#[test]
fn every_link_between_files_leads_somewhere() {
    let documents = documents();
    let by_path: HashMap<_, _> = documents.iter().map(|document| (document.path.clone(), document)).collect();
    let mut broken = Vec::new();
    for document in &documents {
        for (line, text) in &document.prose {
            for target in links(text) {
                if let Err(why) = resolve(document, target, &by_path) {
                    broken.push(format!("{}:{line}: ({target}) {why}", document.path.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// A document may name a path from the root, from a crate's folder, or from a crate's `src`.
#[test]
fn every_path_that_a_document_names_exists() {
    let mut bases = vec![root()];
    for crates in fs::read_dir(root().join("crates")).expect("the crates") {
        let folder = crates.expect("an entry").path();
        bases.extend([folder.join("src"), folder]);
    }
    let mut missing = Vec::new();
    for document in documents() {
        if !CHECKED_PATHS.contains(&slashed(&document.path).as_str()) {
            continue;
        }
        for (line, text) in &document.prose {
            for name in code_spans(text).filter(|span| is_path(span)) {
                if !bases.iter().any(|base| base.join(name).exists()) {
                    missing.push(format!("{}:{line}: `{name}`", document.path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "no such file:\n{}", missing.join("\n"));
}

#[test]
fn anchors_are_those_that_github_makes() {
    assert_eq!(anchor("9. To change X, start at Y"), "9-to-change-x-start-at-y");
    assert_eq!(anchor("Scenario `queue`"), "scenario-queue");
    assert_eq!(anchor("A [link](to.md) in it"), "a-link-in-it");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the tests run in the repository")
}

fn documents() -> Vec<Document> {
    let mut documents = Vec::new();
    walk(&root(), &mut |path| {
        if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(Document::read(path));
        }
    });
    assert!(documents.len() > 10, "found {} documents only", documents.len());
    documents
}

/// Calls `file` with the path of each file below the root.
fn walk(folder: &Path, file: &mut dyn FnMut(&Path)) {
    let mut entries: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_ref()) {
                walk(&path, file);
            }
        } else {
            file(path.strip_prefix(root()).expect("below the root"));
        }
    }
}

impl Document {
    fn read(path: &Path) -> Document {
        let text = fs::read_to_string(root().join(path)).expect("a text");
        let (mut prose, mut anchors) = (Vec::new(), BTreeSet::new());
        let mut in_code = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            } else if !in_code && !line.starts_with("    ") {
                if let Some(heading) = line.strip_prefix('#') {
                    add_anchor(&mut anchors, anchor(heading.trim_start_matches('#').trim()));
                }
                prose.push((index + 1, line.to_owned()));
            }
        }
        join_wrapped_links(&mut prose);
        Document { path: path.to_owned(), prose, anchors }
    }
}

/// A link's text may be wrapped: joins such a line with the next one.
fn join_wrapped_links(prose: &mut Vec<(usize, String)>) {
    let mut index = 0;
    while index + 1 < prose.len() {
        let line = &prose[index].1;
        let is_open = line.rfind('[').is_some_and(|open| !line[open..].contains(']'));
        if is_open {
            let (_, next) = prose.remove(index + 1);
            prose[index].1.push(' ');
            prose[index].1.push_str(next.trim_start());
        } else {
            index += 1;
        }
    }
}

/// GitHub numbers headings that occur again.
fn add_anchor(anchors: &mut BTreeSet<String>, anchor: String) {
    let mut name = anchor.clone();
    let mut number = 0;
    while !anchors.insert(name) {
        number += 1;
        name = format!("{anchor}-{number}");
    }
}

fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // Of a link only its text counts.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The targets of the links in a line, `[text](target)`.
fn links(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut rest = line;
    while let Some((_, after)) = rest.split_once("](") {
        let Some((target, after)) = after.split_once(')') else { break };
        targets.push(target.trim());
        rest = after;
    }
    targets
}

fn resolve(document: &Document, target: &str, by_path: &HashMap<PathBuf, &Document>) -> Result<(), &'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let folder = document.path.parent().unwrap_or(Path::new(""));
    let path = if file.is_empty() {
        document.path.clone()
    } else {
        normal(&folder.join(file)).ok_or("leads out of the repository")?
    };
    if !root().join(&path).exists() {
        return Err("no such file");
    }
    match heading {
        Some(heading) if !by_path.get(&path).is_some_and(|document| document.anchors.contains(heading)) => {
            Err("no such heading")
        }
        _ => Ok(()),
    }
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            _ => return None,
        }
    }
    Some(normal)
}

fn slashed(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "/")
}

fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a code span names a source file, a document or a folder of the repository.
fn is_path(span: &str) -> bool {
    let is_plain = span.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'));
    let is_file = [".rs", ".md", ".toml"].iter().any(|end| span.ends_with(end)) || span.starts_with("scripts/");
    is_plain && !span.starts_with('/') && (is_file || span.ends_with('/'))
}

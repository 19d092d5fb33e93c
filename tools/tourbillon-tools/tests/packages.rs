//! Checks what the packages need to be published, without building them; `scripts/packages` builds them.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates for users, in the order in which they are published.
const PUBLISHED: [&str; 3] = ["tourbillon-queue", "tourbillon", "tourbillon-rt"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the tests run in the repository")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the folders of all packages below `folder`.
fn packages(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
    let folders = entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.join("Cargo.toml").exists());
    let folders: Vec<_> = folders.collect();
    assert!(folders.len() >= 4, "found {folders:?} only");
    folders
}

/// Returns the value of a line `key = value` of a manifest.
fn field<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    let values = manifest.lines().filter_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
    values.map(str::trim).next()
}

fn strings(list: &str) -> Vec<&str> {
    list.split('"').skip(1).step_by(2).collect()
}

#[test]
fn e8_each_package_has_the_licence_files_of_the_repository() {
    for package in packages("crates") {
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let (copy, original) = (package.join(licence), root().join(licence));
            assert!(read(&copy) == read(&original), "{}: copy it from the root again", copy.display());
        }
    }
}

#[test]
fn e8_only_the_crates_for_users_can_be_published() {
    for package in packages("crates").into_iter().chain(packages("tools")) {
        let manifest = read(&package.join("Cargo.toml"));
        let name = field(&manifest, "name").map(strings).expect("a name")[0].to_owned();
        let is_private = field(&manifest, "publish") == Some("false");
        assert_eq!(!is_private, PUBLISHED.contains(&name.as_str()), "{name}: publish = false, or a line in this test");
    }
}

#[test]
fn e8_the_manifest_of_each_published_crate_is_whole() {
    let categories =
        ["asynchronous", "concurrency", "data-structures", "date-and-time", "network-programming", "no-std"];
    for name in PUBLISHED {
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        for shared in ["version", "rust-version", "license", "authors", "repository"] {
            assert!(
                manifest.contains(&format!("\n{shared}.workspace = true\n")),
                "{name}: {shared} is the workspace's"
            );
        }
        let description = field(&manifest, "description").map(strings).unwrap_or_default();
        assert!(description.first().is_some_and(|text| text.len() > 20), "{name}: a description");
        assert_eq!(field(&manifest, "documentation").map(strings), Some(vec![&*format!("https://docs.rs/{name}")]));
        // The limits of crates.io.
        let keywords = field(&manifest, "keywords").map(strings).unwrap_or_default();
        assert!(
            (3..=5).contains(&keywords.len()) && keywords.iter().all(|word| word.len() <= 20),
            "{name}: {keywords:?}"
        );
        let of_crate = field(&manifest, "categories").map(strings).unwrap_or_default();
        assert!(!of_crate.is_empty() && of_crate.iter().all(|slug| categories.contains(slug)), "{name}: {of_crate:?}");
        let docs = manifest.split("[package.metadata.docs.rs]").nth(1).expect("a section for docs.rs");
        assert!(
            docs.contains("all-features = true") && docs.contains(r#"rustdoc-args = ["--cfg", "docsrs"]"#),
            "{name}"
        );
        let lib = read(&root().join("crates").join(name).join("src/lib.rs"));
        assert!(
            lib.contains("#![cfg_attr(docsrs, feature(doc_cfg))]"),
            "{name}: features are shown in the documentation"
        );
    }
}

#[test]
fn e8_each_readme_begins_with_how_to_install_it() {
    for name in PUBLISHED {
        let readme = read(&root().join("crates").join(name).join("README.md"));
        let begin: String = readme.lines().take(15).collect::<Vec<_>>().join("\n");
        for line in [format!("cargo add {name}\n"), format!("cargo add {name} --path CLONE/crates/{name}")] {
            assert!(begin.contains(&line), "{name}: {line}");
        }
    }
}

/// A package has only its own files, and the address of the repository may be missing: a relative link would lead nowhere.
#[test]
fn e8_no_link_of_a_package_leads_out_of_it() {
    for name in PUBLISHED {
        let package = root().join("crates").join(name);
        for text in [read(&package.join("README.md")), read(&package.join("src/lib.rs"))] {
            for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                assert!(!target.starts_with('.') && !target.contains(".md"), "{name}: ({target})");
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn e8_a_release_is_refused_while_the_address_of_the_repository_is_missing() {
    let manifest = read(&root().join("Cargo.toml"));
    let places: Vec<_> = manifest.lines().filter(|line| line.starts_with("repository =")).collect();
    assert_eq!(places.len(), 1, "the address has one place");
    let mut command = std::process::Command::new(root().join("scripts/release-check"));
    let check = command.arg("--no-build").output().expect("bash is there");
    let text = String::from_utf8_lossy(&check.stdout);
    let is_missing = text.contains("missing: the address of the repository");
    assert_eq!(is_missing, !places[0].contains("https://"), "{text}");
    assert!(!is_missing || check.status.code() == Some(1), "{:?}: {text}", check.status);
}

//! Imports go downwards: the `use` lines of each folder name only itself and folders below it, in the order that `lib.rs` gives.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folders, and files beside them, from top to bottom.
fn layers(lib: &str) -> Vec<String> {
    let list = lib.split("//! # Folders").nth(1).expect("lib.rs lists the folders");
    let list = list.lines().skip(3).take_while(|line| line.len() > 3).collect::<String>();
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, files);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
}

/// Returns the paths that the file imports from this crate, relative to its root. Unit tests, at the end of a file, may import any.
fn imports(text: &str, module: &[&str]) -> Vec<String> {
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    let statements = text.split("use ").skip(1).map(|rest| rest.split([';', '{']).next().unwrap_or_default());
    let resolve = |statement: &str| {
        let supers = statement.matches("super::").count();
        let within = module.len().checked_sub(supers).map(|depth| module[..depth].join("/"));
        let path = statement.trim_start_matches("super::").replace("::", "/");
        match statement.strip_prefix("crate::") {
            Some(path) => Some(path.replace("::", "/")),
            None if supers > 0 => within.map(|within| format!("{within}/{path}")),
            None => None,
        }
    };
    statements.filter_map(resolve).collect()
}

/// Returns the index of the layer that a path belongs to: the longest that it begins with.
fn layer_of(path: &str, layers: &[String]) -> Option<usize> {
    let is_in = |layer: &str| path.strip_prefix(layer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    (0..layers.len()).filter(|index| is_in(&layers[*index])).max_by_key(|index| layers[*index].len())
}

#[test]
fn every_folder_imports_only_from_itself_and_from_folders_below_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let layers = layers(&fs::read_to_string(root.join("lib.rs")).unwrap());
    let (mut files, mut upwards, mut checked) = (Vec::new(), Vec::new(), 0);
    sources(&root, &mut files);
    for file in files {
        let name = file.strip_prefix(&root).unwrap().with_extension("");
        let module: Vec<_> = name.iter().map(|part| part.to_str().unwrap()).filter(|part| *part != "mod").collect();
        if module == ["lib"] {
            continue;
        }
        let own = layer_of(&module.join("/"), &layers).unwrap_or_else(|| panic!("{name:?} is in none of {layers:?}"));
        for import in imports(&fs::read_to_string(&file).unwrap(), &module) {
            // The rest are items that lib.rs exports: only the checks at the top use them.
            let layer = layer_of(&import, &layers).or((own > 0).then_some(0));
            checked += 1;
            if layer.is_some_and(|layer| layer < own) {
                upwards.push(format!("{} imports {import}", name.display()));
            }
        }
    }
    assert!(checked > 200, "only {checked} imports were found");
    assert!(upwards.is_empty(), "upward imports, by the order {layers:?}: {upwards:#?}");
}

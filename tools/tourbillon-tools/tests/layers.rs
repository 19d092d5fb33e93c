//! Imports go only downwards: between the modules at the root of a crate there is no cycle of imports.
//!
//! The test reads the sources. An import is a path that begins with `crate::` in code that is neither a comment nor of tests only; a
//! type that `lib.rs` re-exports counts as an import of the module that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

/// Modules that only tests have: they may import everything.
const OF_TESTS: &[&str] = &["verify", "tests"];

/// Which module imports which, and the line where it does so first.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn no_module_imports_from_above_itself() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    for name in ["tourbillon-queue", "tourbillon", "tourbillon-rt", "tourbillon-durable", "tourbillon-server"] {
        let imports = imports_of(&crates.join(name).join("src"));
        assert!(imports.len() > 3, "{name}: the sources were not found");
        if let Some(cycle) = find_cycle(&imports) {
            panic!(
                "{name}: modules import each other in a circle. Move what they share into a module below them:\n{cycle}"
            );
        }
    }
}

#[test]
fn a_circle_of_imports_is_found_and_printed_with_its_lines() {
    let mut imports = Imports::new();
    let mut import = |from: &str, to: &str| {
        imports.entry(from.into()).or_default().insert(to.into(), format!("{from}.rs:1: use crate::{to};"));
    };
    for (from, to) in [("time", "engine"), ("engine", "core"), ("core", "clock"), ("engine", "clock")] {
        import(from, to);
    }
    import("clock", "engine");
    let cycle = find_cycle(&imports).expect("clock imports engine, which imports clock");
    assert!(cycle.contains("clock.rs:1: use crate::engine;"), "{cycle}");
    assert!(!cycle.contains("time.rs"), "time is in no circle: {cycle}");
}

#[test]
fn comments_and_tests_are_not_imports() {
    let source = "use crate::{clock, Engine};\n// use crate::driver;\nlet x = crate::core::f(); // crate::alarm\n#[cfg(test)]\nmod tests { use crate::time; }\n";
    let exports = BTreeMap::from([("Engine".to_owned(), "engine".to_owned())]);
    let found: Vec<String> = targets(source, &exports).map(|(_, target)| target).collect();
    assert_eq!(found, ["clock", "engine", "core"]);
}

#[test]
fn of_the_items_of_tests_only_themselves_are_skipped() {
    let source = "\
#[cfg(test)]
mod tests;

use crate::clock;
#[cfg(all(test, shuttle))]
use crate::driver;
#[cfg(test)]
#[cfg(not(loom))]
fn helper(
    from: u8,
) -> crate::time::Sleep {
    crate::time::sleep()
}
impl Shard {
    #[cfg(test)]
    planned: crate::time::Sleep,
    core: crate::core::Core,
}
";
    let found: Vec<String> = targets(source, &BTreeMap::new()).map(|(_, target)| target).collect();
    assert_eq!(found, ["clock", "core"]);
}

fn imports_of(src: &Path) -> Imports {
    let lib = fs::read_to_string(src.join("lib.rs")).unwrap_or_default();
    let exports = exports_of(&lib);
    let mut imports = Imports::new();
    for file in sources(src) {
        let path = file.strip_prefix(src).expect("it lies in that folder").display().to_string();
        let module = path.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
        if path == "lib.rs" || path.split(['/', '.']).any(|part| OF_TESTS.contains(&part)) {
            continue;
        }
        let source = fs::read_to_string(&file).expect("a source can be read");
        let of_module = imports.entry(module.clone()).or_default();
        for (line, target) in targets(&source, &exports) {
            if target != module && !OF_TESTS.contains(&target.as_str()) {
                let text = source.lines().nth(line).unwrap_or_default().trim();
                of_module.entry(target).or_insert_with(|| format!("{path}:{}: {text}", line + 1));
            }
        }
    }
    imports
}

/// Returns the names that `lib.rs` re-exports, each with the module that has it.
fn exports_of(lib: &str) -> BTreeMap<String, String> {
    let statements = lib.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let mut exports = BTreeMap::new();
    for statement in statements {
        let path = statement.trim_start_matches("self::");
        let Some((module, names)) = path.split_once("::") else { continue };
        for name in words(names).filter(|name| name.starts_with(char::is_uppercase)) {
            exports.insert(name.to_owned(), module.to_owned());
        }
    }
    exports
}

/// Returns what the code of a file imports, each with the number of its line.
fn targets(source: &str, exports: &BTreeMap<String, String>) -> impl Iterator<Item = (usize, String)> {
    code_of(source)
        .flat_map(|(number, line)| {
            let code = line.split("//").next().unwrap_or_default();
            code.split("crate::").skip(1).flat_map(names_after).map(move |name| (number, name)).collect::<Vec<_>>()
        })
        .map(|(number, name)| (number, exports.get(&name).cloned().unwrap_or(name)))
}

/// Returns the numbered lines of a file without the items that only tests have. Relies on the layout of rustfmt: an item ends at a line
/// with its own indentation.
fn code_of(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut lines = source.lines().enumerate();
    iter::from_fn(move || {
        loop {
            let (number, line) = lines.next()?;
            if !is_for_tests(line) {
                return Some((number, line));
            }
            let indent = indentation(line);
            let of_item = lines.by_ref().map(|(_, line)| line).filter(|line| indentation(line) == indent);
            let mut item = of_item.skip_while(|line| line.trim_start().starts_with("#[")).peekable();
            if item.peek()?.starts_with("mod tests {") {
                return None; // the end of the file's code
            }
            item.find(|line| line.ends_with([';', ',', '}']));
        }
    })
}

fn is_for_tests(line: &str) -> bool {
    ["#[cfg(test)]", "#[cfg(all(test"].iter().any(|attribute| line.trim_start().starts_with(attribute))
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns what follows `crate::`: one name, or several in braces.
fn names_after(rest: &str) -> Vec<String> {
    match rest.strip_prefix('{').and_then(|list| list.split_once('}')) {
        Some((list, _)) => list
            .split(',')
            .filter_map(|item| words(item).next().map(str::to_owned))
            .filter(|name| name != "self")
            .collect(),
        None => words(rest).next().map(str::to_owned).into_iter().collect(),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("it can be read").path()) {
        if entry.is_dir() {
            found.extend(sources(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
    found.sort();
    found
}

/// Returns the lines that make up a cycle, if there is one: a module on it can be reached from itself.
fn find_cycle(imports: &Imports) -> Option<String> {
    imports.keys().find_map(|start| {
        let path = path_back(imports, start, start, &mut BTreeSet::new())?;
        let steps: Vec<&str> = path.windows(2).map(|step| imports[&step[0]][&step[1]].as_str()).collect();
        Some(format!("{}\n    {}", path.join(" -> "), steps.join("\n    ")))
    })
}

/// Returns the modules on a way from `from` to `goal`, both included.
fn path_back(imports: &Imports, from: &str, goal: &str, seen: &mut BTreeSet<String>) -> Option<Vec<String>> {
    for next in imports.get(from)?.keys() {
        let rest = if next == goal {
            Some(vec![goal.to_owned()])
        } else if seen.insert(next.clone()) {
            path_back(imports, next, goal, seen)
        } else {
            None
        };
        if let Some(mut path) = rest {
            path.insert(0, from.to_owned());
            return Some(path);
        }
    }
    None
}

//! Describes where, when and with which versions a run was made.

use std::fs;
use std::process::Command;

use crate::systems::native;

/// Names of the peers in the registry.
const PEERS: [&str; 10] = [
    "async-io",
    "futures-timer",
    "hierarchical_hash_wheel_timer",
    "monoio",
    "nexus-timer",
    "pingora-timeout",
    "smol",
    "tokio",
    "tokio-cron-scheduler",
    "tokio-util",
];

/// The lock file that this program was built with.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// Returns what is known of the machine, by name; "unknown" for what is not.
pub(crate) fn describe() -> Vec<(&'static str, String)> {
    let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "unknown".into());
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut versions: Vec<String> =
        PEERS.iter().filter_map(|name| Some(format!("{name} {}", version(LOCK, name)?))).collect();
    versions.extend(native::versions());
    vec![
        ("date", jiff::Timestamp::now().strftime("%F %H:%M UTC").to_string()),
        ("commit", or_unknown(commit())),
        ("command", command()),
        ("processor", or_unknown(read("/proc/cpuinfo").and_then(|text| field(&text, "model name")))),
        ("cores", cores.to_string()),
        ("memory", or_unknown(read("/proc/meminfo").and_then(|text| field(&text, "MemTotal")))),
        ("kernel", or_unknown(read("/proc/sys/kernel/osrelease"))),
        ("clock source", or_unknown(read("/sys/devices/system/clocksource/clocksource0/current_clocksource"))),
        ("scheduling", or_unknown(read("/proc/self/stat").and_then(|stat| policy(&stat).map(str::to_owned)))),
        ("compiler", or_unknown(output("rustc", &["--version"]))),
        ("peers", versions.join(", ")),
    ]
}

/// Returns the bytes of memory that new processes can use.
pub(crate) fn available_memory() -> Option<u64> {
    let value = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")?;
    let kilobytes: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kilobytes)
}

/// Returns the command as typed in the repository.
fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo run --release -p tourbillon-bench -- {}", arguments.join(" "))
}

/// Returns the commit, and whether there were uncommitted changes.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| output("git", &[&["-C", env!("CARGO_MANIFEST_DIR")], arguments].concat());
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, with changes") })
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let value = |line: &str| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_owned());
    text.lines().find_map(value)
}

/// Returns how the kernel schedules this process. A run under `chrt` cannot be compared with one without.
fn policy(stat: &str) -> Option<&'static str> {
    // The second field is the program's name in brackets, which may contain spaces; the policy is field 41.
    let (_, after_name) = stat.rsplit_once(')')?;
    Some(match after_name.split_whitespace().nth(41 - 3)? {
        "0" => "normal",
        "1" => "real-time (chrt -f)",
        "2" => "real-time (chrt -r)",
        _ => "other",
    })
}

/// Returns the version of a package in a lock file.
fn version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    after.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_versions_are_found() {
        assert_eq!(
            field("processor : 0\nmodel name\t: A CPU\nmodel name\t: B\n", "model name").as_deref(),
            Some("A CPU")
        );
        assert_eq!(field("processor : 0\n", "model name"), None);
        assert_eq!(version("[[package]]\nname = \"a\"\nversion = \"1.2\"\nsource = \"x\"\n", "a"), Some("1.2"));
        assert!(available_memory().is_some_and(|bytes| bytes > 1_000_000));
        let stat = |policy| format!("7 (a b) S {}{policy} 0 0", "0 ".repeat(37));
        assert_eq!((policy(&stat(0)), policy(&stat(1))), (Some("normal"), Some("real-time (chrt -f)")));
        assert_eq!(policy("7 (a b) S"), None);
        assert!(PEERS.iter().all(|name| version(LOCK, name).is_some()), "every peer is in the lock file");
    }
}

//! Loads pages in Chromium, and drives it through its WebDriver, if this machine has them. For tests.

mod driver;

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use self::driver::{Browser, Window};

/// Longest time that Chromium may take for a page.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the browser; without one, reports what is not tested.
#[must_use]
pub fn chromium(untested: &str) -> Option<PathBuf> {
    let found = program(&["chromium", "chromium-browser", "google-chrome"]);
    if found.is_none() {
        not_tested(untested, "no Chromium");
    }
    found
}

/// Returns the first of these programs that this machine has.
fn program(names: &[&str]) -> Option<PathBuf> {
    let folders: Vec<_> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let mut paths = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    paths.find(|path| path.is_file())
}

fn not_tested(what: &str, missing: &str) {
    crate::not_tested("IN A BROWSER", &format!("{what}; this machine has {missing}"));
}

/// Arguments with which Chromium runs anywhere, with a profile of its own, and asks nobody for anything.
fn common_arguments(profile: &Path) -> Vec<String> {
    let fixed = [
        "--headless",
        // As root, in a container, the sandbox is refused; the pages are our own.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ];
    let mut arguments = fixed.map(str::to_owned).to_vec();
    arguments.push(format!("--user-data-dir={}", profile.display()));
    arguments
}

/// Loads the page at `address` in a window of this width, lets its scripts run for `scripts`, and returns the document as the browser
/// has it then.
///
/// # Panics
/// Chromium cannot be started, or does not end in time.
#[must_use]
pub fn dom_of(chromium: &Path, address: &str, width: u32, scripts: Duration) -> String {
    let profile = std::env::temp_dir().join(format!("tourbillon-browser-{}-{width}", std::process::id()));
    let mut arguments = common_arguments(&profile);
    arguments.extend([
        format!("--window-size={width},900"),
        format!("--virtual-time-budget={}", scripts.as_millis()),
        "--dump-dom".to_owned(),
        address.to_owned(),
    ]);
    let dom = run(chromium, &arguments);
    let _ = std::fs::remove_dir_all(profile);
    dom
}

fn run(program: &Path, arguments: &[impl AsRef<OsStr>]) -> String {
    let mut command = Command::new(program);
    let mut child =
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("Chromium starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let started = Instant::now();
    while child.try_wait().expect("a child of ours").is_none() {
        if started.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("Chromium did not load the page within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    reader.join().expect("the reader does not panic").expect("a document in UTF-8")
}

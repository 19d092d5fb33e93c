//! Loads pages in Chromium, if this machine has it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that Chromium may take for a page.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the browser; without one, reports what is not tested, past the output that the test harness hides.
pub(crate) fn chromium(untested: &str) -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<_> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let found = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = found.into_iter().find(|path| path.is_file());
    if found.is_none() {
        let _ = writeln!(std::io::stderr(), "NOT TESTED IN A BROWSER: {untested}; this machine has no Chromium");
    }
    found
}

/// Loads the page at `address` in a window of this width, lets its scripts run for `scripts`, and returns the document as the browser
/// has it then.
pub(crate) fn dom_of(chromium: &Path, address: &str, width: u32, scripts: Duration) -> String {
    let profile = std::env::temp_dir().join(format!("tourbillon-browser-{}-{width}", std::process::id()));
    let arguments = [
        "--headless".to_owned(),
        // As root, in a container, the sandbox is refused; the pages are our own.
        "--no-sandbox".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        "--no-first-run".to_owned(),
        format!("--user-data-dir={}", profile.display()),
        format!("--window-size={width},900"),
        format!("--virtual-time-budget={}", scripts.as_millis()),
        "--dump-dom".to_owned(),
        address.to_owned(),
    ];
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

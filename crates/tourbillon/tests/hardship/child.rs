//! Parts of a test that run in a process of their own.
//!
//! ```text
//!     the test                               the same program, with this test alone
//!     Child::spawn(test, part) ------------> child_part(test) returns the part; the test runs it
//!     wait_for(READY)          <------------ print(READY)
//!     (the fault)
//!     write_line(line)         ------------> read_line()
//!     succeeds()               <------------ its end and its report
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A child process. Killed at the latest when this is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
    /// The lines that the child has printed so far.
    said: Vec<String>,
    patience: Instant,
}

/// The line that a child prints when the fault may come.
pub(crate) const READY: &str = "ready for the fault";

/// The start of a line of the report.
const REPORT: &str = "hardship:";

/// The environment variable that names the part that a test has to run.
const PART: &str = "TOURBILLON_HARDSHIP";

/// Longer than any part takes that does not hang.
const LONG: Duration = Duration::from_secs(90);

/// Returns the part of this test that this process has to run; `None` in the test itself.
pub(crate) fn child_part(test: &str) -> Option<String> {
    let value = std::env::var(PART).ok()?;
    let (name, part) = value.split_once(' ')?;
    (name == test).then(|| {
        // The test harness has begun a line; the output of the child starts on the next.
        println!();
        part.to_owned()
    })
}

/// Prints a line of the report, in the test or in a child.
pub(crate) fn report(line: &str) {
    print(&format!("{REPORT} {line}"));
}

/// Prints a line for the test to read.
pub(crate) fn print(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// Waits, in the child, for a line from the test.
pub(crate) fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

impl Child {
    pub(crate) fn spawn(test: &str, part: &str) -> Child {
        let mut command = crate::support::this_program();
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(PART, format!("{test} {part}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (sender, lines) = channel();
        pass_on(process.stdout.take().unwrap(), sender.clone());
        pass_on(process.stderr.take().unwrap(), sender);
        Child { process, lines, said: Vec::new(), patience: Instant::now() + LONG }
    }

    /// Waits until the child prints this line.
    pub(crate) fn wait_for(&mut self, line: &str) {
        while self.listen().unwrap_or_else(|| panic!("the child has ended: {:#?}", self.said)) != line {}
    }

    pub(crate) fn write_line(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Returns the state of the process: `T` if it is stopped.
    pub(crate) fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    }

    /// Waits for the end of the child, whose test must pass, and passes its report on.
    pub(crate) fn succeeds(self) {
        let (status, said) = self.ends();
        assert!(status.success() && said.contains("1 passed"), "{status}\n{said}");
        said.lines().filter(|line| line.starts_with(REPORT)).for_each(print);
    }

    /// Waits for the end of the child by this signal, and returns its output.
    pub(crate) fn ends_by(self, signal: Signal) -> String {
        let (status, said) = self.ends();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}\n{said}");
        said.lines().filter(|line| line.starts_with(REPORT)).for_each(print);
        said
    }

    /// Waits for the end of the child, and returns its status and its output.
    pub(crate) fn ends(mut self) -> (ExitStatus, String) {
        while self.listen().is_some() {}
        let status = self.process.wait().unwrap();
        (status, self.said.join("\n"))
    }

    /// Returns the next line that the child prints; `None` if it has ended.
    fn listen(&mut self) -> Option<String> {
        match self.lines.recv_timeout(self.patience.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.said.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the child hangs: {:#?}", self.said),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn pass_on(from: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        let lines = BufReader::new(from).split(b'\n').map_while(Result::ok);
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).try_for_each(|line| to.send(line))
    });
}

//! Parts of a test that are played in a process of their own.
//!
//! ```text
//!     the test                               the same program, told to run this test alone
//!     Child::play(test, part) -------------> part_of(test) says which part; it is played
//!     wait_for(READY)         <------------- say(READY)
//!     (the fault)
//!     tell(line)              -------------> told()
//!     succeeds()              <------------- its end, and what it has to report
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A child at play. Ended at the latest when this is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
    /// What it has said so far.
    said: Vec<String>,
    patience: Instant,
}

/// What a child says when the fault may come.
pub(crate) const READY: &str = "ready for the fault";

/// What is reported begins so.
const REPORT: &str = "hardship:";

/// Says to a test which part of it to play.
const PART: &str = "TOURBILLON_HARDSHIP";

/// Longer than anything takes that does not hang.
const LONG: Duration = Duration::from_secs(90);

/// The part of this test that the process is to play; `None` in the test itself.
pub(crate) fn part_of(test: &str) -> Option<String> {
    let told = std::env::var(PART).ok()?;
    let (name, part) = told.split_once(' ')?;
    (name == test).then(|| {
        // What is said has lines of its own, after the one that the test harness has begun.
        println!();
        part.to_owned()
    })
}

/// A line of the report, from the test or from a child.
pub(crate) fn report(line: &str) {
    say(&format!("{REPORT} {line}"));
}

/// Says something to the test.
pub(crate) fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// Waits, in the child, until the test tells something.
pub(crate) fn told() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

impl Child {
    pub(crate) fn play(test: &str, part: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(PART, format!("{test} {part}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (sender, lines) = channel();
        pass_on(process.stdout.take().unwrap(), sender.clone());
        pass_on(process.stderr.take().unwrap(), sender);
        Child { process, lines, said: Vec::new(), patience: Instant::now() + LONG }
    }

    /// Waits until it says this.
    pub(crate) fn wait_for(&mut self, line: &str) {
        while self.listen().unwrap_or_else(|| panic!("it has ended: {:#?}", self.said)) != line {}
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// How it stands: `T` if it is stopped.
    pub(crate) fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    }

    /// Waits for its end. Its test must have passed; what it reports is reported.
    pub(crate) fn succeeds(self) {
        let (status, said) = self.ends();
        assert!(status.success() && said.contains("1 passed"), "{status}\n{said}");
        said.lines().filter(|line| line.starts_with(REPORT)).for_each(say);
    }

    /// Waits for its end by this signal, and gives what it has said.
    pub(crate) fn ends_by(self, signal: Signal) -> String {
        let (status, said) = self.ends();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}\n{said}");
        said.lines().filter(|line| line.starts_with(REPORT)).for_each(say);
        said
    }

    fn ends(mut self) -> (ExitStatus, String) {
        while self.listen().is_some() {}
        let status = self.process.wait().unwrap();
        (status, self.said.join("\n"))
    }

    /// What it says next; `None` if it has ended.
    fn listen(&mut self) -> Option<String> {
        match self.lines.recv_timeout(self.patience.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.said.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("it hangs: {:#?}", self.said),
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

//! A child process that measures, or is measured: a line on its standard input asks for a round, and it answers with a line of
//! numbers.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit};

use crate::process_usage::ProcessUsage;

/// A child process, which ends when this is dropped.
pub(crate) struct ChildProcess {
    /// Its name in error messages.
    name: String,
    child: Child,
    /// The child ends when this is closed.
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl ChildProcess {
    /// Starts a program. Its errors go to standard error.
    pub(crate) fn start(name: &str, mut command: Command) -> ChildProcess {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| fail(name, &error.to_string()));
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it was asked for"));
        ChildProcess { name: name.to_owned(), child, questions, answers }
    }

    /// Starts this program again with other arguments.
    pub(crate) fn again<A: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>) -> ChildProcess {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        // The name of the system selects the back end of our runtime.
        command.args(arguments).env_remove("TOURBILLON_BACKEND");
        ChildProcess::start(name, command)
    }

    /// Asks for a round, and returns the numbers of the answer.
    pub(crate) fn ask(&mut self) -> Vec<f64> {
        // If the child has ended, reading the answer fails.
        let _ = self.questions.as_mut().map(|questions| questions.write_all(b"\n"));
        self.answer()
    }

    /// Returns the numbers of its next line.
    pub(crate) fn answer(&mut self) -> Vec<f64> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(1..) => line.split_whitespace().filter_map(|number| number.parse().ok()).collect(),
            _ => self.fail("it has ended"),
        }
    }

    /// Returns the resources that it has used so far.
    pub(crate) fn usage(&self) -> ProcessUsage {
        ProcessUsage::at(self.child.id())
    }

    /// Exits this program with an error about the child.
    pub(crate) fn fail(&self, why: &str) -> ! {
        fail(&self.name, why)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        drop(self.questions.take());
        let _ = self.child.wait();
    }
}

fn fail(name: &str, why: &str) -> ! {
    eprintln!("error: {name} could not be measured: {why}");
    exit(1);
}

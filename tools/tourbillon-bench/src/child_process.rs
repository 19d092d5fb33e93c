//! A process that measures, or is measured, apart from this one: it is asked by a line, and answers with a line of numbers.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit};

use crate::process_usage::ProcessUsage;

/// Ends when it is dropped.
pub(crate) struct ChildProcess {
    /// What it is for, if it has to be said that it failed.
    name: String,
    child: Child,
    /// It ends with this.
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl ChildProcess {
    /// Starts a program. Its errors are seen.
    pub(crate) fn start(name: &str, mut command: Command) -> ChildProcess {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| fail(name, &error.to_string()));
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it was asked for"));
        ChildProcess { name: name.to_owned(), child, questions, answers }
    }

    /// Starts this program again, with other arguments.
    pub(crate) fn again<A: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>) -> ChildProcess {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        // The back end of our runtime is in the name of the system.
        command.args(arguments).env_remove("TOURBILLON_BACKEND");
        ChildProcess::start(name, command)
    }

    /// Asks it, and returns the numbers of its answer.
    pub(crate) fn ask(&mut self) -> Vec<f64> {
        // If it does not take the question, it has ended, and does not answer.
        let _ = self.questions.as_mut().map(|questions| questions.write_all(b"\n"));
        self.answer()
    }

    /// The numbers in its next line.
    pub(crate) fn answer(&mut self) -> Vec<f64> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(1..) => line.split_whitespace().filter_map(|number| number.parse().ok()).collect(),
            _ => self.fail("it has ended"),
        }
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> ProcessUsage {
        ProcessUsage::at(self.child.id())
    }

    /// Ends this program, which cannot measure what it was asked to.
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

//! A server's process, as its load sees it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit};

use rustix::net::sockopt::set_socket_linger;

use super::look::Look;
use super::of::Service;

pub(super) struct Server {
    system: &'static str,
    process: Child,
    /// It ends with this.
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    /// Starts a process and waits until it listens.
    pub(super) fn start(system: &'static str, service: Service) -> Server {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        // The back end of ours is in its name.
        command.args(["io-of", system, service.name()]).env_remove("TOURBILLON_BACKEND");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("this program can be run again");
        let questions = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("it was asked for"));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = Server { system, process, questions, answers, address };
        let port = server.answer().first().map_or(0, |port| *port as u16);
        server.address.set_port(port);
        server
    }

    /// What it has used so far.
    pub(super) fn look(&self) -> Look {
        Look::at(self.process.id())
    }

    /// A connection to it. Closed, it is gone at once, and does not keep its port for a minute.
    pub(super) fn connect(&self) -> TcpStream {
        let connect = || {
            let stream = TcpStream::connect(self.address)?;
            set_socket_linger(&stream, Some(std::time::Duration::ZERO))?;
            std::io::Result::Ok(stream)
        };
        connect().unwrap_or_else(|error| self.give_up(&error.to_string()))
    }

    /// The median and the 99th percentile of how late its replies were, in microseconds.
    pub(super) fn lateness(&mut self) -> (f64, f64) {
        let asked = self.questions.as_mut().is_some_and(|questions| questions.write_all(b"\n").is_ok());
        match self.answer()[..] {
            [p50, p99] if asked => (p50, p99),
            _ => self.give_up("it does not say how late it was"),
        }
    }

    /// The numbers in its next line.
    fn answer(&mut self) -> Vec<f64> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(1..) => line.split_whitespace().filter_map(|number| number.parse().ok()).collect(),
            _ => self.give_up("it has ended"),
        }
    }

    fn give_up(&self, why: &str) -> ! {
        eprintln!("error: {} could not be measured: {why}", self.system);
        exit(1);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.questions.take());
        let _ = self.process.wait();
    }
}

//! The process of a server.
//!
//! It prints the port that it listens on. For each line on its standard input, it prints how late its replies were; when that
//! input ends, the process exits, so that it does not outlive its parent.

use std::io::{BufRead, stdin};
use std::net::{Ipv4Addr, TcpListener};
use std::process::exit;
use std::time::Duration;

use super::{cores, idle, lateness, limits, systems};

/// The arguments of a server's process.
#[derive(clap::Args)]
pub(crate) struct IoServerArgs {
    pub(super) system: String,
    #[arg(value_enum)]
    pub(super) service: IoService,
}

/// The service of a server.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(super) enum IoService {
    /// Sends back what it receives.
    Echo,
    /// Sends back what it receives, with a timeout on every read.
    EchoTimed,
    /// Sends each message back after the delay that the message contains.
    Delayed,
    /// Has pending timers, and nothing else.
    Idle,
}

/// Longer than any client is silent.
const TIMEOUT: Duration = Duration::from_secs(30);

impl IoService {
    /// Returns its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            IoService::Echo => "echo",
            IoService::EchoTimed => "echo-timed",
            IoService::Delayed => "delayed",
            IoService::Idle => "idle",
        }
    }

    /// Returns how long an echo server waits for a message.
    pub(super) fn timeout(self) -> Option<Duration> {
        (self == IoService::EchoTimed).then_some(TIMEOUT)
    }
}

/// Serves until the standard input ends.
pub(crate) fn run_one(args: &IoServerArgs) {
    cores::pin_to_server_core();
    limits::raise();
    std::thread::spawn(answer_questions);
    if args.service == IoService::Idle {
        return idle::serve(&args.system);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a server can listen on loopback");
    listener.set_nonblocking(true).expect("a listener can be set to non-blocking");
    println!("{}", listener.local_addr().expect("it has an address").port());
    systems::serve(&args.system, listener, args.service);
}

/// Answers each line of the standard input, until that ends.
fn answer_questions() {
    for _question in stdin().lock().lines().map_while(Result::ok) {
        let (p50, p99) = lateness::percentiles();
        println!("{p50} {p99}");
    }
    exit(0);
}

//! The process of a server: what it serves, and how it is told to.
//!
//! It says on its standard output where it listens. Asked by a line on its standard input, it says how late its replies were; when
//! that input ends, it does, too: it does not outlive who started it.

use std::io::{BufRead, stdin};
use std::net::{Ipv4Addr, TcpListener};
use std::process::exit;
use std::time::Duration;

use super::{cores, idle, lateness, limits, systems};

/// For the process of a server.
#[derive(clap::Args)]
pub(crate) struct IoServerArgs {
    pub(super) system: String,
    #[arg(value_enum)]
    pub(super) service: IoService,
}

/// What a server does.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(super) enum IoService {
    /// Sends back what it gets.
    Echo,
    /// The same, with a timeout on every read.
    EchoTimed,
    /// Sends a message back some time later: the message says when.
    Delayed,
    /// Has timers pending, and nothing else.
    Idle,
}

/// Nobody is silent for so long.
const TIMEOUT: Duration = Duration::from_secs(30);

impl IoService {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            IoService::Echo => "echo",
            IoService::EchoTimed => "echo-timed",
            IoService::Delayed => "delayed",
            IoService::Idle => "idle",
        }
    }

    /// How long a server that echoes waits for a message.
    pub(super) fn timeout(self) -> Option<Duration> {
        (self == IoService::EchoTimed).then_some(TIMEOUT)
    }
}

/// Serves until the standard input ends.
pub(crate) fn run_one(args: &IoServerArgs) {
    cores::take_the_servers();
    limits::raise();
    std::thread::spawn(answer_questions);
    if args.service == IoService::Idle {
        return idle::serve(&args.system);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a server can listen on loopback");
    listener.set_nonblocking(true).expect("a listener can be told not to block");
    println!("{}", listener.local_addr().expect("it has an address").port());
    systems::serve(&args.system, listener, args.service);
}

/// Answers what is asked on the standard input, until it ends.
fn answer_questions() {
    for _question in stdin().lock().lines().map_while(Result::ok) {
        let (p50, p99) = lateness::percentiles();
        println!("{p50} {p99}");
    }
    exit(0);
}

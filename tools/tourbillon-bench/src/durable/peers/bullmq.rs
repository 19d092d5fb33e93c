//! BullMQ (npm): a job queue on Redis. Its program is `tools/durable-peers/bullmq`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{DurableOptions, PeerCase, Setup, Stage};
use crate::report::BenchReport;

pub(super) const NAME: &str = "bullmq";

/// Measures a case on a Redis server of its own. As durable as our stores: `appendfsync always`. As shipped by Redis: no append-only file at all.
pub(super) fn measure(case: PeerCase, setup: Setup, options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../durable-peers/bullmq");
    if !folder.join("node_modules/bullmq").exists() {
        return eprintln!("{NAME} is left out: install it with `npm install` in tools/durable-peers/bullmq");
    }
    let directory = stage.directory().join(format!("redis-{}", setup.word()));
    let Some(server) = Redis::start(directory, setup) else {
        return eprintln!("{NAME} is left out: the program redis-server cannot be started");
    };
    let (arguments, case) = case.arguments(setup, &server.socket.display().to_string(), options);
    let mut command = Command::new("node");
    command.arg(folder.join("measure.mjs")).args(arguments);
    super::measure(NAME, command, &case, report);
}

/// A Redis server with a Unix socket and no port. It ends when this is dropped.
struct Redis {
    process: Child,
    socket: PathBuf,
    directory: PathBuf,
}

impl Redis {
    fn start(directory: PathBuf, setup: Setup) -> Option<Redis> {
        std::fs::create_dir_all(&directory).ok()?;
        let socket = directory.join("socket");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).arg("--dir").arg(&directory);
        if setup == Setup::Tuned {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let server = Redis { process, socket, directory };
        let begin = Instant::now();
        while !server.socket.exists() {
            if begin.elapsed() > Duration::from_secs(10) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ended = self.process.kill().and_then(|()| self.process.wait());
        let _kept = std::fs::remove_dir_all(&self.directory);
    }
}

//! The server that is measured, in a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tourbillon_server::{Server, ServerConfig};

/// What a process that serves is told.
#[derive(clap::Args)]
pub(crate) struct ServeProcessArgs {
    /// The directory of the store.
    #[arg(long)]
    store: PathBuf,
}

/// A server that runs until this is dropped.
pub(super) struct ServerProcess {
    child: Child,
    pub(super) address: SocketAddr,
}

impl ServerProcess {
    pub(super) fn start(store: &Path) -> Result<ServerProcess, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(["serve-of", "--store"])
            .arg(store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let address = line.trim().parse().map_err(|_| format!("the server said {line:?}"))?;
        Ok(ServerProcess { child, address })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

/// The server ends when its standard input does.
impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

/// Serves until the standard input ends.
pub(crate) fn serve_until_input_ends(args: &ServeProcessArgs) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be started");
    runtime.block_on(async {
        let mut config = ServerConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            store: args.store.to_string_lossy().into_owned(),
            ..ServerConfig::default()
        };
        config.webhooks.allow_private = true;
        let server = Server::bind(config).await.expect("the server starts");
        println!("{}", server.address().expect("the server has an address"));
        let input_ended = tokio::task::spawn_blocking(|| _ = std::io::stdin().read(&mut [0]));
        let _still_running = server.run(async { _ = input_ended.await }).await;
    });
}

//! `tourbillon serve`: durable timers as a service.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use tourbillon_server::{ServeError, Server, ServerConfig};

#[derive(Args)]
#[command(
    after_help = "Every option of the file is also an environment variable: `webhooks.timeout` is TOURBILLON_WEBHOOKS_TIMEOUT."
)]
pub(crate) struct ServeOptions {
    /// Options as a TOML file.
    #[arg(long, value_name = "FILE", env = "TOURBILLON_CONFIG")]
    config: Option<PathBuf>,
    /// Address to listen on; 127.0.0.1:7117 by default.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Directory of the embedded store, or `postgres://user:password@host/database` for many nodes; ./tourbillon-data by default.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Whether statements for PostgreSQL are prepared; `true` by default. A pooler in transaction mode that does not know them needs `false`.
    #[arg(long, value_name = "true|false")]
    prepared_statements: Option<bool>,
    /// Certificate chain for TLS, a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key for TLS, a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// File of the API keys that `tourbillon key` makes.
    #[arg(long, value_name = "FILE")]
    keys_file: Option<PathBuf>,
    /// Allows an address that other machines can reach without API keys.
    #[arg(long)]
    allow_unauthenticated: bool,
    /// Sets any option by its path, such as `--set webhooks.timeout=5s`.
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = assignment)]
    set: Vec<(String, Value)>,
}

fn assignment(text: &str) -> Result<(String, Value), String> {
    let (path, value) = text.split_once('=').ok_or("write PATH=VALUE, such as webhooks.timeout=5s")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((path.trim().to_owned(), value))
}

impl ServeOptions {
    /// Returns the options of the server: file, environment, command line.
    pub(crate) fn config(&self) -> Result<ServerConfig, String> {
        let file = match &self.config {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
                Some(text)
            }
            None => None,
        };
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| Value::from(path.to_string_lossy()));
        let given = [
            ("listen", self.listen.map(|address| Value::from(address.to_string()))),
            ("store", self.store.clone().map(Value::from)),
            ("prepared_statements", self.prepared_statements.map(Value::from)),
            ("tls_cert", path(&self.tls_cert)),
            ("tls_key", path(&self.tls_key)),
            ("keys_file", path(&self.keys_file)),
            ("allow_unauthenticated", self.allow_unauthenticated.then_some(Value::from(true))),
        ];
        let given = given.into_iter().filter_map(|(path, value)| Some((path.to_owned(), value?)));
        ServerConfig::layered(file.as_deref(), |name| std::env::var(name).ok(), given.chain(self.set.iter().cloned()))
            .map_err(|error| error.to_string())
    }
}

/// Runs the server until SIGTERM or Ctrl-C.
pub(crate) fn run(options: &ServeOptions) -> u8 {
    match options.config().and_then(|config| serve(config).map_err(|error| error.to_string())) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("tourbillon serve: {error}");
            1
        }
    }
}

fn serve(config: ServerConfig) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(ServeError::Runtime)?;
    runtime.block_on(async {
        let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
        let store = config.shown_store();
        let server = Server::bind(config).await?;
        let address = server.address().map_err(ServeError::Runtime)?;
        println!("Timers in {store}\nListening on {scheme}://{address}/ (dashboard), {scheme}://{address}/docs (API)");
        server.run(shutdown()).await
    })
}

/// Waits for SIGTERM or Ctrl-C.
async fn shutdown() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
        if let Ok(mut terminate) = terminate {
            tokio::select! {
                _ = interrupt => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _interrupted = interrupt.await;
}

//! `tourbillon key`: makes, lists and revokes API keys of the service, in a file or in the database of its nodes.

use clap::{Args, Subcommand};
use tourbillon_server::{Access, KeyStore, NewKey, key_store};

use crate::serve::ServeOptions;

#[derive(Args)]
pub(crate) struct KeyOptions {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Makes a key and prints it. It cannot be printed again.
    Create(CreateOptions),
    /// Lists the keys, without their secrets.
    List(ServeOptions),
    /// Ends a key: running servers refuse it within a second.
    Revoke(RevokeOptions),
}

#[derive(Args)]
struct CreateOptions {
    /// What the key is for.
    #[arg(long, value_name = "TEXT", default_value = "")]
    name: String,
    /// Namespace that the key allows, several times for several; all by default.
    #[arg(long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Allows to read only.
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    server: ServeOptions,
}

#[derive(Args)]
struct RevokeOptions {
    /// Id of the key, as `list` shows it.
    id: String,
    #[command(flatten)]
    server: ServeOptions,
}

/// Runs the command.
pub(crate) fn run(options: &KeyOptions) -> u8 {
    match act(&options.command) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("tourbillon key: {error}");
            1
        }
    }
}

fn act(command: &KeyCommand) -> Result<(), String> {
    let server = match command {
        KeyCommand::Create(options) => &options.server,
        KeyCommand::List(server) => server,
        KeyCommand::Revoke(options) => &options.server,
    };
    let config = server.config()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let keys = key_store(&config).map_err(|error| error.to_string())?;
        match command {
            KeyCommand::Create(options) => create(&*keys, options).await,
            KeyCommand::List(_) => list(&*keys).await,
            KeyCommand::Revoke(options) => revoke(&*keys, &options.id).await,
        }
    })
}

async fn create(keys: &dyn KeyStore, options: &CreateOptions) -> Result<(), String> {
    let new = NewKey {
        name: options.name.clone(),
        namespaces: (!options.namespaces.is_empty()).then(|| options.namespaces.clone()),
        read_only: options.read_only,
    };
    let key = keys.create(new).await.map_err(|error| error.to_string())?;
    println!("{key}");
    eprintln!("Keep it: only its hash is in {}.", keys.place());
    Ok(())
}

async fn list(keys: &dyn KeyStore) -> Result<(), String> {
    let found = keys.list().await.map_err(|error| error.to_string())?;
    if found.is_empty() {
        println!("There is no key in {}.", keys.place());
    }
    for key in found {
        let access = if key.access == Access::Read { "read" } else { "write" };
        let namespaces = key.namespaces.map_or_else(|| "all namespaces".to_owned(), |names| names.join(","));
        println!("{}  {access:5}  {namespaces}  {}  {}", key.id, key.created, key.name.escape_debug());
    }
    Ok(())
}

async fn revoke(keys: &dyn KeyStore, id: &str) -> Result<(), String> {
    if keys.revoke(id).await.map_err(|error| error.to_string())? {
        println!("Revoked {id}.");
        return Ok(());
    }
    Err(format!("there is no key {id} in {}", keys.place()))
}

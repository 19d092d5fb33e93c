//! `tourbillon key`: makes, lists and revokes API keys of the service.

use clap::{Args, Subcommand};
use tourbillon_server::{Access, KeyFile, NewKey};

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
    /// Ends a key: a running server refuses it within a second.
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
    match command {
        KeyCommand::Create(options) => create(options),
        KeyCommand::List(server) => list(&file(server)?),
        KeyCommand::Revoke(options) => {
            let file = file(&options.server)?;
            if file.revoke(&options.id).map_err(|error| error.to_string())? {
                println!("Revoked {}.", options.id);
                return Ok(());
            }
            Err(format!("there is no key {} in {}", options.id, file.path().display()))
        }
    }
}

fn create(options: &CreateOptions) -> Result<(), String> {
    let file = file(&options.server)?;
    let new = NewKey {
        name: options.name.clone(),
        namespaces: (!options.namespaces.is_empty()).then(|| options.namespaces.clone()),
        read_only: options.read_only,
    };
    let key = file.create(new).map_err(|error| error.to_string())?;
    println!("{key}");
    eprintln!("Keep it: only its hash is in {}.", file.path().display());
    Ok(())
}

fn list(file: &KeyFile) -> Result<(), String> {
    let keys = file.list().map_err(|error| error.to_string())?;
    if keys.is_empty() {
        println!("There is no key in {}.", file.path().display());
    }
    for key in keys {
        let access = if key.access == Access::Read { "read" } else { "write" };
        let namespaces = key.namespaces.map_or_else(|| "all namespaces".to_owned(), |names| names.join(","));
        println!("{}  {access:5}  {namespaces}  {}  {}", key.id, key.created, key.name.escape_debug());
    }
    Ok(())
}

fn file(options: &ServeOptions) -> Result<KeyFile, String> {
    Ok(KeyFile::of(&options.config()?))
}

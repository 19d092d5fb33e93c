//! The command line of `tourbillon timer`.

use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct TimerOptions {
    /// Address of the server.
    #[arg(long, global = true, value_name = "URL", env = "TOURBILLON_SERVER", default_value = "http://127.0.0.1:7117")]
    pub(super) server: String,
    /// API key.
    #[arg(long, global = true, value_name = "KEY", env = "TOURBILLON_API_KEY", hide_env_values = true)]
    pub(super) api_key: Option<String>,
    /// Prints JSON: one object, or one a line.
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: TimerCommand,
}

#[derive(Subcommand)]
pub(super) enum TimerCommand {
    /// Creates a timer.
    Create(CreateOptions),
    /// Cancels a timer by its id or key, or all timers of a name.
    Cancel(CancelOptions),
    /// Gives a pending timer another due time.
    Reschedule(RescheduleOptions),
    /// Lists timers that are pending, being delivered or dead.
    List(ListOptions),
    /// Shows a timer with its history.
    Get {
        /// Id of the timer.
        id: String,
    },
    /// Prints what happens to timers, as it happens.
    Watch(WatchOptions),
}

#[derive(Args)]
#[command(
    group = clap::ArgGroup::new("when").required(true).args(["after", "at", "every", "cron"]),
    group = clap::ArgGroup::new("deliver").required(true).args(["queue", "webhook"])
)]
pub(super) struct CreateOptions {
    /// Due once, after this time: 30s, 15m, 7d.
    #[arg(long, value_name = "TIME")]
    pub(super) after: Option<String>,
    /// Due once, at this time: 2026-11-18T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(super) at: Option<String>,
    /// Due again and again, with this interval.
    #[arg(long, value_name = "TIME")]
    pub(super) every: Option<String>,
    /// Due at the times of a cron line.
    #[arg(long, value_name = "LINE")]
    pub(super) cron: Option<String>,
    /// Time zone of the cron line; UTC by default.
    #[arg(long, requires = "cron")]
    pub(super) zone: Option<String>,
    /// Ends a repeating timer after so many occurrences.
    #[arg(long, value_name = "N")]
    pub(super) times: Option<u64>,
    /// Has workers pull it from this queue.
    #[arg(long)]
    pub(super) queue: Option<String>,
    /// Has the server call this address.
    #[arg(long, value_name = "URL")]
    pub(super) webhook: Option<String>,
    /// Key: at most one pending timer of the namespace has it.
    #[arg(long)]
    pub(super) key: Option<String>,
    /// Name: many timers can have it, and are cancelled by it together.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Namespace; `default` if it is not given.
    #[arg(long)]
    pub(super) namespace: Option<String>,
    /// Payload: JSON or other text, `@FILE`, or `-` for the standard input.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) payload: Option<String>,
    /// The most deliveries, the first included.
    #[arg(long, value_name = "N")]
    pub(super) attempts: Option<u32>,
    /// If another timer has the key: keep it, replace it, or keep the earlier or the later of both.
    #[arg(long, value_name = "MODE", value_parser = ["refuse", "keep", "replace", "earlier", "later"])]
    pub(super) on_conflict: Option<String>,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["id", "key", "name"]))]
pub(super) struct CancelOptions {
    /// Id of the timer.
    pub(super) id: Option<String>,
    /// Key of the timer.
    #[arg(long)]
    pub(super) key: Option<String>,
    /// Name of the timers.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Namespace of the key or the name.
    #[arg(long, default_value = "default")]
    pub(super) namespace: String,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["after", "at"]))]
pub(super) struct RescheduleOptions {
    /// Id of the timer.
    pub(super) id: String,
    /// Due after this time from now.
    #[arg(long, value_name = "TIME")]
    pub(super) after: Option<String>,
    /// Due at this time.
    #[arg(long, value_name = "TIME")]
    pub(super) at: Option<String>,
    /// Only if the timer still has this version.
    #[arg(long, value_name = "N")]
    pub(super) if_version: Option<u64>,
}

#[derive(Args)]
pub(super) struct ListOptions {
    /// Namespace; all that the key allows by default.
    #[arg(long)]
    pub(super) namespace: Option<String>,
    /// Key.
    #[arg(long)]
    pub(super) key: Option<String>,
    /// Name.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// What the key or the name begins with.
    #[arg(long)]
    pub(super) prefix: Option<String>,
    /// State.
    #[arg(long, value_parser = ["armed", "claimed", "dead"])]
    pub(super) state: Option<String>,
    /// Due at this time or later.
    #[arg(long, value_name = "TIME")]
    pub(super) due_after: Option<String>,
    /// Due before this time.
    #[arg(long, value_name = "TIME")]
    pub(super) due_before: Option<String>,
    /// The most timers.
    #[arg(long, value_name = "N", default_value = "50", value_parser = limit)]
    pub(super) limit: usize,
}

#[derive(Args)]
pub(super) struct WatchOptions {
    /// Only of this namespace.
    #[arg(long)]
    pub(super) namespace: Option<String>,
    /// Only of this timer.
    #[arg(long)]
    pub(super) id: Option<String>,
    /// Only of this key.
    #[arg(long)]
    pub(super) key: Option<String>,
    /// Only of this name.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Only these events, separated by commas: `fired,dead`.
    #[arg(long = "type", value_name = "EVENTS")]
    pub(super) types: Option<String>,
    /// Ends after so many events.
    #[arg(long, value_name = "N")]
    pub(super) count: Option<u64>,
}

fn limit(text: &str) -> Result<usize, String> {
    let limit: usize = text.parse().map_err(|_| "a limit is a whole number".to_owned())?;
    if limit > 0 { Ok(limit) } else { Err("a limit is at least 1".to_owned()) }
}

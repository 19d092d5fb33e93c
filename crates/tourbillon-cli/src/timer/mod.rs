//! `tourbillon timer`: creates, cancels, finds and watches the timers of a server.

mod args;
mod show;

use std::io::{Read, Write};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tourbillon_client::{Client, ClientError, EventFilter, ListFilter, NewTimer, Timer};

pub(crate) use self::args::TimerOptions;
use self::args::{CancelOptions, CreateOptions, ListOptions, RescheduleOptions, TimerCommand, WatchOptions};

/// How long to wait before a broken stream of events is begun again.
const RECONNECT: Duration = Duration::from_secs(2);

/// The most timers of one page.
const PAGE: usize = 500;

/// Runs the command. Returns the exit status: 1 if the server refused the request or cannot be reached.
pub(crate) fn run(options: &TimerOptions) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.to_string()),
    };
    match runtime.block_on(options.run()) {
        Ok(()) => 0,
        Err(why) => failed(&why),
    }
}

/// Prints a line. An error means that the reader is gone, `head` for example.
fn line(text: &str) -> Result<(), String> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("the output cannot be written: {error}"))
}

fn failed(why: &str) -> u8 {
    eprintln!("tourbillon timer: {why}");
    1
}

impl TimerOptions {
    async fn run(&self) -> Result<(), String> {
        let client = Client::new(&self.server).map_err(|error| error.to_string())?;
        let client = match &self.api_key {
            Some(key) => client.with_key(key),
            None => client,
        };
        match &self.command {
            TimerCommand::Create(create) => self.create(&client, create).await,
            TimerCommand::Cancel(cancel) => self.cancel(&client, cancel).await,
            TimerCommand::Reschedule(to) => self.reschedule(&client, to).await,
            TimerCommand::List(list) => self.list(&client, list).await,
            TimerCommand::Get { id } => {
                let timer = client.get(id).await.map_err(|error| self.explain(&error))?;
                self.print(&timer, || show::detail(&timer))
            }
            TimerCommand::Watch(watch) => self.watch(&client, watch).await,
        }
    }

    async fn create(&self, client: &Client, options: &CreateOptions) -> Result<(), String> {
        let created = client.create(&options.timer()?).await.map_err(|error| self.explain(&error))?;
        self.print(&created, || show::created(&created))
    }

    async fn cancel(&self, client: &Client, options: &CancelOptions) -> Result<(), String> {
        let namespace = &options.namespace;
        let counts = match (&options.id, &options.key, &options.name) {
            (Some(id), ..) => client.cancel(id).await,
            (None, Some(key), _) => client.cancel_key(namespace, key).await,
            (None, None, name) => client.cancel_name(namespace, name.as_deref().unwrap_or_default()).await,
        };
        let counts = counts.map_err(|error| self.explain(&error))?;
        self.print(&counts, || show::cancelled(counts))
    }

    async fn reschedule(&self, client: &Client, options: &RescheduleOptions) -> Result<(), String> {
        let mut when = match (&options.after, &options.at) {
            (Some(after), _) => json!({ "after": after }),
            (None, at) => json!({ "at": at }),
        };
        if let Some(version) = options.if_version {
            when["if_version"] = version.into();
        }
        let moved = client.reschedule(&options.id, &when).await.map_err(|error| self.explain(&error))?;
        self.print(&moved, || format!("Due at {}, version {}", moved.due, moved.version))
    }

    async fn list(&self, client: &Client, options: &ListOptions) -> Result<(), String> {
        let mut timers: Vec<Timer> = Vec::new();
        let mut filter = ListFilter {
            namespace: options.namespace.clone(),
            key: options.key.clone(),
            name: options.name.clone(),
            prefix: options.prefix.clone(),
            state: options.state.clone(),
            due_after: options.due_after.clone(),
            due_before: options.due_before.clone(),
            ..ListFilter::default()
        };
        loop {
            filter.limit = Some((options.limit - timers.len()).min(PAGE));
            let page = client.list(&filter).await.map_err(|error| self.explain(&error))?;
            timers.extend(page.timers);
            filter.cursor = page.next;
            if filter.cursor.is_none() || timers.len() >= options.limit {
                break;
            }
        }
        if self.json {
            timers.iter().try_for_each(|timer| line(&json!(timer).to_string()))?;
        } else {
            line(show::table(&timers, filter.cursor.is_some()).trim_end())?;
        }
        Ok(())
    }

    /// Prints events until the command is interrupted, or `--count` of them have come. A broken connection is made again.
    async fn watch(&self, client: &Client, options: &WatchOptions) -> Result<(), String> {
        let filter = EventFilter {
            namespace: options.namespace.clone(),
            id: options.id.clone(),
            key: options.key.clone(),
            name: options.name.clone(),
            types: options.types.clone(),
        };
        let mut last_seen: Option<String> = None;
        let mut has_listened = false;
        let mut left = options.count;
        loop {
            match client.events(&filter, last_seen.as_deref()).await {
                Ok(mut events) => {
                    has_listened = true;
                    while let Ok(Some(event)) = events.next().await {
                        last_seen = event.id.clone().or(last_seen);
                        match self.json {
                            true => line(&event.data.to_string())?,
                            false => line(&show::event(&event))?,
                        }
                        left = left.map(|left| left.saturating_sub(1));
                        if left == Some(0) {
                            return Ok(());
                        }
                    }
                }
                // At first a wrong address or key is an error, later the server may be away for a while.
                Err(error) if !has_listened || !error.is_transient() => return Err(self.explain(&error)),
                Err(_) => {}
            }
            tokio::time::sleep(RECONNECT).await;
        }
    }

    fn print(&self, answer: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), String> {
        match self.json {
            true => line(&json!(answer).to_string()),
            false => line(&text()),
        }
    }

    /// Says what to do about an error.
    fn explain(&self, error: &ClientError) -> String {
        match error {
            ClientError::Connection(_) => format!("{error}. Is `tourbillon serve` running at {}?", self.server),
            ClientError::Refused(problem) if problem.status == 401 => {
                format!("{error} (give it with --api-key or TOURBILLON_API_KEY)")
            }
            _ => error.to_string(),
        }
    }
}

impl CreateOptions {
    fn timer(&self) -> Result<NewTimer, String> {
        let timer = match (&self.after, &self.at, &self.every, &self.cron) {
            (Some(after), ..) => NewTimer::after(after),
            (_, Some(at), ..) => NewTimer::at(at),
            (.., Some(every), _) => NewTimer::every(every),
            (.., cron) => NewTimer::cron(cron.as_deref().unwrap_or_default()),
        };
        let timer = match (&self.queue, &self.webhook) {
            (Some(queue), _) => timer.queue(queue),
            (None, webhook) => timer.webhook(webhook.as_deref().unwrap_or_default()),
        };
        let texts = [
            ("key", &self.key),
            ("name", &self.name),
            ("namespace", &self.namespace),
            ("zone", &self.zone),
            ("on_conflict", &self.on_conflict),
        ];
        let given = texts.into_iter().filter_map(|(field, text)| Some((field, text.as_ref()?)));
        let timer = given.fold(timer, |timer, (field, text)| timer.set(field, text.clone()));
        let timer = self.times.into_iter().fold(timer, |timer, times| timer.set("times", times));
        let timer = self.attempts.into_iter().fold(timer, |timer, n| timer.set("retry", json!({ "attempts": n })));
        Ok(match &self.payload {
            Some(payload) => timer.payload(payload_of(payload)?),
            None => timer,
        })
    }
}

/// Returns the payload that an option names: `@FILE`, `-` for the standard input, or the text itself; JSON if it is JSON.
fn payload_of(option: &str) -> Result<Value, String> {
    let text = match option.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?,
        None if option == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| format!("standard input: {error}"))?;
            text
        }
        None => option.to_owned(),
    };
    Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u8_a_payload_is_json_or_text() {
        assert_eq!(payload_of("{\"a\":1}"), Ok(json!({ "a": 1 })));
        assert_eq!(payload_of("pour the tea"), Ok(json!("pour the tea")));
        assert!(payload_of("@/no/such/file").is_err_and(|error| error.contains("/no/such/file")));
    }
}

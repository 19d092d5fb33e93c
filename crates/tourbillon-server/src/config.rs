//! Options of the server: defaults, then a TOML file, then the environment, then the command line.
//!
//! Every option has one path, such as `webhooks.timeout`. In the file that is the key `timeout` of the table `[webhooks]`; in the environment
//! it is `TOURBILLON_WEBHOOKS_TIMEOUT`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tourbillon_durable::StoreError;
use tourbillon_durable::store::PostgresOptions;

use crate::durations::text;

/// The beginning of the names of environment variables.
const ENVIRONMENT: &str = "TOURBILLON_";

/// All options of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where the server listens.
    pub listen: SocketAddr,
    /// The directory of the embedded store, or the address of a PostgreSQL database: `postgres://user:password@host/database`.
    pub store: String,
    /// Whether statements for PostgreSQL are prepared once for a connection. With a pooler in transaction mode that does not know prepared
    /// statements this must be `false`.
    pub prepared_statements: bool,
    /// Whether nodes on PostgreSQL listen for hints of each other. With a pooler in transaction mode this should be `false`.
    pub hints: bool,
    /// How many bytes of the disk an embedded store keeps for cancels and deliveries: when less is free, creates are refused.
    pub disk_reserve: u64,
    /// The certificate chain for TLS, as a PEM file.
    pub tls_cert: Option<PathBuf>,
    /// The private key for TLS, as a PEM file.
    pub tls_key: Option<PathBuf>,
    /// The file of the API keys. By default `keys.json` in the directory of an embedded store; with a store in PostgreSQL the keys are in
    /// the database, unless this is given.
    pub keys_file: Option<PathBuf>,
    /// Whether an address that other machines can reach is allowed without API keys.
    pub allow_unauthenticated: bool,
    /// How long requests and deliveries may take after a shutdown has begun.
    #[serde(with = "text")]
    pub shutdown: Duration,
    /// Limits of requests.
    pub limits: RequestLimits,
    /// How webhooks are delivered.
    pub webhooks: WebhookConfig,
    /// Limits of every namespace that has none of its own.
    pub namespace_defaults: NamespaceLimits,
    /// Limits and secrets of namespaces.
    pub namespaces: BTreeMap<String, NamespaceLimits>,
}

/// Limits of requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestLimits {
    /// The most bytes of a request body.
    pub body: usize,
    /// The most bytes of a payload; 1 MiB at most.
    pub payload: usize,
    /// The most timers of a batch.
    pub batch: usize,
    /// The most timers of a page.
    pub page: usize,
    /// The most requests that are served at the same time; further ones are answered with 429.
    pub concurrent: usize,
    /// How many requests more may be served if they cancel, acknowledge or read the health: these make room.
    pub concurrent_reserve: usize,
    /// The most connections; further ones wait to be accepted.
    pub connections: usize,
    /// How long a client may take to send a request body.
    #[serde(with = "text")]
    pub body_time: Duration,
    /// How long a connection may be without a request.
    #[serde(with = "text")]
    pub idle: Duration,
    /// The longest wait of a pull.
    #[serde(with = "text")]
    pub longest_poll: Duration,
    /// The most timers of a pull.
    pub pull: usize,
}

/// How webhooks are delivered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookConfig {
    /// How long a host may take to answer, unless a timer says otherwise.
    #[serde(with = "text")]
    pub timeout: Duration,
    /// The most deliveries at the same time, those that wait for their host included.
    pub concurrency: usize,
    /// The most deliveries to one host at the same time.
    pub host_concurrency: usize,
    /// The most deliveries that begin for one host in a second; zero for no limit.
    pub host_rate: u32,
    /// How many failures in a row open the circuit of a host: deliveries to it then wait instead of being tried.
    pub breaker_failures: u32,
    /// How long the circuit of a host stays open before one delivery is tried.
    #[serde(with = "text")]
    pub breaker_pause: Duration,
    /// Whether loopback, private, link-local and other special addresses may be called.
    pub allow_private: bool,
    /// Hosts (`name` or `name:port`) that may be called whatever their address is.
    pub allow_hosts: Vec<String>,
    /// The secret that signs deliveries (`whsec_…`), unless the namespace or the timer has one.
    pub secret: Option<String>,
}

/// Limits of a namespace, so that one tenant cannot starve another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NamespaceLimits {
    /// The most pending timers.
    pub pending: Option<u64>,
    /// The most requests in a second.
    pub requests_per_second: Option<u32>,
    /// The most deliveries at the same time, by this process.
    pub deliveries: Option<usize>,
    /// The secret that signs its webhooks (`whsec_…`).
    pub webhook_secret: Option<String>,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7117)),
            store: "./tourbillon-data".to_owned(),
            prepared_statements: true,
            hints: true,
            disk_reserve: 256 << 20,
            tls_cert: None,
            tls_key: None,
            keys_file: None,
            allow_unauthenticated: false,
            shutdown: Duration::from_secs(20),
            limits: RequestLimits::default(),
            webhooks: WebhookConfig::default(),
            namespace_defaults: NamespaceLimits::default(),
            namespaces: BTreeMap::new(),
        }
    }
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            body: 8 << 20,
            payload: 64 << 10,
            batch: 1_000,
            page: 1_000,
            concurrent: 1_024,
            concurrent_reserve: 256,
            connections: 4_096,
            body_time: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            longest_poll: Duration::from_secs(60),
            pull: 1_000,
        }
    }
}

impl Default for WebhookConfig {
    fn default() -> WebhookConfig {
        WebhookConfig {
            timeout: Duration::from_secs(15),
            concurrency: 4_096,
            host_concurrency: 64,
            host_rate: 0,
            breaker_failures: 10,
            breaker_pause: Duration::from_secs(10),
            allow_private: false,
            allow_hosts: Vec::new(),
            secret: None,
        }
    }
}

/// Why the options cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadConfig(String);

impl BadConfig {
    pub(crate) fn new(text: impl Into<String>) -> BadConfig {
        BadConfig(text.into())
    }
}

impl fmt::Display for BadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadConfig {}

impl ServerConfig {
    /// Returns the options of a TOML text, changed by environment variables, and then by `overrides`: pairs of a path and a value.
    ///
    /// # Errors
    /// An option is unknown or has a value that it cannot have.
    pub fn layered(
        toml: Option<&str>,
        environment: impl Fn(&str) -> Option<String>,
        overrides: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<ServerConfig, BadConfig> {
        let defaults = to_value(&ServerConfig::default());
        let (mut value, mut names) = (defaults.clone(), Vec::new());
        leaf_paths(&defaults, "", &mut names);
        if let Some(text) = toml {
            let file: Value = toml::from_str(text).map_err(|error| BadConfig(error.to_string()))?;
            merge(&mut value, file);
            // The options of the file alone, so that an error is told of the file.
            parse(value.clone()).map_err(|error| BadConfig(format!("the options of the file are wrong: {error}")))?;
        }
        for path in &names {
            let name = variable(path);
            if let Some(text) = environment(&name) {
                let given = from_text(path, &text);
                // A text may look like a number.
                let given = if check(&defaults, path, &given).is_ok() { given } else { Value::String(text) };
                check(&defaults, path, &given).map_err(|error| BadConfig(format!("{name} is wrong: {error}")))?;
                set(&mut value, path, given);
            }
        }
        for (path, given) in overrides {
            check(&defaults, &path, &given).map_err(|error| BadConfig(format!("`{path}` is wrong: {error}")))?;
            set(&mut value, &path, given);
        }
        parse(value).map_err(|error| BadConfig(format!("the options are wrong: {error}")))
    }

    /// Returns the options as an operator would want to see them: without secrets.
    #[must_use]
    pub fn redacted(&self) -> ServerConfig {
        let mut shown = self.clone();
        let hide = |secret: &mut Option<String>| *secret = secret.as_ref().map(|_| "(hidden)".to_owned());
        hide(&mut shown.webhooks.secret);
        hide(&mut shown.namespace_defaults.webhook_secret);
        shown.namespaces.values_mut().for_each(|limits| hide(&mut limits.webhook_secret));
        shown.store = self.shown_store();
        shown
    }

    /// Returns the store's place without a password.
    #[must_use]
    pub fn shown_store(&self) -> String {
        match url::Url::parse(&self.store) {
            Ok(mut url) if url.password().is_some() => {
                let _cannot_have_one = url.set_password(Some("***"));
                url.into()
            }
            _ => self.store.clone(),
        }
    }

    /// Returns whether the store is a PostgreSQL database.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        // Also as libpq writes it: `host=/run/postgresql dbname=app`.
        ["postgres://", "postgresql://", "host="].iter().any(|scheme| self.store.starts_with(scheme))
    }

    /// Returns how the store in PostgreSQL is opened.
    ///
    /// # Errors
    /// [`StoreError::BadOptions`]: the address cannot be understood.
    pub(crate) fn postgres_options(&self) -> Result<PostgresOptions, StoreError> {
        let options = PostgresOptions::new(&self.store)?;
        Ok(options.prepared_statements(self.prepared_statements).hints(self.hints))
    }

    /// Returns the names of all environment variables that change options.
    #[must_use]
    pub fn variables() -> Vec<String> {
        let mut paths = Vec::new();
        leaf_paths(&to_value(&ServerConfig::default()), "", &mut paths);
        paths.iter().map(|path| variable(path)).collect()
    }

    /// Returns the limits of a namespace.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> &NamespaceLimits {
        self.namespaces.get(namespace).unwrap_or(&self.namespace_defaults)
    }
}

fn parse(value: Value) -> Result<ServerConfig, serde_json::Error> {
    serde_json::from_value(value)
}

/// Checks that an option can have a value.
fn check(defaults: &Value, path: &str, given: &Value) -> Result<(), serde_json::Error> {
    let mut changed = defaults.clone();
    set(&mut changed, path, given.clone());
    parse(changed).map(drop)
}

fn to_value(config: &ServerConfig) -> Value {
    serde_json::to_value(config).unwrap_or_default()
}

fn variable(path: &str) -> String {
    format!("{ENVIRONMENT}{}", path.replace('.', "_").to_uppercase())
}

/// Collects the paths of all options that are not tables of the user's names.
fn leaf_paths(value: &Value, path: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) if path != "namespaces" => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaf_paths(field, &path, into);
            }
        }
        Value::Object(_) => {}
        _ => into.push(path.to_owned()),
    }
}

/// Reads the text of a variable as a number, a boolean or a list where it is one, and as a text otherwise.
fn from_text(path: &str, text: &str) -> Value {
    if path.ends_with("allow_hosts") {
        return text.split(',').map(str::trim).filter(|host| !host.is_empty()).collect();
    }
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn set(value: &mut Value, path: &str, given: Value) {
    let mut place = value;
    for name in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { return };
        place = fields.entry(name).or_insert(Value::Null);
    }
    *place = given;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn o3_the_server_listens_on_loopback_unless_told_otherwise() {
        let config = ServerConfig::layered(None, none, []).unwrap();
        assert!(config.listen.ip().is_loopback() && !config.allow_unauthenticated && !config.is_postgres());
    }

    #[test]
    fn the_environment_overrides_the_file_and_the_command_line_overrides_both() {
        let file =
            "listen = '127.0.0.1:1'\n[webhooks]\ntimeout = '1s'\nhost_rate = 5\n[namespaces.shop]\npending = 10\n";
        let environment = |name: &str| match name {
            "TOURBILLON_LISTEN" => Some("127.0.0.1:2".to_owned()),
            "TOURBILLON_WEBHOOKS_ALLOW_PRIVATE" => Some("true".to_owned()),
            "TOURBILLON_WEBHOOKS_ALLOW_HOSTS" => Some("a.test, b.test:80".to_owned()),
            _ => None,
        };
        let flags = [("listen".to_owned(), Value::from("127.0.0.1:3"))];
        let config = ServerConfig::layered(Some(file), environment, flags).unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!((config.webhooks.timeout, config.webhooks.host_rate), (Duration::from_secs(1), 5));
        assert!(config.webhooks.allow_private);
        assert_eq!(config.webhooks.allow_hosts, ["a.test", "b.test:80"]);
        assert_eq!(config.namespace("shop").pending, Some(10));
        assert!(ServerConfig::variables().contains(&"TOURBILLON_LIMITS_BODY".to_owned()));
    }

    #[test]
    fn the_options_for_poolers_are_given_in_every_way_and_reach_the_store() {
        type Variable = (&'static str, &'static str);
        let shown = |file: &str, variables: &[Variable], flags: &[(&str, bool)]| {
            let environment =
                |asked: &str| variables.iter().find(|(name, _)| *name == asked).map(|(_, text)| (*text).to_owned());
            let flags = flags.iter().map(|(path, value)| ((*path).to_owned(), Value::from(*value)));
            let mut config = ServerConfig::layered(Some(file), environment, flags).unwrap();
            config.store = "postgres://db/app".to_owned();
            let options = format!("{:?}", config.postgres_options().unwrap());
            ["prepared_statements: true", "hints: true"].map(|option| options.contains(option))
        };
        assert_eq!(shown("", &[], &[]), [true, true]);
        assert_eq!(shown("prepared_statements = false", &[], &[]), [false, true]);
        assert_eq!(shown("hints = false", &[], &[]), [true, false]);
        assert_eq!(shown("", &[("TOURBILLON_PREPARED_STATEMENTS", "false")], &[]), [false, true]);
        assert_eq!(shown("", &[("TOURBILLON_HINTS", "false")], &[]), [true, false]);
        assert_eq!(shown("", &[], &[("prepared_statements", false), ("hints", false)]), [false, false]);
        let error = ServerConfig::layered(Some("prepared_statements = 'off'"), none, []).unwrap_err();
        assert!(error.to_string().contains("of the file"), "{error}");
    }

    #[test]
    fn an_unknown_option_is_an_error_that_names_it() {
        let error = ServerConfig::layered(Some("[webhooks]\ntime_limit = '1s'\n"), none, []).unwrap_err();
        assert!(error.to_string().contains("time_limit"), "{error}");
    }

    #[test]
    fn an_option_that_cannot_be_understood_is_named_with_the_place_where_it_was_given() {
        let wrong = |name: &'static str, text: &'static str| {
            let environment = move |asked: &str| (asked == name).then(|| text.to_owned());
            ServerConfig::layered(None, environment, []).map_err(|error| error.to_string())
        };
        assert!(wrong("TOURBILLON_LISTEN", "nowhere").unwrap_err().contains("TOURBILLON_LISTEN is wrong"));
        assert!(wrong("TOURBILLON_LIMITS_BODY", "large").unwrap_err().contains("TOURBILLON_LIMITS_BODY is wrong"));
        assert_eq!(wrong("TOURBILLON_STORE", "4711").unwrap().store, "4711", "a text may look like a number");
        let flag = [("webhooks.timeout".to_owned(), Value::from("soon"))];
        let error = ServerConfig::layered(None, none, flag).unwrap_err().to_string();
        assert!(error.contains("`webhooks.timeout` is wrong") && error.contains("soon"), "{error}");
        let error = ServerConfig::layered(Some("[limits]\nbody = 'large'\n"), none, []).unwrap_err().to_string();
        assert!(error.contains("of the file"), "{error}");
    }

    #[test]
    fn the_packaged_file_shows_every_option() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/config.toml");
        let packaged = std::fs::read_to_string(path).unwrap();
        assert!(ServerConfig::layered(Some(&packaged), none, []).is_ok());
        // Lines such as `#listen = ...` and `#[webhooks]`, but no sentences.
        let is_option = |line: &str| line.starts_with(|first: char| first == '[' || first.is_ascii_lowercase());
        let shown = packaged.lines().map(|line| line.strip_prefix('#').unwrap_or(line)).filter(|line| is_option(line));
        let shown = shown.collect::<Vec<_>>().join("\n");
        ServerConfig::layered(Some(&shown), none, []).unwrap();
        let (mut named, mut all) = (Vec::new(), Vec::new());
        leaf_paths(&toml::from_str(&shown).unwrap(), "", &mut named);
        leaf_paths(&to_value(&ServerConfig::default()), "", &mut all);
        let missing: Vec<_> = all.iter().filter(|path| !named.contains(path)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = ServerConfig { store: "postgres://me:hunter2@db/app".to_owned(), ..ServerConfig::default() };
        config.webhooks.secret = Some("whsec_c2VjcmV0".to_owned());
        let shown = format!("{:?}", config.redacted());
        assert!(!shown.contains("hunter2") && !shown.contains("c2VjcmV0"), "{shown}");
    }
}

//! The server: it opens the store, accepts connections and ends in an orderly way.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ServerConfig as TlsConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tourbillon::adapters::server::HttpServer;
use tourbillon_durable::spec::HIGHEST_PAYLOAD_LIMIT;
use tourbillon_durable::store::{EmbeddedStore, PostgresStore};
use tourbillon_durable::{StoreError, Timers, TimersError};

use crate::access::{KeyRing, key_store, private_file};
use crate::config::{BadConfig, ServerConfig};
use crate::deliver::Secret;
use crate::router::router;
use crate::state::AppState;

/// How long the server waits after it could not accept a connection, for example because there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    state: AppState,
}

/// Why a server could not be started, or did not end in an orderly way.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The options cannot be used.
    Config(BadConfig),
    /// The store or the timers failed.
    Timers(TimersError),
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The operating system refused threads or sockets.
    Runtime(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Config(error) => error.fmt(f),
            ServeError::Timers(error) => error.fmt(f),
            ServeError::Runtime(error) => error.fmt(f),
            ServeError::Listen(address, error) => {
                write!(f, "{address} cannot be listened on: {error}. Choose another with --listen")
            }
        }
    }
}

impl std::error::Error for ServeError {}

impl From<BadConfig> for ServeError {
    fn from(error: BadConfig) -> ServeError {
        ServeError::Config(error)
    }
}

impl From<TimersError> for ServeError {
    fn from(error: TimersError) -> ServeError {
        ServeError::Timers(error)
    }
}

impl From<StoreError> for ServeError {
    fn from(error: StoreError) -> ServeError {
        ServeError::Timers(TimersError::Store(error))
    }
}

impl Server {
    /// Opens the store, and listens.
    ///
    /// # Errors
    /// The options contradict each other, the store cannot be opened, or the address cannot be listened on.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn bind(config: ServerConfig) -> Result<Server, ServeError> {
        Server::listen(config, None).await
    }

    /// Listens, for timers that the caller has opened. `config.store` still says where API keys and the secret of webhooks are.
    ///
    /// # Errors
    /// The options contradict each other, or the address cannot be listened on.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn bind_with(config: ServerConfig, timers: Timers) -> Result<Server, ServeError> {
        Server::listen(config, Some(timers)).await
    }

    async fn listen(config: ServerConfig, timers: Option<Timers>) -> Result<Server, ServeError> {
        let tls = tls_acceptor(&config)?;
        let keys = open_keys(&config).await?;
        let listener =
            TcpListener::bind(config.listen).await.map_err(|error| ServeError::Listen(config.listen, error))?;
        let timers = match timers {
            Some(timers) => timers,
            None => open_timers(&config).await?,
        };
        let config = with_secret(config)?;
        let state = AppState::new(timers, config, keys)?;
        Ok(Server { listener, tls, state })
    }

    /// Returns the address that the server listens on.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns what requests share.
    #[must_use]
    pub fn state(&self) -> &AppState {
        &self.state
    }

    /// Serves requests until `shutdown` is ready. Then the server accepts no more connections, lets requests and deliveries end, and closes
    /// the store.
    ///
    /// # Errors
    /// Deliveries were still running at the limit, or the store failed.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Server { listener, tls, state } = self;
        let limits = &state.config().limits;
        let service = router(&state);
        let http = HttpServer::new().idle(limits.idle).head(limits.body_time);
        let places = Arc::new(Semaphore::new(limits.connections.max(1)));
        let (stop, stopping) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&listener, &places) => accepted,
            };
            let Ok((stream, place)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (service, tls, mut stopping) = (service.clone(), tls.clone(), stopping.clone());
            connections.spawn(async move {
                let _place = place;
                let stopped = tokio::task::unconstrained(async move { _ = stopping.changed().await });
                let _late = stream.set_nodelay(true);
                match tls {
                    None => http.serve_connection(TokioIo::new(stream), service, stopped).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                            http.serve_connection(TokioIo::new(stream), service, stopped).await;
                        }
                    }
                }
            });
        }
        drop(listener);
        stop.send_replace(());
        let limit = state.config().shutdown;
        let drained = async { while connections.join_next().await.is_some() {} };
        let _cut_off = tokio::time::timeout(limit / 2, drained).await;
        state.timers().shutdown(limit / 2).await?;
        Ok(())
    }
}

/// Accepts a connection when there is a place for one.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn open_timers(config: &ServerConfig) -> Result<Timers, ServeError> {
    let runtime = tokio::runtime::Handle::current();
    let spawn = runtime.clone();
    let builder =
        Timers::builder().payload_limit(HIGHEST_PAYLOAD_LIMIT).spawn_with(move |future| drop(spawn.spawn(future)));
    if config.is_postgres() {
        let store = PostgresStore::open(config.postgres_options()?).await?;
        return Ok(builder.build(store)?);
    }
    let (directory, reserve) = (config.store.clone(), config.disk_reserve);
    let open = move || EmbeddedStore::options().reserve(reserve).open(directory);
    let store = runtime.spawn_blocking(open).await.map_err(|_| TimersError::Ended)??;
    Ok(builder.build(store)?)
}

/// Reads the API keys. Refuses an address that others can reach, unless there are keys or the operator says that requests need none (O3).
async fn open_keys(config: &ServerConfig) -> Result<KeyRing, BadConfig> {
    let wrong = |error: &dyn fmt::Display| BadConfig::new(error.to_string());
    let store = key_store(config).map_err(|error| wrong(&error))?;
    let keys = KeyRing::open(store).await.map_err(|error| wrong(&error))?;
    if config.listen.ip().is_loopback() || keys.fresh().await.is_required() || config.allow_unauthenticated {
        return Ok(keys);
    }
    Err(BadConfig::new(format!(
        "{} can be reached by others, and there is no API key in {}. Make one with `tourbillon key create`, or allow everybody with \
         --allow-unauthenticated",
        config.listen,
        keys.place()
    )))
}

/// Gives the configuration a secret for webhooks: for a store in a directory one that is made once and kept there.
fn with_secret(mut config: ServerConfig) -> Result<ServerConfig, BadConfig> {
    if config.webhooks.secret.is_some() {
        return Ok(config);
    }
    if config.is_postgres() {
        eprintln!(
            "tourbillon: webhooks are not signed, because there is no `webhooks.secret`; all nodes need the same one"
        );
        return Ok(config);
    }
    let path = Path::new(&config.store).join("webhook-secret");
    let wrong = |error: &dyn fmt::Display| BadConfig::new(format!("{}: {error}", path.display()));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = Secret::generate().reveal();
            let mut file = private_file(&path).map_err(|error| wrong(&error))?;
            io::Write::write_all(&mut file, text.as_bytes()).map_err(|error| wrong(&error))?;
            text
        }
        Err(error) => return Err(wrong(&error)),
    };
    Secret::parse(&text).map_err(|error| wrong(&error))?;
    config.webhooks.secret = Some(text);
    Ok(config)
}

fn tls_acceptor(config: &ServerConfig) -> Result<Option<TlsAcceptor>, BadConfig> {
    let (Some(cert), Some(key)) = (&config.tls_cert, &config.tls_key) else {
        return match (&config.tls_cert, &config.tls_key) {
            (None, None) => Ok(None),
            _ => Err(BadConfig::new("TLS needs both a certificate and its key: give --tls-cert and --tls-key")),
        };
    };
    let wrong = |path: &Path, error: &dyn fmt::Display| BadConfig::new(format!("{}: {error}", path.display()));
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).map_err(|error| wrong(cert, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = TlsConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| wrong(cert, &error))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(tls))))
}

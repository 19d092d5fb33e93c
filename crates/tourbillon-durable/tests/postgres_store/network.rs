//! A network that loses connections without a word, and processes that stop inside of a heartbeat.

use std::sync::atomic::AtomicU64;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tourbillon_durable::store::PostgresStore;

use super::*;

const PATIENCE: Duration = Duration::from_secs(120);

/// What stands between a store and its server.
struct Proxy {
    options: PostgresOptions,
    /// How many connections were made, and how many of these, the first ones, pass nothing on from the server any more.
    made: Arc<AtomicU64>,
    silent: Arc<AtomicU64>,
}

impl Proxy {
    fn before(schema: &Schema) -> Proxy {
        let server: Config = schema.url.parse().unwrap();
        let listener = wait(TcpListener::bind("127.0.0.1:0")).unwrap();
        let mut url = format!("host=127.0.0.1 port={}", listener.local_addr().unwrap().port());
        url += &format!(" user={}", server.get_user().unwrap());
        url += &server.get_dbname().map(|name| format!(" dbname={name}")).unwrap_or_default();
        if let Some(password) = server.get_password() {
            url += &format!(" password='{}'", String::from_utf8_lossy(password));
        }
        let options = PostgresOptions::new(&url).unwrap().schema(&schema.name).unwrap().hints(false);
        let proxy = Proxy { options, made: Arc::default(), silent: Arc::default() };
        let (made, silent) = (Arc::clone(&proxy.made), Arc::clone(&proxy.silent));
        postgres::runtime().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = made.fetch_add(1, Ordering::SeqCst);
                let silent = Arc::clone(&silent);
                let port = server.get_ports().first().copied().unwrap_or(5432);
                match &server.get_hosts()[0] {
                    Host::Tcp(host) => {
                        let server = TcpStream::connect((host.as_str(), port)).await.unwrap();
                        tokio::spawn(pass(client, server, number, silent));
                    }
                    Host::Unix(directory) => {
                        let server = UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await.unwrap();
                        tokio::spawn(pass(client, server, number, silent));
                    }
                }
            }
        });
        proxy
    }

    /// From now on nothing of the server comes through the connections that there are; new ones work.
    fn silence(&self) {
        self.silent.store(self.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

/// Passes data on in both directions. A connection that is silent stays open.
async fn pass(client: TcpStream, server: impl AsyncRead + AsyncWrite, number: u64, silent: Arc<AtomicU64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let there = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            if to_server.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };
    let back = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if silent.load(Ordering::SeqCst) > number {
                std::future::pending::<()>().await;
            }
            if to_client.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };
    futures_lite::future::or(there, back).await;
}

#[test]
fn q7_a_process_that_stops_inside_of_a_heartbeat_keeps_no_other_from_its_lease() {
    let Some(schema) = Schema::new() else { return };
    let other = schema.store();
    let proxy = Proxy::before(&schema);
    let hanging = wait(PostgresStore::open(proxy.options.clone())).unwrap();
    let lease = SECOND * 3600;
    let owned = beat(&other, 2, lease).unwrap();
    // On both connections that it has for leases, so that all statements are prepared there.
    (0..4).for_each(|_| assert_eq!(beat(&hanging, 1, SECOND * 20).unwrap().shards, []));
    // Its statements reach the server, and their answers do not reach it: so it never commits.
    proxy.silence();
    thread::scope(|scope| {
        scope.spawn(|| beat(&hanging, 1, SECOND * 20));
        let admin = schema.client();
        let hangs =
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%is_paused%'
            AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)";
        let (begin, mut has_hung) = (Instant::now(), false);
        while !has_hung && begin.elapsed() < SECOND {
            has_hung = wait(admin.query_one(hangs, &[])).unwrap().get::<_, i64>(0) > 0;
        }
        // A heartbeat waits for the lock for up to five seconds, and the server ends the other one after one.
        let kept = beat(&other, 2, lease).expect("the lock is given back in time");
        assert_eq!(kept.shards.iter().collect::<std::collections::BTreeSet<_>>(), owned.shards.iter().collect());
    });
}

#[test]
fn q1_d47_after_a_silent_loss_of_all_connections_new_ones_are_used_before_the_lease_is_over() {
    let Some(schema) = Schema::new() else { return };
    let proxy = Proxy::before(&schema);
    // Without other limits every request on a dead connection would take this long.
    let store = wait(PostgresStore::open(proxy.options.clone().request_timeout(PATIENCE * 5))).unwrap();
    let lease = SECOND * 6;
    let owned = beat(&store, 1, lease).unwrap();
    assert_eq!(due(&store, "mail", StoreTime::MAX, 10).entries, []);
    proxy.silence();
    let start = Instant::now();
    let again = loop {
        match beat(&store, 1, lease) {
            Ok(owned) => break owned,
            Err(error) => assert!(error.is_temporary() && start.elapsed() < PATIENCE, "{error}"),
        }
    };
    assert_eq!(again.shards.len(), owned.shards.len());
    assert_eq!(due(&store, "mail", StoreTime::MAX, 10).entries, []);
    assert!(start.elapsed() < PATIENCE, "no connection that was there before is used: {:?}", start.elapsed());
}

//! A store of sessions that expire when they have not been used for a while, for any number of threads.
//!
//! It uses an `ExpiringMap`, which the threads share as it is. Each request of a user puts a deadline off, in the same step in which it reads
//! the session, so no session can expire while it is being used.
//!
//!     cargo run -p tourbillon --example session_store

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use tourbillon::expiring_map::{Expirations, ExpiringMap};
use tourbillon::time::{Instant, timeout};
use tourbillon::{ArmError, Outcome, Timer};

const MS: Duration = Duration::from_millis(1);

/// A session expires this long after it was last used.
const KEPT: Duration = Duration::from_millis(400);

/// Clients choose when they log in, so there is a limit.
const MOST: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct SessionId(u64);

#[derive(Clone, Debug)]
struct Session {
    user: String,
    began: Instant,
}

struct Store {
    sessions: ExpiringMap<SessionId, Session>,
    logged_in: AtomicU64,
}

impl Store {
    /// Creates a store, and the stream of sessions that expire. A server reads it in a loop, in a task or on a thread.
    fn new() -> (Store, Expirations<SessionId, Session>) {
        let (sessions, expired) = ExpiringMap::builder().capacity(MOST).build_with_expirations();
        (Store { sessions, logged_in: AtomicU64::new(0) }, expired)
    }

    fn log_in(&self, user: &str) -> Result<SessionId, ArmError> {
        let id = SessionId(self.logged_in.fetch_add(1, Ordering::Relaxed));
        self.sessions.insert(id, Session { user: user.to_owned(), began: Instant::now() }, KEPT)?;
        Ok(id)
    }

    /// Renews a session and returns its user; `None` if it has expired or was logged out.
    fn touch(&self, id: SessionId) -> Option<String> {
        self.sessions.get_and_renew(&id, KEPT).map(|session| session.user)
    }

    fn log_out(&self, id: SessionId) -> bool {
        self.sessions.remove(&id).is_some()
    }
}

fn main() {
    let (store, mut expired) = Store::new();
    let start = Instant::now();
    let crowd = 1000;
    thread::scope(|scope| {
        scope.spawn(|| {
            let alice = store.log_in("alice").expect("there is room");
            for _ in 0..10 {
                // A thread without an executor waits like this.
                assert_eq!(Timer::after(50 * MS).wait_blocking(), Outcome::Fired);
                assert_eq!(store.touch(alice).as_deref(), Some("alice"), "her session lives as long as she uses it");
            }
            println!("alice falls silent after {:?}", start.elapsed());
        });
        scope.spawn(|| {
            let bob = store.log_in("bob").expect("there is room");
            assert!(store.log_out(bob));
            assert_eq!(store.touch(bob), None);
            assert!(!store.log_out(bob));
        });
        scope.spawn(|| (0..crowd).for_each(|user| _ = store.log_in(&format!("user {user}")).expect("there is room")));

        let mut users = Vec::new();
        let all = async {
            while users.len() < crowd + 1 {
                let (_, session) = expired.next().await.expect("the store is there");
                assert!(session.began.elapsed() >= KEPT, "never early");
                users.push(session.user);
            }
        };
        // So that an error makes this example fail, not hang.
        block_on(timeout(10_000 * MS, all)).expect("all of them expire");
        println!("{} sessions have expired, {} last, after {:?}", users.len(), users[crowd], start.elapsed());
        assert_eq!(users[crowd], "alice");
        assert!(!users.iter().any(|user| user == "bob"), "he was logged out");
    });
    assert!(store.sessions.is_empty());
}

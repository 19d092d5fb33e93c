//! A store of sessions that expire when they have not been used for a while, for any number of threads.
//!
//! It uses a `DelayQueue`. Each request of a user moves a deadline later, which a `DelayQueue` does fast. Sessions and deadlines are
//! behind one lock, the store's own, so that no session can expire while it is being used. (With a timer and a callback for each
//! session, a callback that has already fired could remove a session that was touched just now.)
//!
//!     cargo run -p tourbillon --example session_store

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use tourbillon::delay_queue::{DelayQueue, Key};
use tourbillon::time::{Instant, timeout};

const MS: Duration = Duration::from_millis(1);

/// A session expires this long after it was last used.
const KEPT: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct SessionId(u64);

struct Session {
    user: String,
    last_used: Instant,
    expiry: Key,
}

struct Store {
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    by_id: HashMap<SessionId, Session>,
    expiries: DelayQueue<SessionId>,
    logged_in: u64,
}

impl Store {
    fn new() -> Store {
        Store { sessions: Mutex::default() }
    }

    fn log_in(&self, user: &str) -> SessionId {
        let sessions = &mut *self.lock();
        sessions.logged_in += 1;
        let id = SessionId(sessions.logged_in);
        let last_used = Instant::now();
        let expiry = sessions.expiries.insert(id, KEPT);
        sessions.by_id.insert(id, Session { user: user.to_owned(), last_used, expiry });
        id
    }

    /// Renews a session and returns its user; `None` if it has expired or was logged out.
    fn touch(&self, id: SessionId) -> Option<String> {
        let sessions = &mut *self.lock();
        let session = sessions.by_id.get_mut(&id)?;
        session.last_used = Instant::now();
        sessions.expiries.reset(&session.expiry, KEPT);
        Some(session.user.clone())
    }

    fn log_out(&self, id: SessionId) -> bool {
        let sessions = &mut *self.lock();
        let Some(session) = sessions.by_id.remove(&id) else { return false };
        sessions.expiries.remove(&session.expiry);
        true
    }

    /// Waits for the next session that expires, removes it and returns it. A server calls this in a loop, in a task or on a thread.
    async fn expired(&self) -> Session {
        poll_fn(|context| {
            let sessions = &mut *self.lock();
            match sessions.expiries.poll_expired(context) {
                Poll::Ready(Some(id)) => {
                    let session = sessions.by_id.remove(id.get_ref());
                    Poll::Ready(session.expect("a session and its deadline come and go together"))
                }
                // No session has expired. The queue wakes the task when one does.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap()
    }
}

fn main() {
    let store = Store::new();
    let start = Instant::now();
    let crowd = 1000;
    thread::scope(|scope| {
        scope.spawn(|| {
            let alice = store.log_in("alice");
            for _ in 0..10 {
                thread::sleep(50 * MS);
                assert_eq!(store.touch(alice).as_deref(), Some("alice"), "her session lives as long as she uses it");
            }
            println!("alice falls silent after {:?}", start.elapsed());
        });
        scope.spawn(|| {
            let bob = store.log_in("bob");
            assert!(store.log_out(bob));
            assert_eq!(store.touch(bob), None);
            assert!(!store.log_out(bob));
        });
        scope.spawn(|| (0..crowd).for_each(|user| _ = store.log_in(&format!("user {user}"))));

        let mut expired = Vec::new();
        let all = async {
            while expired.len() < crowd + 1 {
                let session = store.expired().await;
                assert!(session.last_used.elapsed() >= KEPT, "never early");
                expired.push(session.user);
            }
        };
        // So that an error makes this example fail, not hang.
        block_on(timeout(10_000 * MS, all)).expect("all of them expire");
        println!("{} sessions have expired, {} last, after {:?}", expired.len(), expired[crowd], start.elapsed());
        assert_eq!(expired[crowd], "alice");
        assert!(!expired.iter().any(|user| user == "bob"), "he was logged out");
    });
    assert_eq!(store.len(), 0);
}

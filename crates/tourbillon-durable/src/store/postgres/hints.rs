//! Hints: a store that arms a timer that is due soon tells the others by `NOTIFY`.
//!
//! A hint is sent only if this store's own node does not deliver the timer, as far as it knows: it owns the shard and has a handler for the kind. It
//! is sent after the commit, in a transaction of its own, at most one each 20 ms for all that was armed since the last: a transaction with `NOTIFY` keeps
//! all others of the server with `NOTIFY` from their commits, until its own is on the disk.
//! Hints can be lost, and nothing depends on them: owners look at the near window again and again. They save the time until the next look. While the
//! connection for hints is not there, the listener itself asks for looks, as often as there are without hints.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Config, Error, Socket};
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::time::StoreTime;

/// Timers that are due within this time are worth a hint. The SQL function `create_timer` has the same limit.
pub(super) const SOON: Duration = Duration::from_secs(2);

/// How often a connection that is lost is tried again, and how often the near window is looked at meanwhile: as often as without hints.
const PAUSE: Duration = super::RESCAN;

/// How long a store waits after a hint before it sends the next one.
const SPACING: Duration = Duration::from_millis(20);

/// The hint that is to be sent next.
#[derive(Default)]
pub(super) struct PendingHint {
    /// The earliest time of what was armed since the last hint.
    wake: Mutex<Option<StoreTime>>,
    is_set: Notify,
}

impl PendingHint {
    /// Has a hint sent soon.
    pub(super) fn set(&self, wake: StoreTime) {
        let mut pending = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        *pending = Some(pending.map_or(wake, |earliest| earliest.min(wake)));
        self.is_set.notify_one();
    }

    fn take(&self) -> Option<StoreTime> {
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Sends hints until the store is closed.
pub(super) async fn send(hint: Arc<PendingHint>, store: Weak<Shared>, closed: CancellationToken) {
    while closed.run_until_cancelled(hint.is_set.notified()).await.is_some() {
        let Some(store) = store.upgrade() else { return };
        if let Some(wake) = hint.take() {
            let wake = wake.as_micros().to_string();
            // A hint that is lost costs the time until the next look.
            let _lost = store.in_time(store.pools.tell(&store.sql.notify, &[&wake])).await;
        }
        drop(store);
        tokio::time::sleep(SPACING).await;
    }
}

/// Called with the earliest due time of a hint; with [`StoreTime::ZERO`] if it is not known.
pub(super) type OnHint = Arc<dyn Fn(StoreTime) + Send + Sync>;

/// Listens until it is dropped.
pub(super) type Listener = Box<dyn Fn(OnHint) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Returns a function that listens on a channel, with a connection of its own.
pub(super) fn listener<T>(server: Config, tls: T, channel: &str) -> Listener
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + Sync + 'static,
    T::TlsConnect: Send + Sync,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let channel = channel.to_owned();
    Box::new(move |on_hint| {
        let (server, tls, channel) = (server.clone(), tls.clone(), channel.clone());
        Box::pin(async move {
            loop {
                let is_heard = AtomicBool::new(false);
                let mut listening = pin!(listen_once(&server, tls.clone(), &channel, &on_hint, &is_heard));
                // Hints are lost until the server knows that somebody listens.
                let mut is_lost = false;
                while !is_lost && !is_heard.load(Ordering::Relaxed) {
                    is_lost = tokio::time::timeout(PAUSE, &mut listening).await.is_ok();
                    if !is_heard.load(Ordering::Relaxed) {
                        on_hint(StoreTime::ZERO);
                    }
                }
                // The connection is lost, or could not be made: both mean to try again.
                if !is_lost {
                    let _lost = listening.await;
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
    })
}

/// Listens until the connection is lost.
async fn listen_once<T>(
    server: &Config,
    tls: T,
    channel: &str,
    on_hint: &OnHint,
    is_heard: &AtomicBool,
) -> Result<(), Error>
where
    T: MakeTlsConnect<Socket>,
{
    let (client, mut connection) = server.connect(tls).await?;
    let listen = format!("LISTEN \"{channel}\"");
    let mut is_listening = Box::pin(client.batch_execute(&listen));
    let mut is_ready = false;
    loop {
        let message = poll_fn(|context| {
            if !is_ready && let std::task::Poll::Ready(result) = is_listening.as_mut().poll(context) {
                is_ready = true;
                is_heard.store(result.is_ok(), Ordering::Relaxed);
                // Hints before this moment were lost.
                on_hint(StoreTime::ZERO);
                if let Err(error) = result {
                    return std::task::Poll::Ready(Some(Err(error)));
                }
            }
            connection.poll_message(context)
        })
        .await;
        match message {
            Some(Ok(AsyncMessage::Notification(hint))) => {
                on_hint(hint.payload().parse().map_or(StoreTime::ZERO, StoreTime::from_micros));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error),
            None => return Ok(()),
        }
    }
}

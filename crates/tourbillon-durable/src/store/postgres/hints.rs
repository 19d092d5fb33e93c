//! Hints: a store that arms a timer that is due soon tells the others by `NOTIFY`.
//!
//! A hint is sent at most once for a transaction, and only if this store's own node does not deliver the timer, as far as it
//! knows: it owns the shard and has a handler for the kind.
//! Hints can be lost, and nothing depends on them: owners look at the near window again and again. They save the time until the next look. While the
//! connection for hints is not there, the listener itself asks for looks, as often as there are without hints.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Config, Error, Socket};

use crate::time::StoreTime;

/// Timers that are due within this time are worth a hint. The SQL function `create_timer` has the same limit.
pub(super) const SOON: Duration = Duration::from_secs(2);

/// How often a connection that is lost is tried again, and how often the near window is looked at meanwhile: as often as without hints.
const PAUSE: Duration = super::RESCAN;

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

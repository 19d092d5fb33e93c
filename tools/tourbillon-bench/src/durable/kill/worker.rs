//! A process that will be killed: clients create, cancel and reschedule timers, and a handler is called, until the end.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tourbillon_durable::spec::FirstDue;
use tourbillon_durable::store::{ListFilter, Target};
use tourbillon_durable::{NewTimer, Timers, TimersBuilder, TimersError};
use tourbillon_tools::Random;

use super::event::Event;
use crate::durable::load::KIND;
use crate::durable::place::{Place, fail, runtime};

/// Arguments of the process.
#[derive(clap::Args)]
pub(crate) struct DurableKillArgs {
    #[arg(value_enum)]
    task: ProcessTask,
    #[arg(value_parser = Place::from_argument)]
    place: Place,
    /// Timers whose number has this remainder are its own, of earlier processes too.
    slot: u64,
    slots: u64,
    /// The number of the process.
    life: u64,
    seed: u64,
}

/// What the process does.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProcessTask {
    /// Its clients change timers, and its handler is called.
    Work,
    /// Its handler is called.
    Handle,
}

/// Clients of a process that works.
const CLIENTS: u64 = 8;

/// Timers of earlier processes that a process takes over.
const ADOPTED: usize = 200;

/// How long a node that was killed keeps its shards and its deliveries.
pub(in crate::durable) const LEASE: Duration = Duration::from_secs(1);

/// Returns how the timers of all processes are opened.
pub(super) fn builder() -> TimersBuilder {
    Timers::builder().node_lease(LEASE).delivery_lease(LEASE)
}

/// Works until the process is killed.
pub(crate) fn run_killed(arguments: &DurableKillArgs) {
    let begin = Instant::now();
    let timers = arguments.place.open(builder());
    report(Event::Open { micros: begin.elapsed().as_micros() as u64 });
    handle(&timers, report);
    match arguments.task {
        ProcessTask::Work => work(&timers, arguments),
        ProcessTask::Handle => loop {
            std::thread::park();
        },
    }
}

/// Runs the clients, which do not end.
fn work(timers: &Timers, arguments: &DurableKillArgs) {
    let adopted = Arc::new(Mutex::new(runtime().block_on(adopt(timers, arguments))));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let number = arguments.life * CLIENTS + client;
            let random = Random::new(arguments.seed.wrapping_add(number));
            // No other client of any process has these numbers.
            let next = (number << 24) * arguments.slots + arguments.slot;
            let adopted = Arc::clone(&adopted);
            let step = arguments.slots;
            let client = Client { timers: timers.clone(), random, live: Vec::new(), next, step, adopted };
            runtime().spawn(client.work())
        })
        .collect();
    for client in clients {
        let _ended = runtime().block_on(client);
    }
}

/// Registers the handler that reports each call.
pub(super) fn handle(timers: &Timers, report: impl Fn(Event) + Clone + Send + Sync + 'static) {
    let registered = timers.on(KIND, move |delivery| {
        let key = delivery.key().and_then(|key| key.parse().ok()).unwrap_or_default();
        let late = SystemTime::now().duration_since(delivery.due());
        if late.is_err() {
            report(Event::Early { key });
        }
        let late = late.unwrap_or_default().as_micros() as u64;
        report(Event::Fired { key, attempt: u64::from(delivery.attempt()), late });
        async {}
    });
    registered.unwrap_or_else(|error| fail(&error.to_string()));
}

/// Writes a line with one system call, and ends the process if nobody reads it.
fn report(event: Event) {
    let line = format!("{event}\n");
    let mut out = std::io::stdout().lock();
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        // The driver is gone.
        std::process::exit(1);
    }
}

/// Returns some timers of earlier processes, which this one may cancel and move.
async fn adopt(timers: &Timers, arguments: &DurableKillArgs) -> Vec<u64> {
    let page = timers.list(ListFilter::default(), None, ADOPTED * arguments.slots as usize).await;
    let rows = page.map(|page| page.rows).unwrap_or_default();
    let keys = rows.into_iter().filter_map(|row| row.spec.key.as_ref()?.parse::<u64>().ok());
    keys.filter(|key| key % arguments.slots == arguments.slot).collect()
}

struct Client {
    timers: Timers,
    random: Random,
    live: Vec<u64>,
    /// The number of the next timer, and the distance to the one after it.
    next: u64,
    step: u64,
    adopted: Arc<Mutex<Vec<u64>>>,
}

impl Client {
    async fn work(mut self) {
        loop {
            let choice = self.random.below(10);
            let done = match choice {
                0..5 => self.create().await,
                5..8 => self.cancel().await,
                _ => self.reschedule().await,
            };
            if let Err(error) = done {
                // Not an error of the store that a kill explains.
                fail(&error.to_string());
            }
        }
    }

    async fn create(&mut self) -> Result<(), TimersError> {
        let key = self.next;
        self.next += self.step;
        let at = self.due();
        report(Event::Creating { key, due: micros(at) });
        let size = self.random.index(600);
        let timer = NewTimer::at(KIND, at).key(key.to_string()).name(format!("{}", key % 7)).payload(vec![7; size]);
        self.timers.create(timer).await?;
        report(Event::Created { key });
        self.live.push(key);
        Ok(())
    }

    async fn cancel(&mut self) -> Result<(), TimersError> {
        let Some(key) = self.take() else { return Ok(()) };
        report(Event::Cancelling { key });
        let counts = self.timers.cancel(key.to_string()).await?;
        report(Event::Cancelled { key, cancelled: counts.cancelled, in_flight: counts.in_flight });
        Ok(())
    }

    async fn reschedule(&mut self) -> Result<(), TimersError> {
        let Some(key) = self.take() else { return Ok(()) };
        let at = self.due();
        report(Event::Moving { key, due: micros(at) });
        let target = Target::Key { namespace: "default".to_owned(), key: key.to_string() };
        let when = FirstDue::At(tourbillon_durable::StoreTime::from_micros(micros(at)));
        match self.timers.reschedule(target, when, None).await {
            Ok(_) => report(Event::Moved { key }),
            Err(TimersError::InFlight | TimersError::NotFound) => {
                report(Event::NotMoved { key });
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.live.push(key);
        Ok(())
    }

    /// Takes a timer of its own, or one of an earlier process.
    fn take(&mut self) -> Option<u64> {
        if self.live.is_empty() || self.random.one_in(8) {
            let mut adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(key) = adopted.pop() {
                return Some(key);
            }
        }
        let count = self.live.len();
        (count > 0).then(|| self.live.swap_remove(self.random.index(count)))
    }

    /// Returns a due time: soon for most timers, in an hour for the others. Whole microseconds, as stores have them.
    fn due(&mut self) -> SystemTime {
        let delay = if self.random.below(10) < 6 { 20 + self.random.below(500) } else { 3_600_000 };
        SystemTime::UNIX_EPOCH + Duration::from_micros(micros(SystemTime::now()) + delay * 1_000)
    }
}

/// Returns the microseconds since 1970.
fn micros(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

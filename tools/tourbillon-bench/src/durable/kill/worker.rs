//! A process that will be killed: its clients work, and a handler is called, until the end.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tourbillon_durable::{Timers, TimersBuilder};
use tourbillon_tools::Random;

use super::client::{Adopted, Client, micros};
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
    /// Its handler is called, and its leases are those of a process that sets none.
    HandleByDefault,
}

/// Clients of a process that works.
const CLIENTS: u64 = 8;

/// How long a node that was killed keeps its shards and its deliveries.
pub(in crate::durable) const LEASE: Duration = Duration::from_secs(1);

/// The lease of a node that sets none.
pub(in crate::durable) const DEFAULT_LEASE: Duration = Duration::from_secs(10);

/// Returns how the timers of all processes are opened.
pub(super) fn builder() -> TimersBuilder {
    Timers::builder().node_lease(LEASE).delivery_lease(LEASE)
}

/// Works until the process is killed.
pub(crate) fn run_killed(arguments: &DurableKillArgs) {
    let begin = Instant::now();
    let builder = if arguments.task == ProcessTask::HandleByDefault { Timers::builder() } else { builder() };
    let timers = arguments.place.open(builder);
    report(Event::Open { micros: begin.elapsed().as_micros() as u64 });
    handle(&timers, report);
    match arguments.task {
        ProcessTask::Work => work(&timers, arguments),
        ProcessTask::Handle | ProcessTask::HandleByDefault => loop {
            std::thread::park();
        },
    }
}

/// Runs the clients, which do not end.
fn work(timers: &Timers, arguments: &DurableKillArgs) {
    let adopted = Arc::new(Mutex::new(runtime().block_on(Adopted::find(timers, arguments.slot, arguments.slots))));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let number = arguments.life * CLIENTS + client;
            let random = Random::new(arguments.seed.wrapping_add(number));
            // No other client of any process has these numbers.
            let next = (number << 24) * arguments.slots + arguments.slot;
            let adopted = Arc::clone(&adopted);
            let step = arguments.slots;
            let client = Client::new(timers.clone(), random, (next, step), adopted);
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
        report(Event::Fired {
            key,
            occurrence: delivery.occurrence(),
            stands_for: delivery.stands_for(),
            attempt: u64::from(delivery.attempt()),
            due: micros(delivery.due()),
            late,
        });
        async {}
    });
    registered.unwrap_or_else(|error| fail(&error.to_string()));
}

/// Writes a line with one system call, and ends the process if nobody reads it.
pub(super) fn report(event: Event) {
    let line = format!("{event}\n");
    let mut out = std::io::stdout().lock();
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        // The driver is gone.
        std::process::exit(1);
    }
}

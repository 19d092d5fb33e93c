//! Processes are killed (`kill -9`) again and again while clients create, cancel and reschedule timers, one at a time, in batches and by name, and
//! handlers are called; every acknowledged operation is accounted for, and every occurrence of repeating timers.

mod client;
mod event;
mod ledger;
mod sets;
mod worker;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use tourbillon_durable::Timers;
use tourbillon_durable::store::{ListFilter, RowState, TimerRow};
use tourbillon_tools::Random;

use self::event::Event;
use self::ledger::Ledger;
pub(super) use self::worker::{DEFAULT_LEASE, LEASE, ProcessTask};
pub(crate) use self::worker::{DurableKillArgs, run_killed};
use super::DurableOptions;
use super::place::{Place, close, fail, runtime};
use super::stage::{Backend, Stage, wait_until};
use crate::report::{BenchReport, Figure};

/// Processes at the same time on PostgreSQL.
const NODES: u64 = 3;

/// The longest life of a process after it has opened its store.
const LONGEST_LIFE: Duration = Duration::from_millis(250);

/// Kills processes, and exits this program if an acknowledged operation is unaccounted for.
pub(super) fn run(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let kills = options.kills();
    let seed = options.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
    });
    eprintln!("kill: --seed {seed}");
    for backend in options.backends() {
        let Some(place) = stage.place(backend) else { continue };
        let nodes = if backend == Backend::Postgres { NODES } else { 1 };
        let mut driver = KillDriver::new(&place, nodes, seed);
        let begin = Instant::now();
        for _ in 0..kills {
            driver.kill_one();
        }
        let took = begin.elapsed();
        driver.end();
        let case = format!("kill,kills={kills}");
        let ledger = &driver.ledger;
        let faults = &ledger.faults;
        let figures = [
            ("acknowledged", ledger.acknowledged as f64),
            ("lost", faults.lost.len() as f64),
            ("cancelled_delivered", faults.cancelled_delivered.len() as f64),
            ("unexplained_duplicates", faults.unexplained.len() as f64),
            ("early", faults.early.len() as f64),
            ("wrong", faults.wrong.len() as f64),
            ("timers", ledger.timers() as f64),
            ("repeating_timers", ledger.repeating() as f64),
            ("cancelled_by_name", ledger.cancelled_by_name() as f64),
            ("delivered", ledger.deliveries as f64),
            ("repeated_deliveries", ledger.repeated as f64),
            ("killed_while_opening", driver.killed_while_opening as f64),
            ("s_to_open_longest", driver.recoveries.iter().max().copied().unwrap_or_default().as_secs_f64()),
            ("s_for_all_kills", took.as_secs_f64()),
        ];
        for (metric, value) in figures {
            report.add(Figure::once(backend.system(), case.clone(), metric, value));
        }
        let opened: Vec<f64> = driver.recoveries.iter().map(Duration::as_secs_f64).collect();
        if !opened.is_empty() {
            report.add(Figure::of_rounds(backend.system(), case, "s_to_open", opened));
        }
        if !faults.is_empty() {
            let examples = |keys: &[u64]| keys.iter().take(5).map(|key| ledger.explain(*key)).collect::<Vec<_>>();
            fail(&format!(
                "{}, --seed {seed}: lost {:?}, cancelled and delivered {:?}, unexplained {:?}, early {:?}, wrong {:?}; kept: {}",
                backend.system(),
                examples(&faults.lost),
                examples(&faults.cancelled_delivered),
                examples(&faults.unexplained),
                examples(&faults.early),
                examples(&faults.wrong),
                place.to_argument(),
            ));
        }
        stage.remove(&place);
    }
}

/// Starts and kills processes, and keeps the account.
struct KillDriver<'a> {
    place: &'a Place,
    seed: u64,
    random: Random,
    lives: u64,
    nodes: Vec<KilledProcess>,
    ledger: Ledger,
    recoveries: Vec<Duration>,
    killed_while_opening: u64,
}

impl<'a> KillDriver<'a> {
    fn new(place: &'a Place, nodes: u64, seed: u64) -> KillDriver<'a> {
        let mut driver = KillDriver {
            place,
            seed,
            random: Random::new(seed),
            lives: 0,
            nodes: Vec::new(),
            ledger: Ledger::default(),
            recoveries: Vec::new(),
            killed_while_opening: 0,
        };
        for slot in 0..nodes {
            let node = driver.start(slot, nodes);
            driver.nodes.push(node);
        }
        driver
    }

    fn start(&mut self, slot: u64, slots: u64) -> KilledProcess {
        self.lives += 1;
        KilledProcess::start(self.place, ProcessTask::Work, [slot, slots, self.lives, self.seed])
    }

    /// Kills one process after a random time, and starts another in its place.
    fn kill_one(&mut self) {
        let index = self.random.index(self.nodes.len());
        // One in some processes is killed while it opens the store.
        let opens = !self.random.one_in(8);
        let life = Duration::from_micros(self.random.below(LONGEST_LIFE.as_micros() as u64));
        if opens {
            self.nodes[index].wait_until_open();
        }
        thread::sleep(life);
        let node = self.nodes.swap_remove(index);
        let slot = node.slot;
        self.take(node);
        let slots = self.nodes.len() as u64 + 1;
        let next = self.start(slot, slots);
        self.nodes.push(next);
    }

    /// Kills a process, and takes the account of what it has reported.
    fn take(&mut self, node: KilledProcess) {
        let (events, recovery) = node.kill();
        self.killed_while_opening += u64::from(recovery.is_none());
        self.recoveries.extend(recovery);
        events.into_iter().for_each(|event| self.ledger.note(event));
    }

    /// Kills the last processes, lets everything be delivered that is due, and compares the account with the store.
    fn end(&mut self) {
        while let Some(node) = self.nodes.pop() {
            self.take(node);
        }
        let timers = self.place.open(worker::builder());
        let (sender, fired) = channel();
        worker::handle(&timers, move |event| _ = sender.send(event));
        let mut quiet_since = None;
        wait_until("the delivery of what was due", || {
            let counts = runtime().block_on(timers.counts()).unwrap_or_else(|error| fail(&error.to_string()));
            let is_quiet = counts.claimed == 0 && counts.overdue.is_empty() && timers.stats().is_owner;
            thread::sleep(Duration::from_millis(100));
            // For longer than any timer that was about to be due.
            let since = *quiet_since.get_or_insert_with(Instant::now);
            if !is_quiet {
                quiet_since = None;
            }
            is_quiet && since.elapsed() > Duration::from_secs(3)
        });
        fired.try_iter().for_each(|event| self.ledger.note(event));
        let (dead, pending): (Vec<TimerRow>, Vec<TimerRow>) =
            runtime().block_on(rows(&timers)).into_iter().partition(|row| row.state == RowState::Dead);
        close(&timers);
        fired.try_iter().for_each(|event| self.ledger.note(event));
        for row in dead {
            self.ledger.dead(key_of(&row), row.id.occurrence, row.stands_for, row.due.as_micros());
        }
        self.ledger.compare(&pending.iter().map(|row| (key_of(row), row.due.as_micros())).collect());
    }
}

/// Returns the number of a row's timer.
fn key_of(row: &TimerRow) -> u64 {
    row.spec.key.as_ref().and_then(|key| key.parse().ok()).unwrap_or_default()
}

/// Returns all rows of a store.
async fn rows(timers: &Timers) -> Vec<TimerRow> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = timers.list(ListFilter::default(), cursor, 1_000).await;
        let page = page.unwrap_or_else(|error| fail(&error.to_string()));
        found.extend(page.rows);
        cursor = page.next;
        if cursor.is_none() {
            return found;
        }
    }
}

/// A call of a handler.
pub(super) struct HandlerCall {
    pub(super) key: u64,
    /// Microseconds after the timer was due.
    pub(super) late: u64,
}

/// A process that will be killed, and what it has reported.
pub(super) struct KilledProcess {
    slot: u64,
    child: Child,
    opened: Receiver<Duration>,
    recovery: Option<Duration>,
    reader: JoinHandle<Vec<Event>>,
}

impl KilledProcess {
    /// Starts a process: `numbers` are its slot, the number of slots, its own number and a seed.
    pub(super) fn start(place: &Place, task: ProcessTask, numbers: [u64; 4]) -> KilledProcess {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        let task = match task {
            ProcessTask::Work => "work",
            ProcessTask::Handle => "handle",
            ProcessTask::HandleByDefault => "handle-by-default",
        };
        command.args(["durable-killed", task]).arg(place.to_argument()).args(numbers.map(|number| number.to_string()));
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| fail(&error.to_string()));
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        let (sender, opened) = channel();
        let reader = thread::spawn(move || {
            let events = output.lines().map_while(Result::ok).filter_map(|line| Event::parse(&line));
            let noticed = events.inspect(|event| {
                if let Event::Open { micros } = event {
                    let _nobody_waits = sender.send(Duration::from_micros(*micros));
                }
            });
            noticed.collect()
        });
        KilledProcess { slot: numbers[0], child, opened, recovery: None, reader }
    }

    /// Waits until the process has opened its store. Exits this program if it ends before.
    pub(super) fn wait_until_open(&mut self) {
        if self.recovery.is_some() {
            return;
        }
        match self.opened.recv_timeout(Duration::from_secs(60)) {
            Ok(recovery) => self.recovery = Some(recovery),
            Err(RecvTimeoutError::Timeout) => fail("a process could not open its store within a minute"),
            Err(RecvTimeoutError::Disconnected) => fail("a process ended before it was killed"),
        }
    }

    /// Kills the process, and returns its events and how long it took to open the store.
    fn kill(mut self) -> (Vec<Event>, Option<Duration>) {
        if let Ok(Some(status)) = self.child.try_wait() {
            fail(&format!("a process ended before it was killed: {status}"));
        }
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.unwrap_or_else(|error| fail(&error.to_string()));
        let events = self.reader.join().unwrap_or_default();
        (events, self.recovery.or_else(|| self.opened.try_recv().ok()))
    }

    /// Kills the process, and returns the calls of its handler and how long it took to open the store.
    pub(super) fn kill_and_read(self) -> (Vec<HandlerCall>, Option<Duration>) {
        let (events, recovery) = self.kill();
        let call = |event| match event {
            Event::Fired { key, late, .. } => Some(HandlerCall { key, late }),
            _ => None,
        };
        (events.into_iter().filter_map(call).collect(), recovery)
    }
}

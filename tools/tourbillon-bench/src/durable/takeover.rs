//! Two nodes on PostgreSQL, of which one is killed: how long its timers wait for the other.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tourbillon_durable::spec::Limits;
use tourbillon_durable::store::{CreateOp, PostgresOptions, PostgresStore, Reply, Store as _, WriteOp};
use tourbillon_durable::{NewTimer, TimerId};

use super::DurableOptions;
use super::kill::{DEFAULT_LEASE, KilledProcess, LEASE, ProcessTask};
use super::load::KIND;
use super::place::{Place, fail, runtime};
use super::stage::{Backend, Stage};
use crate::report::{BenchReport, Figure};

/// Timers that are due in the time of the case.
const TIMERS: u64 = 4_000;

/// From the first timer to the last.
const SPREAD: Duration = Duration::from_secs(8);

/// Measures the longest lateness when one of two nodes is killed. Exits this program if a timer is not delivered.
pub(super) fn run(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    if !options.choice.includes(Backend::Postgres.system()) {
        return;
    }
    take_over(ProcessTask::Handle, LEASE, stage, report);
    if !options.is_quick() {
        take_over(ProcessTask::HandleByDefault, DEFAULT_LEASE, stage, report);
    }
}

fn take_over(task: ProcessTask, lease: Duration, stage: &Stage, report: &mut BenchReport) {
    let Some(place) = stage.place(Backend::Postgres) else { return };
    let mut nodes = [0, 1].map(|slot| KilledProcess::start(&place, task, [slot, 2, slot, 0]));
    nodes.iter_mut().for_each(KilledProcess::wait_until_open);
    // Until both have half of the shards.
    std::thread::sleep(3 * lease);
    let begin = SystemTime::now() + Duration::from_secs(1);
    create(&place, begin);
    let [killed, other] = nodes;
    let middle = begin + SPREAD / 2;
    std::thread::sleep(middle.duration_since(SystemTime::now()).unwrap_or_default());
    let (mut fires, _) = killed.kill_and_read();
    let by_killed = fires.len();
    let end = begin + SPREAD + lease + Duration::from_secs(3);
    std::thread::sleep(end.duration_since(SystemTime::now()).unwrap_or_default());
    fires.extend(other.kill_and_read().0);
    let mut keys: Vec<u64> = fires.iter().map(|fire| fire.key).collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.len() as u64 != TIMERS {
        fail(&format!("of {TIMERS} timers {} were delivered after one of two nodes was killed", keys.len()));
    }
    let longest = fires.iter().map(|fire| fire.late).max().unwrap_or_default();
    let case = match task {
        ProcessTask::HandleByDefault => format!("takeover,timers={TIMERS},lease=default"),
        _ => format!("takeover,timers={TIMERS}"),
    };
    let mut add = |metric, value| {
        report.add(Figure::once(Backend::Postgres.system(), case.clone(), metric, value));
    };
    add("s_longest_wait", longest as f64 / 1e6);
    add("s_of_lease", lease.as_secs_f64());
    add("delivered", keys.len() as f64);
    add("delivered_by_the_killed_node", by_killed as f64);
    add("repeated_deliveries", (fires.len() - keys.len()) as f64);
    stage.remove(&place);
}

/// Creates the timers as a process that is no node.
fn create(place: &Place, begin: SystemTime) {
    let Place::Schema { url, schema } = place else { return };
    let options = PostgresOptions::new(url).and_then(|options| options.schema(schema));
    let store = options.and_then(|options| runtime().block_on(PostgresStore::open(options)));
    let store = store.unwrap_or_else(|error| fail(&error.to_string()));
    let op = |number: u64| {
        let at = begin + SPREAD.mul_f64(number as f64 / TIMERS as f64);
        let timer = NewTimer::at(KIND, at).key(number.to_string());
        let checked = timer.check(Limits::default());
        let (spec, on_conflict) = checked.unwrap_or_else(|error| fail(&error.to_string()));
        WriteOp::Create(CreateOp { id: TimerId::new(), spec: Arc::new(spec), on_conflict })
    };
    let (sender, answer) = std::sync::mpsc::channel();
    store.write((0..TIMERS).map(op).collect(), Reply::new(move |result| _ = sender.send(result)));
    if let Ok(Err(error)) = answer.recv() {
        fail(&error.to_string());
    }
}

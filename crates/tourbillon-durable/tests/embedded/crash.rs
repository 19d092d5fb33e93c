//! A process with the store is killed again and again: nothing that was acknowledged is lost, and nothing comes back (Q1, Q2).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tourbillon_durable::spec::FirstDue;
use tourbillon_durable::store::{
    CancelOp, CreateAnswer, EmbeddedStore, RescheduleAnswer, RescheduleOp, Store, Target, WriteAnswer, WriteOp,
};
use tourbillon_durable::{NewTimer, StoreTime, TimerId};
use tourbillon_tools::Random;

use crate::conformance::ask::{ask, create_op};
use crate::conformance::random::seed;
use crate::support::{all_rows, options, verify};

/// Names the directory and the seed for the child.
const CHILD: &str = "TOURBILLON_CRASH_CHILD";
const TEST: &str = "crash::q1_q2_d49_what_was_acknowledged_survives_kill_9";

/// How many times a process is killed: `TOURBILLON_KILLS` asks for more.
fn kills() -> u64 {
    std::env::var("TOURBILLON_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(40)
}

#[test]
fn q1_q2_d49_what_was_acknowledged_survives_kill_9() {
    if let Ok(task) = std::env::var(CHILD) {
        let (seed, directory) = task.split_once(' ').unwrap();
        serve(Path::new(directory), seed.parse().unwrap());
    }
    let seed = seed();
    println!("TOURBILLON_SEED={seed}");
    let mut random = Random::new(seed);
    let directory = TempDir::new().unwrap();
    let mut known = Known::default();
    let (mut acknowledged, mut longest) = (0, Duration::ZERO);
    for round in 0..kills() {
        let lines = kill_a_child(directory.path(), random.any(), random.duration(Duration::from_millis(120)));
        acknowledged += known.read(&lines);
        let begin = Instant::now();
        let store = open(directory.path());
        longest = longest.max(begin.elapsed());
        known.compare(&store, &format!("round {round}, TOURBILLON_SEED={seed}"));
    }
    println!(
        "{} kills, {acknowledged} operations acknowledged, {} timers, opened within {longest:?}",
        kills(),
        known.timers.len()
    );
    assert!(acknowledged > 0, "the children were killed too early to do anything");
}

fn open(directory: &Path) -> EmbeddedStore {
    // With little memory, so that tables are written in a short life too.
    options().write_buffer(1 << 20).open(directory).unwrap()
}

/// Runs a child until it has opened the store and for `life` after that, and returns what it has printed.
fn kill_a_child(directory: &Path, seed: u64, life: Duration) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([TEST, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, format!("{seed} {}", directory.display())).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, opened) = channel();
    let reader = std::thread::spawn(move || {
        // A line that the kill cut off has no end.
        let whole = output.lines().map_while(Result::ok).inspect(|line| {
            if line == "open" {
                sender.send(()).unwrap();
            }
        });
        whole.collect::<Vec<_>>()
    });
    // One in some children is killed while it opens the store.
    let patience = if seed.is_multiple_of(5) { life } else { Duration::from_secs(60) };
    if opened.recv_timeout(patience).is_ok() {
        std::thread::sleep(life);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// The child: changes timers at random, and prints each batch before and after it is acknowledged.
fn serve(directory: &Path, seed: u64) -> ! {
    let store = open(directory);
    let mut random = Random::new(seed);
    let mut live: Vec<u128> = all_rows(&store).unwrap().iter().map(|row| row.id.timer.as_u128()).collect();
    let mut output = std::io::stdout().lock();
    writeln!(output, "\nopen").unwrap();
    let mut next = u128::from(seed) << 64;
    loop {
        let (mut batch, mut text) = (Vec::new(), String::new());
        let mut added = Vec::new();
        let most = 1 << random.below(8);
        for _ in 0..=random.below(most) {
            let due = 200_000_000_000_000_000 + random.below(1_000_000);
            let change = random.below(10);
            if live.is_empty() || change < 4 {
                next += 1;
                added.push(next);
                batch.push(create_op(next, timer(next, due, &mut random)));
                text.push_str(&format!(" {next}={due}"));
            } else if change < 8 {
                let number = live.swap_remove(random.index(live.len()));
                batch.push(WriteOp::Cancel(CancelOp { target: by_key(number) }));
                text.push_str(&format!(" {number}=-"));
            } else {
                let number = live.swap_remove(random.index(live.len()));
                added.push(number);
                let when = FirstDue::At(StoreTime::from_micros(due));
                batch.push(WriteOp::Reschedule(RescheduleOp { target: by_key(number), when, if_version: None }));
                text.push_str(&format!(" {number}={due}"));
            }
        }
        live.extend(added);
        writeln!(output, "begin{text} .").unwrap();
        output.flush().unwrap();
        for answer in ask(|reply| store.write(batch, reply)).unwrap() {
            assert!(is_success(&answer), "{answer:?}");
        }
        writeln!(output, "end").unwrap();
        output.flush().unwrap();
    }
}

fn timer(number: u128, due: u64, random: &mut Random) -> NewTimer {
    let at = StoreTime::from_micros(due).to_system();
    NewTimer::at("mail", at)
        .key(format!("{number}"))
        .name(format!("{}", number % 5))
        .payload(vec![7; random.index(2000)])
}

fn by_key(number: u128) -> Target {
    Target::Key { namespace: "default".into(), key: number.to_string() }
}

fn is_success(answer: &WriteAnswer) -> bool {
    match answer {
        WriteAnswer::Create(CreateAnswer::Created { .. }) | WriteAnswer::Reschedule(RescheduleAnswer::Moved { .. }) => {
            true
        }
        WriteAnswer::Cancel(counts) => counts.cancelled == 1,
        _ => false,
    }
}

/// What the driver knows of the timers: from what was acknowledged, and from what may have been done.
#[derive(Default)]
struct Known {
    /// The due time of each timer.
    timers: HashMap<u128, u64>,
    /// The batch that was begun last, if it was not acknowledged: each timer and its due time after it.
    begun: Vec<(u128, Option<u64>)>,
}

impl Known {
    /// Follows the output of a child, and returns how many operations were acknowledged.
    fn read(&mut self, lines: &[String]) -> usize {
        self.begun.clear();
        let mut acknowledged = 0;
        for line in lines {
            if let Some(changes) = line.strip_prefix("begin").and_then(|line| line.strip_suffix(" .")) {
                let change = |text: &str| {
                    let (number, due) = text.split_once('=').unwrap();
                    (number.parse::<u128>().unwrap(), due.parse::<u64>().ok())
                };
                self.begun = changes.split_whitespace().map(change).collect();
            } else if line == "end" {
                acknowledged += self.begun.len();
                for (number, due) in self.begun.drain(..) {
                    apply(&mut self.timers, number, due);
                }
            }
        }
        acknowledged
    }

    /// Verifies that the store has what was acknowledged, and the batch after it as a whole or not at all.
    fn compare(&mut self, store: &EmbeddedStore, what: &str) {
        verify(store).unwrap();
        let rows = all_rows(store).unwrap();
        let found: HashMap<u128, u64> = rows.iter().map(|row| (number(row.id.timer), row.due.as_micros())).collect();
        if found == self.timers {
            return;
        }
        for (number, due) in self.begun.drain(..) {
            apply(&mut self.timers, number, due);
        }
        let missing: Vec<_> = self.timers.iter().filter(|(number, due)| found.get(number) != Some(due)).collect();
        let returned: Vec<_> = found.keys().filter(|number| !self.timers.contains_key(number)).collect();
        assert!(
            missing.is_empty() && returned.is_empty(),
            "{what}: lost or changed {missing:?}, came back {returned:?}"
        );
    }
}

fn apply(timers: &mut HashMap<u128, u64>, number: u128, due: Option<u64>) {
    match due {
        Some(due) => timers.insert(number, due),
        None => timers.remove(&number),
    };
}

fn number(id: TimerId) -> u128 {
    id.as_u128()
}

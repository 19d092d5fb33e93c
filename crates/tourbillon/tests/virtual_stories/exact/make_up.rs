//! Random stories.

use super::{IntervalStep, Kind, Ms, Part, QueueStep, Step, Story};
use crate::random::Random;
use crate::timers::{Control, Missed};

/// Makes up a story.
pub(crate) fn make_up(kind: Kind, random: &mut Random) -> Story {
    let parts = if kind == Kind::TwoRuntimes { 2 } else { 1 };
    let has_io = random.below(2) == 0;
    Story { has_io, parts: (0..parts).map(|_| make_up_part(kind, random)).collect() }
}

fn make_up_part(kind: Kind, random: &mut Random) -> Part {
    let count = if kind == Kind::Outside { 1 } else { 2 + random.below(4) as usize };
    // The task that `block_on` runs is polled before others that are ready, a spawned one in its turn.
    let advancer = match kind {
        Kind::Advance | Kind::TwoRuntimes => Some(random.below(2) as usize),
        _ => None,
    };
    let mut tasks: Vec<Vec<Step>> = Vec::new();
    for task in 0..count {
        let steps = 1 + random.below(8);
        let role = Role {
            advances: advancer == Some(task),
            // When time is advanced, timers of several tasks are due at once. Those tasks run in the order of their deadlines, except the
            // task that advances and that of `block_on`. The messages of these two may not depend on the order.
            talks: advancer.is_none_or(|advancer| task > advancer),
        };
        tasks.push((0..steps).map(|_| make_up_step(kind, count, role, random)).collect());
    }
    for task in 1..count {
        let spawner = random.below(task as u64) as usize;
        let place = match random.below(2) {
            0 => 0,
            _ => random.below(tasks[spawner].len() as u64 + 1) as usize,
        };
        tasks[spawner].insert(place, Step::Spawn(task));
    }
    if kind == Kind::TwoRuntimes {
        for _ in 0..1 + random.below(3) {
            let place = random.below(tasks[0].len() as u64 + 1) as usize;
            tasks[0].insert(place, Step::Leave(random.one_of([0, 0, 300, 1_200])));
        }
    }
    Part { tasks }
}

/// The steps that a task may have.
#[derive(Clone, Copy)]
struct Role {
    advances: bool,
    talks: bool,
}

fn make_up_step(kind: Kind, tasks: usize, role: Role, random: &mut Random) -> Step {
    match (kind, random.below(8)) {
        (Kind::Blocking, 0) => return Step::Block(50 + random.below(600)),
        (Kind::Blocking, 1) => {
            let steps = 1 + random.below(2);
            let beside = (0..steps).map(|_| make_up_step(Kind::Auto, tasks, role, random)).collect();
            return Step::BlockBeside(50 + random.below(600), beside);
        }
        (Kind::Blocking, 2) => {
            return match random.below(3) {
                0 => Step::File,
                _ => Step::TimeoutOfBlock { limit: any_ms(random), micros: 50 + random.below(600) },
            };
        }
        (Kind::Outside, 0..3) => {
            let dropped = (0..random.below(4)).map(|_| any_ms(random)).collect();
            return Step::Outside { dropped, micros: random.below(600) };
        }
        _ => {}
    }
    if role.advances && random.below(2) == 0 {
        return Step::Advance(random.one_of([Control::Own, Control::Tokio]), any_ms(random));
    }
    match random.below(23) {
        0..2 => Step::Sleep(any_ms(random)),
        2 => Step::SleepUntil(any_ms(random)),
        3 => Step::SleepOver,
        4..6 => Step::Reset { first: any_ms(random), wait: any_ms(random), second: any_ms(random) },
        6 => Step::Cancel { first: any_ms(random), wait: any_ms(random) },
        7..9 => Step::Either { one: any_ms(random), other: any_ms(random), both: random.below(2) == 0 },
        9 => Step::TimeoutOfSleep { limit: any_ms(random), sleep: any_ms(random) },
        10..12 if role.talks => {
            Step::TimeoutOfMessage { from: random.below(tasks as u64) as usize, limit: any_ms(random) }
        }
        10..12 => Step::Sleep(any_ms(random)),
        12 => Step::TimeoutOfReady { limit: any_ms(random) },
        13..15 => Step::Interval {
            after: any_ms(random),
            period: 1 + any_ms(random),
            missed: random.one_of([Missed::Burst, Missed::Delay, Missed::Skip]),
            steps: (0..2 + random.below(8)).map(|_| make_up_interval_step(random)).collect(),
        },
        15..17 => Step::Queue((0..2 + random.below(10)).map(|_| make_up_queue_step(random)).collect()),
        17..19 if role.talks => Step::Send { to: random.below(tasks as u64) as usize },
        // While a timer is armed, the runtime does not wait for a thread that it does not know: time moves.
        19 if kind != Kind::Outside => Step::Hold(any_ms(random)),
        20..22 if kind != Kind::Outside => Step::AwaitHeld,
        _ => Step::Yield(1 + random.below(3) as u32),
    }
}

fn make_up_interval_step(random: &mut Random) -> IntervalStep {
    match random.below(10) {
        0..5 => IntervalStep::Tick,
        5 => IntervalStep::Wait(any_ms(random)),
        6 => IntervalStep::Reset,
        7 => IntervalStep::ResetAtOnce,
        8 => IntervalStep::ResetAfter(any_ms(random)),
        _ => IntervalStep::ResetAt(any_ms(random)),
    }
}

fn make_up_queue_step(random: &mut Random) -> QueueStep {
    match random.below(10) {
        0..3 => QueueStep::Insert(any_ms(random)),
        3 => QueueStep::InsertAt(any_ms(random)),
        4 => QueueStep::Remove(random.below(100) as usize),
        5 => QueueStep::Reset(random.below(100) as usize, any_ms(random)),
        6 => QueueStep::Wait(any_ms(random)),
        _ => QueueStep::Next(any_ms(random)),
    }
}

/// Returns a duration of any order of magnitude that a wheel has levels for.
fn any_ms(random: &mut Random) -> Ms {
    let bound = random.one_of([3, 30, 30, 300, 300, 3_000, 100_000, 50_000_000]);
    random.below(bound)
}

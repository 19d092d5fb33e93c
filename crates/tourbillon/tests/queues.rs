//! Every kind of queue gives the same results for the same random story.

mod random;
mod support;

use std::pin::Pin;
use std::time::Duration;

use random::{Random, seed};
use support::{Log, manual, ms, poll_with, years};
use tourbillon::time::{Instant, Sleep};
use tourbillon::{Clock, Engine, QueueKind, Slack};
use tourbillon_queue::Time;

const STORIES: u64 = 100;
const STEPS: usize = 300;

const KINDS: [QueueKind; 6] = [
    QueueKind::Wheel,
    QueueKind::Heap,
    QueueKind::ListTree,
    QueueKind::Rounds { tick: Duration::from_millis(1), slots: 64 },
    QueueKind::Rounds { tick: Duration::from_nanos(1), slots: 1 },
    QueueKind::Rounds { tick: Duration::from_secs(10), slots: 4096 },
];

/// The result of a story: which timer fired when, in order, and the counts at the end.
#[derive(PartialEq, Eq, Debug)]
struct StoryResult {
    fired: Vec<(u64, u64)>,
    counts: [u64; 4],
}

fn run(kind: QueueKind, slack: Slack, mut random: Random, start: Time) -> StoryResult {
    let clock = Clock::manual();
    clock.set(start);
    let engine = Engine::builder().clock(clock).queue(kind).slack(slack).build().unwrap();
    let now = |engine: &Engine| engine.sleep(Duration::ZERO).deadline();
    let log = Log::default();
    let mut sleeps: Vec<(u64, Pin<Box<Sleep>>)> = Vec::new();
    let mut fired = Vec::new();
    let duration = |random: &mut Random| match random.below(6) {
        // Few distinct deadlines, so that many are equal.
        0..3 => ms(random.below(20)),
        3 => random.duration(ms(300)),
        4 => random.duration(years(1)),
        _ => random.duration(Duration::from_nanos(100)),
    };
    for step in 0..STEPS as u64 {
        let pick = random.below(sleeps.len() as u64 + 1) as usize;
        match random.below(10) {
            0..4 => {
                let mut sleep = Box::pin(engine.sleep(duration(&mut random)));
                let _ = poll_with(sleep.as_mut(), &log.waker(step));
                sleeps.push((step, sleep));
            }
            4 if pick < sleeps.len() => drop(sleeps.swap_remove(pick)),
            5 | 6 if pick < sleeps.len() => {
                let deadline: Instant = now(&engine) + duration(&mut random);
                let (name, sleep) = &mut sleeps[pick];
                sleep.as_mut().reset(deadline);
                let _ = poll_with(sleep.as_mut(), &log.waker(*name));
            }
            7 => {
                // A late turn, as by a driver that was delayed.
                engine.clock().advance(duration(&mut random));
                while engine.turn().more {}
            }
            _ => _ = engine.advance(duration(&mut random)),
        }
        fired.extend(log.take().into_iter().map(|name| (engine.clock().now().as_nanos(), name)));
    }
    let stats = engine.stats();
    StoryResult { fired, counts: [stats.armed, stats.fired, stats.cancelled, stats.pending] }
}

#[test]
fn p3_every_kind_of_queue_fires_the_same_timers_in_the_same_order() {
    let seed = seed();
    let start = manual().clock().now();
    for story in 0..STORIES {
        let slack = [Slack::adaptive(), Slack::exact(), Slack::up_to(ms(3)), Slack::precise()][story as usize % 4];
        let random = || Random(seed ^ story << 32);
        let first = run(KINDS[0], slack, random(), start);
        assert!(!first.fired.is_empty());
        for kind in &KINDS[1..] {
            let other = run(*kind, slack, random(), start);
            assert_eq!(first, other, "story {story}, {slack:?}: {:?} and {kind:?} differ", KINDS[0]);
        }
    }
}

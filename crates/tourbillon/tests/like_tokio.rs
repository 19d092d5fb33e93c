//! The same random story run on Tokio and on Tourbillon, both in virtual time: the results must be the same.
#![cfg(feature = "test-util")]

mod random;
mod support;

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use random::{Random, seed};
use support::{Task, ms};
use tokio::time as theirs;
use tokio_util::time as theirs_util;
use tourbillon::time as ours;

const STORIES: u64 = 300;
const STEPS: usize = 100;

/// Runs a future inside a Tokio runtime whose time is paused, and outside its budget.
fn in_tokio(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(tokio::task::unconstrained(story));
}

/// Advances time with a random one of the two crates: the clock is the same.
async fn advance(random: &mut Random, by: Duration) {
    if random.below(2) == 0 { ours::advance(by).await } else { theirs::advance(by).await }
}

#[test]
fn f7_intervals_tick_as_tokios_do() {
    let seed = seed();
    for story in 0..STORIES {
        in_tokio(run_intervals(Random(seed ^ story), format!("story {story}")));
    }
}

async fn run_intervals(mut random: Random, name: String) {
    ours::pause();
    let (start, start_theirs) = (ours::Instant::now(), theirs::Instant::now());
    let offset = ms(random.below(30));
    let period = ms(1 + random.below(40));
    let (mut interval, mut interval_theirs) =
        (ours::interval_at(start + offset, period), theirs::interval_at(start_theirs + offset, period));
    let behavior = random.below(3);
    interval.set_missed_tick_behavior(
        [ours::MissedTickBehavior::Burst, ours::MissedTickBehavior::Delay, ours::MissedTickBehavior::Skip]
            [behavior as usize],
    );
    interval_theirs.set_missed_tick_behavior(
        [theirs::MissedTickBehavior::Burst, theirs::MissedTickBehavior::Delay, theirs::MissedTickBehavior::Skip]
            [behavior as usize],
    );
    let task = Task::new();
    for step in 0..STEPS {
        match random.below(12) {
            0..6 => {
                let tick = interval.poll_tick(&mut task.cx()).map(|tick| tick - start);
                let tick_theirs = interval_theirs.poll_tick(&mut task.cx()).map(|tick| tick - start_theirs);
                assert_eq!(tick, tick_theirs, "{name}, step {step}");
            }
            6..10 => {
                let by = random.millis([3, 10, 50, 200]);
                advance(&mut random, by).await;
            }
            10 => {
                let after = ms(random.below(60));
                interval.reset_after(after);
                interval_theirs.reset_after(after);
            }
            _ => match random.below(3) {
                0 => {
                    interval.reset();
                    interval_theirs.reset();
                }
                1 => {
                    interval.reset_immediately();
                    interval_theirs.reset_immediately();
                }
                _ => {
                    let at = ms(random.below(2000));
                    interval.reset_at(start + at);
                    interval_theirs.reset_at(start_theirs + at);
                }
            },
        }
    }
}

#[test]
fn t11_delay_queues_give_the_same_items_at_the_same_times_as_tokios() {
    let seed = seed();
    for story in 0..STORIES {
        in_tokio(run_delay_queues(Random(seed ^ story), format!("story {story}")));
    }
}

/// Tokio does not specify the order in which items of one deadline come out, and forgets deadlines that have passed. So items that come
/// out at one time are compared as a set; the order of ours is tested elsewhere.
async fn run_delay_queues(mut random: Random, name: String) {
    ours::pause();
    let (mut queue, mut queue_theirs) = (ours::DelayQueue::new(), theirs_util::DelayQueue::new());
    let task = Task::new();
    let mut keys = BTreeMap::new();
    for step in 0..STEPS as u64 {
        let timeout = random.millis([2, 50, 5000]);
        let pick = keys.keys().nth(random.below(keys.len() as u64 + 1) as usize).copied();
        match (random.below(10), pick) {
            (0..4, _) => {
                keys.insert(step, (queue.insert(step, timeout), queue_theirs.insert(step, timeout)));
            }
            (4, Some(item)) => {
                let (key, key_theirs) = keys.remove(&item).unwrap();
                assert_eq!(queue.remove(&key).into_inner(), queue_theirs.remove(&key_theirs).into_inner());
            }
            (5, Some(item)) => {
                let (key, key_theirs) = keys[&item];
                queue.reset(&key, timeout);
                queue_theirs.reset(&key_theirs, timeout);
            }
            (6..9, _) => {
                advance(&mut random, timeout).await;
            }
            _ => {
                let (mut out, mut out_theirs) = (Vec::new(), Vec::new());
                let end = loop {
                    match queue.poll_expired(&mut task.cx()) {
                        Poll::Ready(Some(expired)) => out.push(expired.into_inner()),
                        end => break end.is_ready(),
                    }
                };
                let end_theirs = loop {
                    match queue_theirs.poll_expired(&mut task.cx()) {
                        Poll::Ready(Some(expired)) => out_theirs.push(expired.into_inner()),
                        end => break end.is_ready(),
                    }
                };
                keys.retain(|item, _| !out.contains(item));
                out.sort_unstable();
                out_theirs.sort_unstable();
                assert_eq!((out, end), (out_theirs, end_theirs), "{name}, step {step}");
            }
        }
        assert_eq!((queue.len(), queue.is_empty()), (queue_theirs.len(), queue_theirs.is_empty()));
    }
}

#[test]
fn t8_timeouts_return_the_same_as_tokios() {
    let seed = seed();
    for story in 0..STORIES {
        let mut random = Random(seed ^ story);
        in_tokio(async move {
            ours::pause();
            let task = Task::new();
            let (limit, value) = (ms(random.below(40)), ms(random.below(40)));
            let mut timeout = Box::pin(ours::timeout(limit, ours::sleep(value)));
            let mut timeout_theirs = Box::pin(theirs::timeout(limit, theirs::sleep(value)));
            loop {
                let by = Duration::from_millis(random.below(10));
                advance(&mut random, by).await;
                let polled = task.poll(timeout.as_mut()).map(|result| result.is_ok());
                let polled_theirs = task.poll(timeout_theirs.as_mut()).map(|result| result.is_ok());
                assert_eq!(polled, polled_theirs, "story {story}: a value after {value:?} within {limit:?}");
                if polled.is_ready() {
                    return;
                }
            }
        });
    }
}

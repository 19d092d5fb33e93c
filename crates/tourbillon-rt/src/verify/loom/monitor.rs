//! The monitor's alarm, against a worker that wakes up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;

use super::new_worker;
use crate::executor::monitor::AlarmFlag;
use crate::executor::worker_shared::ParkAttempt;
use crate::verify::loom::explore;

/// Fails if the monitor looks only before it marks its alarm as off, or if a worker asks before it is awake; or if one of the accesses is
/// less than `SeqCst`.
#[test]
fn d44_a_worker_that_wakes_up_is_watched_though_the_monitor_is_about_to_sleep() {
    explore(|| {
        let (worker, watching) = (new_worker(), Arc::<AlarmFlag>::default());
        let alarms = Arc::new(AtomicUsize::new(0));
        assert_eq!(worker.try_park(), ParkAttempt::Parked);
        assert!(watching.begin());
        let (theirs, asleep, its) = (Arc::clone(&watching), Arc::clone(&worker), Arc::clone(&alarms));
        let looks = thread::spawn(move || {
            if theirs.keep_watching(|| asleep.is_parked()) {
                its.fetch_add(1, Ordering::Relaxed);
            }
        });
        worker.set_awake();
        if watching.begin() {
            alarms.fetch_add(1, Ordering::Relaxed);
        }
        looks.join().unwrap();
        assert_eq!(alarms.load(Ordering::Relaxed), 1, "the alarm is set once");
    });
}

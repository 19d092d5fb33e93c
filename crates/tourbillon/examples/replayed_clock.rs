//! A clock of one's own: the recording of a trading day is replayed at sixty times its speed, and paused, by a program whose timers do
//! not know.
//!
//!     cargo run --example replayed_clock

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tourbillon::time::{interval, sleep};
use tourbillon::{Clock, ClockSource, Engine};

/// Shows the time of a recording: it begins at half past nine, and runs at a pace that can be changed.
#[derive(Clone)]
struct Replay(Arc<Mutex<Playback>>);

struct Playback {
    /// What the clock showed when the pace was last changed, since midnight.
    shown: Duration,
    since: Instant,
    pace: u32,
}

impl Replay {
    fn new(pace: u32) -> Replay {
        let opening = Duration::from_secs((9 * 60 + 30) * 60);
        Replay(Arc::new(Mutex::new(Playback { shown: opening, since: Instant::now(), pace })))
    }

    /// Changes the pace; zero is a pause.
    fn set_pace(&self, pace: u32) {
        let mut playback = self.0.lock().unwrap();
        (playback.shown, playback.since, playback.pace) = (playback.shown(), Instant::now(), pace);
    }
}

impl Playback {
    fn shown(&self) -> Duration {
        self.shown + self.pace * self.since.elapsed()
    }
}

impl ClockSource for Replay {
    fn now(&self) -> Duration {
        self.0.lock().unwrap().shown()
    }

    fn real_time(&self, left: Duration) -> Duration {
        left.checked_div(self.0.lock().unwrap().pace).unwrap_or(Duration::MAX)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let replay = Replay::new(60);
    let clock = Clock::custom(replay.clone());
    let engine = Engine::builder().clock(clock.clone()).build()?;
    let _entered = engine.enter();
    let begun = Instant::now();
    let time_of_day = |shown: Duration| format!("{:02}:{:02}", shown.as_secs() / 3600, shown.as_secs() / 60 % 60);

    // Once a minute of the recording, which is once a second here.
    futures_lite::future::block_on(async {
        let mut minutes = interval(Duration::from_secs(60));
        for _ in 0..3 {
            minutes.tick().await;
            println!("{} on the replayed clock, {:?} after the start", time_of_day(clock.elapsed()), begun.elapsed());
        }
    });
    assert!(begun.elapsed() >= Duration::from_secs(2) && clock.elapsed() >= Duration::from_secs((9 * 60 + 32) * 60));

    // A pause: no timer fires, however long it lasts. `notify_set` makes the driver look at the clock at once when it goes on.
    replay.set_pace(0);
    clock.notify_set();
    let asleep = std::thread::spawn({
        let engine = engine.clone();
        move || futures_lite::future::block_on(engine.sleep(Duration::from_secs(30)))
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!asleep.is_finished(), "a timer has fired though the clock stands still");
    replay.set_pace(600);
    clock.notify_set();
    asleep.join().expect("the sleep ends");
    println!("{} after a pause, at ten times the pace", time_of_day(clock.elapsed()));

    // The same code on the real clock: nothing but the engine differs.
    drop(engine);
    let real = Engine::builder().build()?;
    let _entered = real.enter();
    futures_lite::future::block_on(sleep(Duration::from_millis(1)));
    Ok(())
}

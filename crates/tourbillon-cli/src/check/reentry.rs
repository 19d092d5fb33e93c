//! P10: callbacks, wakers and destructors may call the engine, and the engine calls no callback or waker inside a call that arms.
//!
//! All of them arm, cancel, count and set timers of the same engine. If the engine called one of them under a lock, that would
//! deadlock, and the watchdog of this part would report it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tourbillon::{Engine, NamedTimers, Timer};

use super::audit::Findings;
use super::check_run::CheckRun;
use super::engines::{LoopStep, build, driven, turn_all};
use super::promise::Promise;
use crate::text::count;

/// The engine and the timers that the callbacks, wakers and destructors use, and counts of their calls.
struct ReentrantUser {
    engine: Engine,
    timer: Timer,
    named: NamedTimers,
    /// The planted fault: the thread that turns the engine holds this lock while it calls callbacks, and each arming takes it.
    gate: Option<Arc<Mutex<()>>>,
    called: AtomicU64,
    dropped: AtomicU64,
    /// Calls that came while this thread was arming.
    inside: AtomicU64,
}

/// Calls the engine when it is woken and when it is dropped.
struct ReentrantWaker(Arc<ReentrantUser>);

thread_local! {
    static IS_ARMING: Cell<bool> = const { Cell::new(false) };
}

const EACH: u64 = 300;
const LONGEST: Duration = Duration::from_millis(20);
const FAR: Duration = Duration::from_secs(3600);

pub(crate) fn run(check: &CheckRun) -> Findings {
    let user = ReentrantUser::new(check);
    let mut random = check.random("reentry", 0);
    let (mut sleeps, mut timers) = (Vec::new(), Vec::new());
    for _ in 0..EACH {
        let duration = random.duration(LONGEST);
        let waker = Waker::from(Arc::new(ReentrantWaker(Arc::clone(&user))));
        let mut sleep = Box::pin(user.engine.sleep(duration));
        let poll = user.arming(|| sleep.as_mut().poll(&mut Context::from_waker(&waker)));
        if poll.is_ready() {
            user.called.fetch_add(1, SeqCst);
        }
        sleeps.push(sleep);
        let timer = Timer::on(&user.engine);
        timer.expires_after(duration);
        let [fired, cancelled] = [(); 2].map(|()| ReentrantWaker(Arc::clone(&user)));
        user.arming(|| {
            timer.on_expiry(move |_| fired.0.call_back());
            timer.on_expiry(move |_| drop(cancelled)).cancel();
        });
        timers.push(timer);
        let waker = ReentrantWaker(Arc::clone(&user));
        let started = user.arming(|| user.named.start("name", duration, move |_| waker.0.call_back()));
        if started.is_err() {
            user.called.fetch_add(1, SeqCst);
        }
    }
    let all = check.reference.wait_limit().wait_for_all(3 * EACH, || user.called.load(SeqCst));
    drop((sleeps, timers));
    user.report(all)
}

impl ReentrantUser {
    fn new(check: &CheckRun) -> Arc<ReentrantUser> {
        let gate = check.breaks(Promise::P10).then(|| Arc::new(Mutex::new(())));
        let engine = match gate.clone() {
            None => build(Engine::builder()),
            Some(gate) => driven(Engine::builder(), move |engine| {
                let _held = gate.lock().unwrap_or_else(PoisonError::into_inner);
                turn_all(engine);
                LoopStep::Continue
            }),
        };
        let (timer, named) = (Timer::on(&engine), NamedTimers::on(&engine));
        let [called, dropped, inside] = [(); 3].map(|()| AtomicU64::new(0));
        Arc::new(ReentrantUser { engine, timer, named, gate, called, dropped, inside })
    }

    /// Arms a timer, and marks that no user code may be called meanwhile.
    fn arming<T>(&self, arm: impl FnOnce() -> T) -> T {
        let _held = self.gate.as_ref().map(|gate| gate.lock().unwrap_or_else(PoisonError::into_inner));
        let before = IS_ARMING.replace(true);
        let result = arm();
        IS_ARMING.set(before);
        result
    }

    /// Called as a callback or a waker.
    fn call_back(&self) {
        self.called.fetch_add(1, SeqCst);
        self.inside.fetch_add(u64::from(IS_ARMING.get()), SeqCst);
        self.use_engine();
    }

    /// Arms, sets, starts, counts and cancels timers.
    fn use_engine(&self) {
        let mut sleep = Box::pin(self.engine.sleep(FAR));
        let _ = self.arming(|| sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        self.timer.expires_after(FAR);
        let wait = self.arming(|| self.timer.on_expiry(|_| ()));
        let _ = self.arming(|| self.named.start("inner", FAR, |_| ()));
        self.named.cancel("inner");
        wait.cancel();
        drop(sleep);
        let _ = self.engine.stats();
    }

    fn report(&self, all: bool) -> Findings {
        let mut findings = Findings::default();
        let [called, dropped, inside] = [&self.called, &self.dropped, &self.inside].map(|number| number.load(SeqCst));
        findings.expect(all, Promise::P10, || format!("only {} of {} were called", count(called), count(3 * EACH)));
        findings.expect(inside == 0, Promise::P10, || format!("{} were called inside a call that arms", count(inside)));
        let what = format!(
            "{} callbacks and wakers and {} destructors armed, cancelled and counted timers, none stuck",
            count(called),
            count(dropped)
        );
        findings.counted(Promise::P10, what);
        self.engine.shutdown();
        findings
    }
}

impl Wake for ReentrantWaker {
    fn wake(self: Arc<Self>) {
        self.0.call_back();
    }
}

impl Drop for ReentrantWaker {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, SeqCst);
        self.0.use_engine();
    }
}

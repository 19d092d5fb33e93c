//! The memory and the descriptors that are left when the last handle of an engine is dropped. And many engines on one thread.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::pin::Pin;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tourbillon::time::Sleep;
use tourbillon::{Clock, Engine, Outcome, QueueKind};

use self::support::{Task, eventually, one_at_a_time};

struct Counting;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counting only adds to an atomic number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: this method has the same contract as `System.alloc`, and the caller keeps it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: by the contract, `pointer` came from this allocator with this layout, and so from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The memory that an engine may keep for a thread that has used it: its core and its shards, without their contents.
const LEFT: isize = 256 * 1024;

fn allocated() -> isize {
    ALLOCATED.load(Ordering::Relaxed)
}

fn armed(engine: &Engine, count: usize) -> Vec<Pin<Box<Sleep>>> {
    let task = Task::new();
    let mut sleeps: Vec<_> =
        (0..count).map(|index| Box::pin(engine.sleep(Duration::from_secs(60 + index as u64)))).collect();
    sleeps.iter_mut().for_each(|sleep| assert!(task.poll(sleep.as_mut()).is_pending()));
    sleeps
}

/// Returns how many timerfds this process has open.
#[cfg(tourbillon_timerfd)]
fn kernel_timers() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("a process can see its own descriptors");
    let is_timer =
        |path: std::path::PathBuf| std::fs::read_link(path).is_ok_and(|to| to.ends_with("anon_inode:[timerfd]"));
    descriptors.filter(|descriptor| descriptor.as_ref().is_ok_and(|descriptor| is_timer(descriptor.path()))).count()
}

/// Uses the engine on a thread that stays alive, and drops the armed sleeps there.
fn use_on_a_thread_that_stays_alive(engine: &Engine, count: usize) -> std::sync::mpsc::Sender<()> {
    let (is_used, used) = channel();
    let (stay, stays) = channel();
    let engine = engine.clone();
    thread::spawn(move || {
        drop(armed(&engine, count));
        drop(engine);
        is_used.send(()).unwrap();
        let _ = stays.recv();
    });
    used.recv().unwrap();
    stay
}

#[test]
fn d70_p7_the_memory_of_an_engine_is_freed_with_its_last_handle_though_threads_that_used_it_live_on() {
    let _alone = one_at_a_time();
    for kind in [QueueKind::Wheel, QueueKind::Heap, QueueKind::ListTree] {
        let before = allocated();
        let engine = Engine::builder().queue(kind).build().unwrap();
        let _stays = [(); 2].map(|()| use_on_a_thread_that_stays_alive(&engine, 100_000));
        assert!(allocated() - before > 4_000_000, "the sleeps must take memory");
        drop(engine);
        eventually("the memory is freed", || allocated() - before < LEFT);
    }
}

#[test]
fn d70_p7_the_memory_of_an_engine_is_freed_with_the_last_of_its_timers() {
    let _alone = one_at_a_time();
    let before = allocated();
    let engine = Engine::builder().clock(Clock::manual()).shards(2).build().unwrap();
    let mut here = armed(&engine, 50_000);
    let elsewhere = thread::scope(|scope| scope.spawn(|| armed(&engine, 50_000)).join().unwrap());
    drop(engine);
    assert!(here.iter().chain(&elsewhere).all(|sleep| sleep.outcome() == Some(Outcome::Stopped)));
    let last = here.pop();
    // Dropped on the thread that armed them, and on another.
    drop((here, elsewhere));
    assert!(last.is_some_and(|sleep| sleep.outcome() == Some(Outcome::Stopped)));
    assert!(allocated() - before < LEFT, "{} bytes are left", allocated() - before);
}

#[cfg(tourbillon_timerfd)]
#[test]
fn d70_p7_the_descriptor_of_an_engine_is_closed_with_its_last_handle() {
    let _alone = one_at_a_time();
    let before = kernel_timers();
    let engines: Vec<_> = (0..50).map(|_| Engine::builder().build().unwrap()).collect();
    let _stay: Vec<_> = engines.iter().map(|engine| use_on_a_thread_that_stays_alive(engine, 1)).collect();
    let sleeps: Vec<_> = engines.iter().flat_map(|engine| armed(engine, 1)).collect();
    assert_eq!(kernel_timers() - before, 50);
    drop(engines);
    eventually("the descriptors are closed, though sleeps are left", || kernel_timers() == before);
    drop(sleeps);
}

#[test]
fn d70_a_thread_may_use_a_thousand_engines() {
    let _alone = one_at_a_time();
    let before = allocated();
    let engines: Vec<_> = (0..1000).map(|_| Engine::builder().clock(Clock::manual()).build().unwrap()).collect();
    let mut sleeps: Vec<_> = engines.iter().flat_map(|engine| armed(engine, 2)).collect();
    // Half of the sleeps are cancelled on this thread, the owner of the shard; the other half fires.
    let mut index = 0;
    sleeps.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    for engine in &engines {
        let stats = engine.stats();
        assert_eq!((stats.armed, stats.cancelled, stats.pending), (2, 1, 1));
        assert_eq!(engine.advance(Duration::from_secs(120)), 1);
    }
    assert!(sleeps.iter().all(|sleep| sleep.is_elapsed()));
    drop((engines, sleeps));
    // A thread frees its shards of dropped engines when it has used about as many others.
    for _ in 0..2000 {
        drop(armed(&Engine::builder().clock(Clock::manual()).build().unwrap(), 1));
    }
    assert!(allocated() - before < 40 * LEFT, "{} bytes are left", allocated() - before);
}

/// A sleep outlives its engine on one thread while another thread drops the engine.
#[test]
fn d70_p2_engines_and_their_sleeps_may_be_dropped_by_any_thread_at_any_moment() {
    let _alone = one_at_a_time();
    let before = allocated();
    for round in 0..200 {
        let engine = Engine::builder().shards(1 + round % 3).build().unwrap();
        let mut sleeps = armed(&engine, 300);
        let (mine, theirs) = (sleeps.split_off(100), sleeps);
        thread::scope(|scope| {
            let other = engine.clone();
            scope.spawn(move || drop(theirs));
            scope.spawn(move || {
                let more = armed_or_stopped(&other, 100);
                drop(other);
                drop(more);
            });
            drop(engine);
            drop(mine);
        });
    }
    eventually("all memory is freed", || allocated() - before < LEFT);
}

fn armed_or_stopped(engine: &Engine, count: usize) -> Vec<Pin<Box<Sleep>>> {
    let task = Task::new();
    let mut sleeps: Vec<_> = (0..count).map(|_| Box::pin(engine.sleep(Duration::from_secs(60)))).collect();
    for sleep in &mut sleeps {
        let _pending_or_stopped = task.poll(sleep.as_mut());
    }
    sleeps
}

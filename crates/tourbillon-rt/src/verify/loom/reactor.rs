//! Tasks that wait for a socket, and removals that other threads leave for the owner of a ring.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;

use loom::sync::Mutex;
use loom::thread;
use tourbillon::Time;

use super::{TestSignal, explore, explore_up_to};
use crate::reactor::Reactor;
use crate::reactor::readiness::{AttemptResult, Direction, Readiness, Registration, WaitOutcome, WaiterId};
use crate::reactor::sys::removals::{PendingRemovals, RemovalRoute, RemovalsOverdue};
use crate::reactor::sys::{ReadyFlags, Selector, SocketEvent, TakeoverOutcome, Token};
use crate::sync::lock;

/// A back end that reports wake-ups and no events.
struct SilentSelector(Arc<TestSignal>);

impl Selector for SilentSelector {
    fn add(&self, _: Token, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: Token, _: BorrowedFd<'_>) {}

    fn wait(&self, _: Option<Time>, _: &mut Vec<SocketEvent>) -> io::Result<()> {
        self.0.wait();
        Ok(())
    }

    fn reports_urgent_data(&self) -> bool {
        true
    }

    fn reap(&self, _: &mut Vec<SocketEvent>) -> io::Result<()> {
        Ok(())
    }

    fn reap_for_owner(&self, _: &mut Vec<SocketEvent>) -> io::Result<TakeoverOutcome> {
        Ok(TakeoverOutcome::Collected)
    }

    fn wake(&self) {
        self.0.raise();
    }
}

/// Returns a reactor that waits until it is woken.
pub(crate) fn silent_reactor() -> Reactor {
    Reactor::new(Box::new(SilentSelector(TestSignal::new())))
}

/// Returns a socket that is registered with the reactor.
pub(crate) fn registered(reactor: &Arc<Reactor>) -> Arc<Readiness> {
    let readiness = Arc::<Readiness>::default();
    register(&readiness, reactor, || ());
    readiness
}

fn register(readiness: &Arc<Readiness>, reactor: &Arc<Reactor>, then: impl FnOnce()) {
    let registered = readiness.register(|_| {
        // Any descriptor will do: the back end does not watch it.
        let token = reactor.add(readiness, io::stdin().as_fd())?;
        then();
        Ok::<_, io::Error>(Registration { reactor: Arc::clone(reactor), token })
    });
    registered.unwrap();
}

/// Removes the registration as the drop of a socket does.
pub(crate) fn end(readiness: &Readiness) {
    if let Some(registration) = readiness.take_registration() {
        registration.reactor.remove(registration.token, io::stdin().as_fd());
    }
}

/// Waits as `IoSource::poll` does, until the attempt succeeds.
fn attend(readiness: &Readiness, direction: Direction, attempt: impl Fn() -> bool) {
    let signal = TestSignal::new();
    let (waker, mut waiter) = (Waker::from(Arc::clone(&signal)), WaiterId::NONE);
    loop {
        let seen = readiness.snapshot();
        if seen.is_worth_a_try(direction) {
            if attempt() {
                break;
            }
            readiness.blocked(direction, seen);
        }
        if readiness.wait(direction, AttemptResult::WouldBlock, &mut waiter, &waker) == WaitOutcome::Waits {
            signal.wait();
        }
    }
    readiness.stop_waiting(direction, waiter);
}

fn became(readiness: &Readiness, ready: ReadyFlags) {
    let mut wakers = Vec::new();
    readiness.became(ready, &mut wakers);
    wakers.into_iter().for_each(Waker::wake);
}

fn evicted(readiness: &Readiness) {
    let mut wakers = Vec::new();
    readiness.evicted(&mut wakers);
    wakers.into_iter().for_each(Waker::wake);
}

/// Bytes that the kernel has for a socket.
#[derive(Default)]
struct KernelBytes(Mutex<usize>);

impl KernelBytes {
    fn come(&self) {
        *lock(&self.0) += 1;
    }

    /// Takes a byte and returns whether there was one.
    fn take(&self) -> bool {
        let mut bytes = lock(&self.0);
        let before = *bytes;
        *bytes = before.saturating_sub(1);
        before > 0
    }
}

/// Fails if `became` takes the wakers before it changes the word, or `wait` reads the word before it has the lock.
#[test]
fn an_event_wakes_a_task_that_waits_or_is_seen_by_one_that_is_about_to() {
    for direction in [Direction::Read, Direction::Write] {
        explore(move || {
            let ready = if direction == Direction::Read { ReadyFlags::READ } else { ReadyFlags::WRITE };
            let readiness = registered(&Arc::new(silent_reactor()));
            let theirs = Arc::clone(&readiness);
            let event = thread::spawn(move || became(&theirs, ready));
            attend(&readiness, direction, || true);
            event.join().unwrap();
            end(&readiness);
        });
    }
}

/// Fails if `evicted` takes no wakers, or takes them under another lock than the one under which it changes the word.
#[test]
fn a_socket_that_is_evicted_wakes_the_tasks_that_wait_for_it() {
    explore(|| {
        let readiness = registered(&Arc::new(silent_reactor()));
        let theirs = Arc::clone(&readiness);
        let evicts = thread::spawn(move || evicted(&theirs));
        attend(&readiness, Direction::Read, || true);
        evicts.join().unwrap();
        end(&readiness);
    });
}

/// Fails if an event wakes one waiter only.
#[test]
fn an_event_wakes_two_tasks_that_wait_for_the_same_direction() {
    explore_up_to(2, || {
        let readiness = registered(&Arc::new(silent_reactor()));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let theirs = Arc::clone(&readiness);
                thread::spawn(move || attend(&theirs, Direction::Read, || true))
            })
            .collect();
        became(&readiness, ReadyFlags::READ);
        others.into_iter().for_each(|other| other.join().unwrap());
        end(&readiness);
    });
}

/// Fails if `take_back` does not compare ticks, or an event does not raise them.
#[test]
fn an_event_that_comes_while_a_read_is_found_to_block_is_not_taken_back() {
    explore(|| {
        let (readiness, bytes) = (registered(&Arc::new(silent_reactor())), Arc::<KernelBytes>::default());
        // An earlier event, whose bytes have been read since.
        became(&readiness, ReadyFlags::READ);
        let (theirs, their_bytes) = (Arc::clone(&readiness), Arc::clone(&bytes));
        let event = thread::spawn(move || {
            their_bytes.come();
            became(&theirs, ReadyFlags::READ);
        });
        attend(&readiness, Direction::Read, || bytes.take());
        event.join().unwrap();
        end(&readiness);
    });
}

/// Fails like the one before, in `exhausted`.
#[test]
fn an_event_that_comes_while_a_read_takes_all_there_was_is_not_taken_back() {
    explore(|| {
        let (readiness, bytes) = (registered(&Arc::new(silent_reactor())), Arc::<KernelBytes>::default());
        bytes.come();
        became(&readiness, ReadyFlags::READ);
        let (theirs, their_bytes) = (Arc::clone(&readiness), Arc::clone(&bytes));
        let event = thread::spawn(move || {
            their_bytes.come();
            became(&theirs, ReadyFlags::READ);
        });
        let seen = readiness.snapshot();
        assert!(bytes.take());
        readiness.exhausted(Direction::Read, seen);
        attend(&readiness, Direction::Read, || bytes.take());
        event.join().unwrap();
        end(&readiness);
    });
}

/// Fails if `register` clears the flags after the socket has been added, or raises no tick.
#[test]
fn an_event_that_comes_while_a_socket_is_being_registered_is_not_lost() {
    explore(|| {
        let (readiness, reactor) = (Arc::<Readiness>::default(), Arc::new(silent_reactor()));
        let mut event = None;
        register(&readiness, &reactor, || {
            let theirs = Arc::clone(&readiness);
            event = Some(thread::spawn(move || became(&theirs, ReadyFlags::READ)));
        });
        attend(&readiness, Direction::Read, || true);
        event.unwrap().join().unwrap();
        end(&readiness);
    });
}

/// Fails if `register` does not check again under the lock.
#[test]
fn a_socket_is_registered_once_though_two_want_to_wait_for_it() {
    explore(|| {
        let (readiness, reactor) = (Arc::<Readiness>::default(), Arc::new(silent_reactor()));
        let times = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let register = {
            let (readiness, reactor, times) = (Arc::clone(&readiness), Arc::clone(&reactor), Arc::clone(&times));
            move || {
                let registered = readiness.register(|before| {
                    assert!(before.is_none());
                    times.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    Ok::<_, Infallible>(Registration { reactor: Arc::clone(&reactor), token: Token(7) })
                });
                registered.unwrap();
            }
        };
        let other = thread::spawn(register.clone());
        register();
        other.join().unwrap();
        assert_eq!(times.load(std::sync::atomic::Ordering::Relaxed), 1);
        drop(readiness.take_registration());
    });
}

/// Fails if `stop_waiting` does nothing, or if an event clears `waits` before it has taken the wakers.
#[test]
fn a_waker_that_is_taken_back_while_an_event_comes_is_gone() {
    // An event of the same direction, which takes the waker, too, and one of the other, which leaves it.
    for ready in [ReadyFlags::READ, ReadyFlags::WRITE] {
        explore(move || {
            let readiness = registered(&Arc::new(silent_reactor()));
            let (signal, mut waiter) = (TestSignal::new(), WaiterId::NONE);
            let waits = readiness.wait(
                Direction::Read,
                AttemptResult::WouldBlock,
                &mut waiter,
                &Waker::from(Arc::clone(&signal)),
            );
            assert_eq!(waits, WaitOutcome::Waits);
            let theirs = Arc::clone(&readiness);
            let event = thread::spawn(move || became(&theirs, ready));
            readiness.stop_waiting(Direction::Read, waiter);
            event.join().unwrap();
            assert_eq!(Arc::strong_count(&signal), 1, "a waker is left behind");
            end(&readiness);
        });
    }
}

/// Fails if `stop_waiting` removes all wakers instead of the caller's.
#[test]
fn a_task_that_stops_waiting_removes_only_its_own_waker() {
    explore_up_to(2, || {
        let readiness = registered(&Arc::new(silent_reactor()));
        let (signal, mut waiter) = (TestSignal::new(), WaiterId::NONE);
        let waits = readiness.wait(Direction::Read, AttemptResult::WouldBlock, &mut waiter, &Waker::from(signal));
        assert_eq!(waits, WaitOutcome::Waits);
        let (waits, event) = (Arc::clone(&readiness), Arc::clone(&readiness));
        let waits = thread::spawn(move || attend(&waits, Direction::Read, || true));
        let event = thread::spawn(move || became(&event, ReadyFlags::READ));
        readiness.stop_waiting(Direction::Read, waiter);
        waits.join().unwrap();
        event.join().unwrap();
        end(&readiness);
    });
}

/// Fails if the owner looks for foreign waiters before it marks that it leaves, or a foreign waiter looks for an owner before it sets its
/// flag; or if that look is less than `SeqCst`. (That the other three have to be, too, loom does not show.)
#[test]
fn a_foreign_waiter_does_not_wait_on_a_reactor_without_an_owner() {
    explore(|| {
        let reactor = Arc::new(silent_reactor());
        let readiness = registered(&reactor);
        let leaves = thread::spawn(move || {
            reactor.leave();
            reactor.evict_foreign_waiters();
        });
        // The socket is evicted, and so can be tried.
        attend(&readiness, Direction::Read, || true);
        leaves.join().unwrap();
        end(&readiness);
    });
}

/// Fails if the signal is raised before the removal is in the list, or if the owner looks only after its wait.
#[test]
fn a_removal_left_for_the_owner_of_a_ring_is_seen_or_ends_its_wait() {
    explore(|| {
        let (left, signal) = (Arc::new(PendingRemovals::default()), TestSignal::new());
        assert!(left.adopt().is_none());
        let (theirs, their_signal) = (Arc::clone(&left), Arc::clone(&signal));
        let removes = thread::spawn(move || {
            if theirs.remove(Token(5)) == RemovalRoute::Queued {
                their_signal.raise();
            }
        });
        assert_eq!(left.remove(Token(6)), RemovalRoute::Direct);
        let mut seen = Vec::new();
        while seen.is_empty() {
            left.finish(|token| Ok(seen.push(token))).unwrap();
            if seen.is_empty() {
                signal.wait();
            }
        }
        assert_eq!(seen, [Token(5)]);
        removes.join().unwrap();
    });
}

/// Fails if the monitor clears the list after one look, or without dropping the ring, or without its lock.
#[test]
fn a_removal_is_finished_by_the_owner_or_goes_with_the_ring_that_is_dropped() {
    explore_up_to(2, || {
        // The polls of a ring.
        let ring = Arc::new(Mutex::new(Some(vec![Token(5), Token(6)])));
        let left = Arc::new(PendingRemovals::default());
        assert!(left.adopt().is_none());
        let theirs = Arc::clone(&left);
        let removes = thread::spawn(move || assert_eq!(theirs.remove(Token(5)), RemovalRoute::Queued));
        let (their_ring, theirs) = (Arc::clone(&ring), Arc::clone(&left));
        let stands_in = thread::spawn(move || {
            for _ in 0..2 {
                let Ok(mut ring) = their_ring.try_lock() else { continue };
                if theirs.check_overdue() == RemovalsOverdue::Yes {
                    *ring = None;
                }
            }
        });
        let look = || {
            let mut ring = lock(&ring);
            if let Some(polls) = &mut *ring {
                left.finish(|token| Ok(polls.retain(|poll| *poll != token))).unwrap();
            }
        };
        look();
        removes.join().unwrap();
        stands_in.join().unwrap();
        look();
        let polls = lock(&ring).take();
        assert!(polls.is_none_or(|polls| polls == [Token(6)]), "it is watched for ever");
    });
}

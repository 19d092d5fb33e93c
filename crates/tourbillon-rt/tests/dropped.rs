//! Operations dropped in flight, a hundred thousand times: no byte is lost or repeated, and nothing is left behind, neither wakers,
//! descriptors, registrations in the kernel, nor memory (D11, F8, P7).
//!
//! `scripts/memcheck` runs this file under valgrind, with fewer operations: `TOURBILLON_DROPS`.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use support::{
    Counted, Random, alone, bytes_from, counted, descriptors, expect_bytes, give_way, on_each_backend_with, pair,
    watched_by_the_kernel,
};
use tourbillon_rt::net::{TcpListener, TcpStream, UdpSocket};
use tourbillon_rt::time::Instant;
use tourbillon_rt::{Incomplete, Io, Operation, Runtime};

/// Counts the bytes that are allocated.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: each method passes its arguments to the system's allocator, which keeps the contract, and only counts beside that.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same: `System` has allocated the pointer, in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the number of operations on each back end, half of them dropped on another thread.
fn operations() -> usize {
    std::env::var("TOURBILLON_DROPS").map_or(100_000, |count| count.parse().expect("a number"))
}

/// The result of an operation.
#[derive(Debug)]
enum Done {
    Read(Vec<u8>),
    Peeked(Vec<u8>),
    Wrote(usize),
    Accepted(TcpStream),
    Connected(TcpStream),
    TimedOut,
}

type Broken = Pin<Box<dyn Future<Output = Done> + Send>>;

/// Limits that never pass, that have passed, and none.
#[derive(Clone, Copy)]
enum Limit {
    None,
    Far,
    Never,
    Zero,
    Past,
}

impl Limit {
    fn random(random: &mut Random) -> Limit {
        [Limit::None, Limit::Far, Limit::Never, Limit::Zero, Limit::Past][random.below(5) as usize]
    }

    async fn of<O: Operation>(self, io: Io<O>) -> io::Result<O::Output> {
        let past = Instant::now();
        match self {
            Limit::None => io.await,
            Limit::Far => io.timeout(Duration::from_secs(3600)).await,
            Limit::Never => io.timeout(Duration::MAX).await,
            Limit::Zero => io.timeout(Duration::ZERO).await,
            Limit::Past => io.deadline(past).await,
        }
    }
}

fn done<T>(result: io::Result<T>, done: impl FnOnce(T) -> Done) -> Done {
    match result {
        Ok(value) => done(value),
        Err(error) if error.kind() == ErrorKind::TimedOut => Done::TimedOut,
        Err(error) => panic!("{error}"),
    }
}

/// Where futures are dropped.
enum Dropper {
    Here,
    Elsewhere(mpsc::Sender<Broken>),
}

impl Dropper {
    fn elsewhere() -> Dropper {
        let (sender, receiver) = mpsc::channel::<Broken>();
        thread::spawn(move || receiver.into_iter().for_each(drop));
        Dropper::Elsewhere(sender)
    }

    fn drop(&self, future: Broken) {
        match self {
            Dropper::Here => drop(future),
            Dropper::Elsewhere(sender) => sender.send(future).unwrap(),
        }
    }
}

/// Polls and drops.
struct Breaker {
    dropper: Dropper,
    waker: Waker,
    counted: Arc<Counted>,
    random: Random,
    /// The number of futures that were dropped while they were pending.
    broken: usize,
    completed: usize,
}

impl Breaker {
    fn new(dropper: Dropper, random: Random) -> Breaker {
        let (counted, waker) = counted();
        Breaker { dropper, waker, counted, random, broken: 0, completed: 0 }
    }

    /// Polls a future a few times, possibly never, with reaps of the reactor in between, and drops it.
    async fn breaks(&mut self, mut future: Broken) -> Option<Done> {
        for _ in 0..self.random.below(4) {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                self.completed += 1;
                return Some(done);
            }
            if self.random.one_in(2) {
                give_way().await;
            }
        }
        self.broken += 1;
        self.dropper.drop(future);
        None
    }

    /// Waits until the thread that drops futures has none left, and no waker is held.
    async fn expect_no_wakers(&self) {
        support::until("all wakers are gone", || Arc::strong_count(&self.counted) == 2).await;
    }
}

/// A connection of which one end writes and the other reads, both known to the byte.
struct Stream {
    a: TcpStream,
    b: TcpStream,
    written: u64,
    read: u64,
}

impl Stream {
    async fn new() -> Stream {
        let (a, b) = pair().await;
        a.set_send_buffer_size(4096).unwrap();
        b.set_recv_buffer_size(4096).unwrap();
        Stream { a, b, written: 0, read: 0 }
    }

    async fn step(&mut self, breaker: &mut Breaker) {
        let (limit, size) = (Limit::random(&mut breaker.random), 1 + breaker.random.below(3000) as usize);
        let (a, b, written) = (self.a.clone(), self.b.clone(), self.written);
        let future: Broken = match breaker.random.below(5) {
            0 => Box::pin(async move {
                let mut buffer = vec![0; size];
                let read = limit.of(b.read(&mut buffer)).await;
                done(read, |count| Done::Read(buffer[..count].to_vec()))
            }),
            1 => Box::pin(async move {
                let mut buffer = vec![0; size + 1];
                let (first, second) = buffer.split_at_mut(size / 2);
                let read = limit.of(b.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)])).await;
                done(read, |count| Done::Read(buffer[..count].to_vec()))
            }),
            2 => Box::pin(async move {
                let mut buffer = vec![0; size];
                let peeked = limit.of(b.peek(&mut buffer)).await;
                done(peeked, |count| Done::Peeked(buffer[..count].to_vec()))
            }),
            3 => Box::pin(async move {
                let bytes = bytes_from(written, size);
                done(limit.of(a.write(&bytes)).await, Done::Wrote)
            }),
            _ => Box::pin(async move {
                let bytes = bytes_from(written, size);
                let (first, second) = bytes.split_at(size / 2);
                done(limit.of(a.write_vectored(&[IoSlice::new(first), IoSlice::new(second)])).await, Done::Wrote)
            }),
        };
        match breaker.breaks(future).await {
            Some(Done::Read(bytes)) => {
                assert!(!bytes.is_empty());
                expect_bytes(&bytes, self.read);
                self.read += bytes.len() as u64;
            }
            Some(Done::Peeked(bytes)) => expect_bytes(&bytes, self.read),
            Some(Done::Wrote(count)) => self.written += count as u64,
            _ => {}
        }
        assert!(self.read <= self.written);
    }

    /// Checks that the bytes that were written are those that can be read.
    async fn finish(mut self) {
        let mut buffer = [0; 4096];
        while self.read < self.written {
            let count = support::soon("the rest", self.b.read(&mut buffer)).await.unwrap();
            assert_ne!(count, 0);
            expect_bytes(&buffer[..count], self.read);
            self.read += count as u64;
        }
        assert_eq!(self.read, self.written);
        assert_eq!(self.b.read(&mut buffer).timeout(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}

/// Connections for operations that go on until all is done: their progress is known when they time out, and found out at the other end
/// when they are dropped.
struct Whole {
    a: TcpStream,
    b: TcpStream,
    place: u64,
}

impl Whole {
    async fn new() -> Whole {
        let (a, b) = pair().await;
        a.set_nodelay(true).unwrap();
        a.set_send_buffer_size(30_000).unwrap();
        b.set_recv_buffer_size(30_000).unwrap();
        Whole { a, b, place: 0 }
    }

    async fn step(&mut self, breaker: &mut Breaker) {
        if breaker.random.one_in(2) { self.write_all(breaker).await } else { self.read_exact(breaker).await }
    }

    async fn write_all(&mut self, breaker: &mut Breaker) {
        let (limit, size) = (Limit::random(&mut breaker.random), 1 + breaker.random.below(200_000) as usize);
        let (a, place) = (self.a.clone(), self.place);
        let writes = Box::pin(async move {
            match limit.of(a.write_all(&bytes_from(place, size))).await {
                Ok(()) => Done::Wrote(size),
                Err(error) => Done::Wrote(how_far(&error)),
            }
        });
        match breaker.breaks(writes).await {
            Some(Done::Wrote(count)) => {
                let mut bytes = vec![0; count];
                support::soon("what was written", self.b.read_exact(&mut bytes)).await.unwrap();
                expect_bytes(&bytes, self.place);
                self.place += count as u64;
            }
            _ => {
                let bytes = self.read_to_the_end().await;
                assert!(bytes.len() <= size);
                expect_bytes(&bytes, self.place);
                *self = Whole::new().await;
            }
        }
    }

    async fn read_exact(&mut self, breaker: &mut Breaker) {
        let (limit, sent) = (Limit::random(&mut breaker.random), 1 + breaker.random.below(3000) as usize);
        self.a.write_all(&bytes_from(self.place, sent)).await.unwrap();
        let (b, wanted) = (self.b.clone(), 1 + breaker.random.below(2 * sent as u64) as usize);
        let reads = Box::pin(async move {
            let mut buffer = vec![0; wanted];
            let count = match limit.of(b.read_exact(&mut buffer)).await {
                Ok(()) => wanted,
                Err(error) => how_far(&error),
            };
            Done::Read(buffer[..count].to_vec())
        });
        match breaker.breaks(reads).await {
            Some(Done::Read(bytes)) => {
                let mut left = vec![0; sent - bytes.len()];
                support::soon("what is left", self.b.read_exact(&mut left)).await.unwrap();
                expect_bytes(&[bytes, left].concat(), self.place);
                self.place += sent as u64;
            }
            _ => {
                // The last bytes are left; the first ones may have gone with the future.
                let left = self.read_to_the_end().await;
                assert!(left.len() <= sent);
                expect_bytes(&left, self.place + (sent - left.len()) as u64);
                *self = Whole::new().await;
            }
        }
    }

    /// Reads all bytes that have been written and not read.
    async fn read_to_the_end(&self) -> Vec<u8> {
        self.a.shutdown(Shutdown::Write).unwrap();
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 50_000]);
        loop {
            match support::soon("the rest", self.b.read(&mut buffer)).await.unwrap() {
                0 => break,
                count => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        reset(&self.b);
        bytes
    }
}

fn how_far(error: &io::Error) -> usize {
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    error.get_ref().and_then(|error| error.downcast_ref::<Incomplete>()).expect("how far it came").done
}

/// Two sockets; each datagram has a number.
struct Datagrams {
    a: Arc<UdpSocket>,
    b: Arc<UdpSocket>,
    sent: VecDeque<u64>,
    next: u64,
}

impl Datagrams {
    fn new() -> Datagrams {
        let bind = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let (a, b) = (bind(), bind());
        a.connect(b.local_addr().unwrap()).unwrap();
        Datagrams { a, b, sent: VecDeque::new(), next: 0 }
    }

    async fn step(&mut self, breaker: &mut Breaker) {
        let limit = Limit::random(&mut breaker.random);
        let (a, b, next) = (Arc::clone(&self.a), Arc::clone(&self.b), self.next);
        let sends = breaker.random.below(5) < 2 && self.sent.len() < 20;
        let kind = breaker.random.below(3);
        let future: Broken = match kind {
            0 if sends => Box::pin(async move { done(limit.of(a.send(&next.to_ne_bytes())).await, Done::Wrote) }),
            _ if sends => Box::pin(async move {
                let to = b.local_addr().unwrap();
                done(limit.of(a.send_to(&next.to_ne_bytes(), to)).await, Done::Wrote)
            }),
            0 => Box::pin(async move {
                let mut buffer = [0; 16];
                let received = limit.of(b.recv(&mut buffer)).await;
                done(received, |count| Done::Read(buffer[..count].to_vec()))
            }),
            1 => Box::pin(async move {
                let mut buffer = [0; 16];
                let received = limit.of(b.recv_from(&mut buffer)).await;
                done(received, |(count, _)| Done::Read(buffer[..count].to_vec()))
            }),
            _ => Box::pin(async move {
                let mut buffer = [0; 16];
                let peeked = limit.of(b.peek_from(&mut buffer)).await;
                done(peeked, |(count, _)| Done::Peeked(buffer[..count].to_vec()))
            }),
        };
        match breaker.breaks(future).await {
            Some(Done::Wrote(_)) => {
                self.sent.push_back(next);
                self.next += 1;
            }
            Some(Done::Read(bytes)) => {
                assert_eq!(Some(u64::from_ne_bytes(bytes.try_into().unwrap())), self.sent.pop_front());
            }
            Some(Done::Peeked(bytes)) => {
                assert_eq!(Some(u64::from_ne_bytes(bytes.try_into().unwrap())), self.sent.front().copied());
            }
            _ => {}
        }
    }
}

/// A listener, and the clients that connect to it.
struct Connections {
    listener: Arc<TcpListener>,
}

impl Connections {
    fn new() -> Connections {
        Connections { listener: Arc::new(TcpListener::bind("127.0.0.1:0").unwrap()) }
    }

    async fn step(&mut self, breaker: &mut Breaker) {
        let limit = Limit::random(&mut breaker.random);
        let (listener, address) = (Arc::clone(&self.listener), self.listener.local_addr().unwrap());
        if breaker.random.one_in(2) {
            // An accept that is dropped takes no connection.
            let connects = breaker.random.one_in(2);
            let client = if connects { Some(TcpStream::connect(address).await.unwrap()) } else { None };
            let accepts =
                Box::pin(async move { done(limit.of(listener.accept()).await, |(stream, _)| Done::Accepted(stream)) });
            let accepted = match breaker.breaks(accepts).await {
                Some(Done::Accepted(stream)) => Some(stream),
                _ if connects => Some(support::soon("accept", self.listener.accept()).await.unwrap().0),
                _ => None,
            };
            assert_eq!(
                client.as_ref().map(|client| client.local_addr().unwrap()),
                accepted.as_ref().map(|stream| stream.peer_addr().unwrap())
            );
            accepted.iter().for_each(reset);
        } else {
            // A connect that is dropped may have succeeded, for a while.
            let connects = Box::pin(async move { done(limit.of(TcpStream::connect(address)).await, Done::Connected) });
            let connected = breaker.breaks(connects).await;
            if let Some(Done::Connected(stream)) = &connected {
                assert_eq!(stream.peer_addr().unwrap(), address);
            }
            while let Ok((stream, _)) = self.listener.accept().timeout(Duration::ZERO).await {
                reset(&stream);
            }
            drop(connected);
        }
    }
}

/// Makes the close of a stream reset it, so that no port is occupied for a minute.
fn reset(stream: &TcpStream) {
    let _ = stream.set_linger(Some(Duration::ZERO));
}

/// Returns the numbers of descriptors and of watched sockets of the process.
fn held() -> (usize, usize) {
    (descriptors(), watched_by_the_kernel())
}

async fn break_operations(mut breaker: Breaker, count: usize) {
    let (mut stream, mut whole) = (Stream::new().await, Whole::new().await);
    let (mut datagrams, mut connections) = (Datagrams::new(), Connections::new());
    let mut before = None;
    for number in 0..count {
        match breaker.random.below(200) {
            0 => whole.step(&mut breaker).await,
            1..5 => connections.step(&mut breaker).await,
            5..60 => datagrams.step(&mut breaker).await,
            _ => stream.step(&mut breaker).await,
        }
        // By then every socket is registered and every vector has grown.
        if number == count / 10 {
            breaker.expect_no_wakers().await;
            before = Some((held(), LIVE.load(Ordering::SeqCst)));
        }
    }
    breaker.expect_no_wakers().await;
    let (before, live_before) = before.unwrap();
    // A new connection may not be registered yet.
    let (descriptors, watched) = held();
    // One that is dropped on another thread may be closed there just now.
    assert!(descriptors <= before.0 + 4, "{descriptors} descriptors, {} before", before.0);
    assert!(watched <= before.1 + 4, "{watched} sockets are watched, {} before", before.1);
    let grown = LIVE.load(Ordering::SeqCst) - live_before;
    // A queue frees its old buffers when all threads have passed a point, so some may be left; far less than tens of thousands of
    // operations would leave behind.
    assert!(grown < 1_000_000, "{grown} bytes more are allocated");
    stream.finish().await;
    println!("{} dropped in flight, {} completed", breaker.broken, breaker.completed);
    assert!(breaker.broken > count / 3 && breaker.completed > count / 10);
}

/// Runs the test, and compares the resources of the process before and after it.
fn leaves_nothing_behind(workers: usize, run: impl Fn(&Runtime, Random)) {
    let _alone = alone();
    on_each_backend_with(workers, |runtime| {
        let before = held();
        run(runtime, Random::new());
        // The slot of `block_on`, with its reactor, stays for the next call. A worker watches its eventfd from when it first parks, which
        // may have been after the first look.
        let (descriptors, watched) = held();
        let is_clean = descriptors <= before.0 + 4 && watched <= before.1 + 2 + workers;
        assert!(is_clean, "{before:?}, then {descriptors}, {watched}");
    });
}

#[test]
fn d11_f8_p7_operations_dropped_at_every_point_lose_no_byte_and_leave_nothing_behind() {
    leaves_nothing_behind(0, |runtime, random| {
        runtime.block_on(break_operations(Breaker::new(Dropper::Here, random), operations() / 2));
    });
}

#[test]
fn d11_f8_p7_so_do_operations_that_are_dropped_on_the_worker_that_has_the_sockets() {
    leaves_nothing_behind(1, |runtime, random| {
        let task = runtime.spawn(break_operations(Breaker::new(Dropper::Here, random), operations() / 2));
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn d11_f8_p7_so_do_operations_that_are_dropped_on_other_threads() {
    leaves_nothing_behind(2, |runtime, random| {
        let breaker = Breaker::new(Dropper::elsewhere(), random);
        let task = runtime.spawn(break_operations(breaker, operations() / 2));
        runtime.block_on(task).unwrap();
    });
}

//! Some seconds of everything at once: random limits, resets, drops, aborts; and every byte accounted for.

mod backends;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use backends::{ms, on_each_backend_with, pair};
use tourbillon_rt::net::TcpStream;
use tourbillon_rt::{spawn, time};

/// A number after the other, from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn seed() -> u64 {
    let given = std::env::var("TOURBILLON_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    });
    println!("TOURBILLON_SEED={seed}");
    seed
}

/// The byte at that place of every stream.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

/// Writes for a while, with limits that often pass. How many bytes went.
async fn write(stream: TcpStream, mut random: Random, rounds: u64) -> u64 {
    let mut sent = 0;
    for _ in 0..rounds {
        let length = 1 + random.below(20_000);
        let bytes: Vec<u8> = (sent..sent + length).map(byte).collect();
        let limit = Duration::from_micros(random.below(300));
        if random.below(4) == 0 {
            // Dropped before it has succeeded: then it has written nothing.
            let mut write = std::pin::pin!(stream.write(&bytes));
            let done = std::future::poll_fn(|context| std::task::Poll::Ready(write.as_mut().poll(context))).await;
            if let std::task::Poll::Ready(count) = done {
                sent += count.unwrap() as u64;
            }
            continue;
        }
        match stream.write(&bytes).timeout(limit).await {
            Ok(count) => sent += count as u64,
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
        }
    }
    sent
}

/// Reads until the end, with limits that often pass. How many bytes came, each of which was the right one.
async fn read(stream: TcpStream, mut random: Random) -> u64 {
    let mut received = 0;
    let mut buffer = vec![0; 30_000];
    loop {
        let room = 1 + random.below(30_000) as usize;
        match stream.read(&mut buffer[..room]).timeout(Duration::from_micros(random.below(500))).await {
            Ok(0) => return received,
            Ok(count) => {
                for (offset, got) in buffer[..count].iter().enumerate() {
                    assert_eq!(*got, byte(received + offset as u64));
                }
                received += count as u64;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
        }
        if random.below(50) == 0 {
            time::sleep(Duration::from_micros(random.below(1000))).await;
        }
    }
}

#[test]
fn f8_d5_bytes_sent_are_bytes_received_under_random_limits_drops_and_moves() {
    let seed = seed();
    on_each_backend_with(2, |runtime| {
        let mut random = Random(seed);
        let total = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..40)
            .map(|_| {
                let (ours, theirs) = (Random(random.next()), Random(random.next()));
                let (rounds, total) = (100 + random.below(300), Arc::clone(&total));
                runtime.spawn(async move {
                    let (a, b) = pair().await;
                    a.set_send_buffer_size(16_384).unwrap();
                    let reader = spawn(read(b, theirs));
                    let sent = spawn(write(a, ours, rounds)).await.unwrap();
                    assert_eq!(reader.await.unwrap(), sent);
                    total.fetch_add(sent, Ordering::Relaxed);
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert!(total.load(Ordering::Relaxed) > 0);
    });
}

#[test]
fn resets_and_aborts_at_random_leave_the_runtime_whole() {
    let seed = seed();
    on_each_backend_with(2, |runtime| {
        let mut random = Random(seed);
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..300 {
            let (mut random, ended) = (Random(random.next()), Arc::clone(&ended));
            drop(runtime.spawn(async move {
                let (a, b) = pair().await;
                let reads = spawn({
                    let a = a.clone();
                    async move { while a.read(&mut [0; 256]).timeout(ms(50)).await.is_ok_and(|count| count > 0) {} }
                });
                let writes = spawn(async move { while a.write_all(&[1; 4096]).timeout(ms(20)).await.is_ok() {} });
                time::sleep(Duration::from_micros(random.below(2000))).await;
                match random.below(4) {
                    0 => b.set_linger(Some(Duration::ZERO)).unwrap(),
                    1 => reads.abort(),
                    2 => writes.abort(),
                    _ => b.shutdown(std::net::Shutdown::Both).unwrap(),
                }
                drop(b);
                let _ = (reads.await, writes.await);
                ended.fetch_add(1, Ordering::SeqCst);
            }));
        }
        backends::eventually("all have ended", || ended.load(Ordering::SeqCst) == 300);
        runtime.block_on(async {
            let (a, b) = pair().await;
            a.write_all(b"fine").await.unwrap();
            b.read_exact(&mut [0; 4]).await.unwrap();
        });
    });
}

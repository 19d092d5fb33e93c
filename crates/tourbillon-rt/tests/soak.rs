//! Some seconds of connections that end in every way: bytes received are bytes sent, or an error says that they are not (F8, D5, D6).

mod support;

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use support::{Random, bytes_from, eventually, expect_bytes, ms, on_each_backend_with, pair, poll_once, soon};
use tourbillon_rt::net::TcpStream;
use tourbillon_rt::{Incomplete, spawn, time};

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The writer has written everything and closes its side.
    Orderly,
    /// The writer resets the connection.
    WriterResets,
    /// The reader resets the connection.
    ReaderResets,
    /// The writing task is aborted in the middle of an operation; the connection is closed, not reset.
    Aborted,
}

/// The result of one side: the number of bytes, and the error if there was one.
type Account = (u64, Option<ErrorKind>);

fn how_far(error: &io::Error) -> usize {
    error.get_ref().and_then(|error| error.downcast_ref::<Incomplete>()).map_or(0, |incomplete| incomplete.done)
}

/// Does one operation of any kind, with a limit that often passes, or drops it. Returns the number of bytes, and an error that is no time
/// limit.
async fn write_some(stream: &TcpStream, random: &mut Random, place: u64) -> (usize, Option<ErrorKind>) {
    let bytes = bytes_from(place, 1 + random.below(20_000) as usize);
    let limit = Duration::from_micros(random.below(300));
    let written = match random.below(4) {
        0 => {
            // Polled once and dropped.
            let mut write = pin!(stream.write(&bytes));
            match poll_once(write.as_mut()).await {
                Poll::Ready(written) => written,
                Poll::Pending => Ok(0),
            }
        }
        1 => {
            let (first, second) = bytes.split_at(bytes.len() / 3);
            stream.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]).timeout(limit).await
        }
        2 => match stream.write_all(&bytes).timeout(limit).await {
            Ok(()) => Ok(bytes.len()),
            // The error, too, says how far the operation came.
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(how_far(&error)),
            Err(error) => return (how_far(&error), Some(error.kind())),
        },
        _ => stream.write(&bytes).deadline(time::Instant::now() + limit).await,
    };
    passing(written).map_or_else(|kind| (0, Some(kind)), |count| (count, None))
}

/// The result of a read. The system reports a reset once: a read that gets it with its last bytes reports it then.
enum Got {
    Bytes(usize),
    TheEnd,
    Error(usize, ErrorKind),
}

async fn read_some(stream: &TcpStream, random: &mut Random, buffer: &mut [u8]) -> Got {
    let room = 1 + random.below(buffer.len() as u64) as usize;
    let (buffer, limit) = (&mut buffer[..room], Duration::from_micros(random.below(300)));
    let read = match random.below(4) {
        0 => {
            let (first, second) = buffer.split_at_mut(room / 3);
            stream.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)]).timeout(limit).await
        }
        1 => match stream.read_exact(buffer).timeout(limit).await {
            Ok(()) => return Got::Bytes(room),
            Err(error) if error.kind() == ErrorKind::TimedOut => return Got::Bytes(how_far(&error)),
            // The end comes again.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && how_far(&error) > 0 => {
                return Got::Bytes(how_far(&error));
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => return Got::Error(how_far(&error), error.kind()),
        },
        2 => match stream.peek(buffer).timeout(limit).await {
            Ok(count) if count > 0 => return Got::Bytes(0),
            peeked => peeked,
        },
        _ => stream.read(buffer).timeout(limit).await,
    };
    match read {
        Ok(0) => Got::TheEnd,
        read => passing(read).map_or_else(|kind| Got::Error(0, kind), Got::Bytes),
    }
}

/// A time limit is no error: nothing has been moved.
fn passing(result: io::Result<usize>) -> Result<usize, ErrorKind> {
    match result {
        Ok(count) => Ok(count),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(0),
        Err(error) => Err(error.kind()),
    }
}

async fn writer(stream: TcpStream, mut random: Random, end: End, rounds: u64) -> Account {
    let mut sent = 0;
    for round in 0.. {
        // A writer that waits for a reset goes on until it comes.
        if round >= rounds && end != End::ReaderResets {
            break;
        }
        let (count, error) = write_some(&stream, &mut random, sent).await;
        sent += count as u64;
        if error.is_some() {
            return (sent, error);
        }
    }
    match end {
        End::WriterResets => stream.set_linger(Some(Duration::ZERO)).unwrap(),
        _ => stream.shutdown(Shutdown::Write).unwrap(),
    }
    (sent, None)
}

async fn reader(stream: TcpStream, mut random: Random, end: End, rounds: u64) -> Account {
    let (mut received, mut buffer) = (0, vec![0; 30_000]);
    for round in 0.. {
        if round >= rounds && end == End::ReaderResets {
            stream.set_linger(Some(Duration::ZERO)).unwrap();
            break;
        }
        let (count, error) = match read_some(&stream, &mut random, &mut buffer).await {
            Got::Bytes(count) => (count, None),
            Got::TheEnd => break,
            Got::Error(count, kind) => (count, Some(kind)),
        };
        expect_bytes(&buffer[..count], received);
        received += count as u64;
        if error.is_some() {
            return (received, error);
        }
    }
    (received, None)
}

async fn connection(mut random: Random) -> (End, u64) {
    let end = [End::Orderly, End::WriterResets, End::ReaderResets, End::Aborted][random.below(4) as usize];
    let (a, b) = pair().await;
    a.set_send_buffer_size(16_384).unwrap();
    let (writes, reads) = (random.split(), random.split());
    let rounds = 20 + random.below(200);
    let reads = spawn(reader(b, reads, end, rounds));
    let writes = spawn(writer(a, writes, end, rounds));
    if end == End::Aborted {
        time::sleep(Duration::from_micros(random.below(5000))).await;
        writes.abort();
    }
    let written = soon("the writer", writes).await;
    let (received, read_error) = soon("the reader", reads).await.unwrap();
    match (end, written) {
        (End::Orderly, Ok((sent, None))) => assert_eq!((received, read_error), (sent, None)),
        (End::WriterResets, Ok((sent, None))) => {
            assert!(received <= sent);
            assert_eq!(read_error, Some(ErrorKind::ConnectionReset), "the end would be a lie");
        }
        (End::ReaderResets, Ok((sent, Some(kind)))) => {
            assert!(received <= sent && read_error.is_none());
            assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind:?}");
        }
        // The writer had ended before; or it was aborted, and what it has written has come in order.
        (End::Aborted, Ok((sent, None))) => assert_eq!((received, read_error), (sent, None)),
        (End::Aborted, Err(error)) => assert!(error.is_cancelled() && read_error.is_none(), "{error}, {read_error:?}"),
        other => panic!("{other:?}, {received} received, {read_error:?}"),
    }
    (end, received)
}

#[test]
fn f8_d5_bytes_received_are_bytes_sent_or_an_error_says_so_however_a_connection_ends() {
    on_each_backend_with(2, |runtime| {
        let mut random = Random::new();
        let until = Instant::now() + Duration::from_millis(1500);
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let mut random = random.split();
                runtime.spawn(async move {
                    let mut ends = Vec::new();
                    while Instant::now() < until {
                        ends.push(connection(random.split()).await);
                    }
                    ends
                })
            })
            .collect();
        let mut ends = Vec::new();
        runtime.block_on(async {
            for task in tasks {
                ends.extend(task.await.unwrap());
            }
        });
        let bytes: u64 = ends.iter().map(|(_, bytes)| bytes).sum();
        println!("{} connections, {bytes} bytes", ends.len());
        for end in [End::Orderly, End::WriterResets, End::ReaderResets, End::Aborted] {
            assert!(ends.iter().any(|(seen, _)| *seen == end), "{end:?} has not been tried");
        }
    });
}

#[test]
fn resets_and_aborts_at_random_leave_the_runtime_whole() {
    on_each_backend_with(2, |runtime| {
        let mut random = Random::new();
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..300 {
            let (mut random, ended) = (random.split(), Arc::clone(&ended));
            runtime.spawn(async move {
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
            });
        }
        eventually("all have ended", || ended.load(Ordering::SeqCst) == 300);
        runtime.block_on(async {
            let (a, b) = pair().await;
            a.write_all(b"fine").await.unwrap();
            b.read_exact(&mut [0; 4]).await.unwrap();
        });
    });
}

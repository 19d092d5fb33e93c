//! Time limits of I/O, and futures dropped at every await point, on both back ends (F8, D5 to D7, D11).

mod support;

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use support::{everywhere, kind, ms, pair};
use tourbillon_rt::net::{TcpListener, TcpStream, UdpSocket};
use tourbillon_rt::time::{self, Instant};
use tourbillon_rt::{Incomplete, spawn};

/// Returns a stream whose peer reads nothing, filled until no more can be written.
async fn full() -> (TcpStream, TcpStream) {
    let (a, b) = pair().await;
    a.set_send_buffer_size(4096).unwrap();
    b.set_recv_buffer_size(4096).unwrap();
    while a.write(&[7; 65536]).timeout(ms(5)).await.is_ok() {}
    (a, b)
}

#[test]
fn f8_d6_every_operation_that_waits_times_out_and_says_so() {
    everywhere(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (a, _b) = pair().await;
        let mut buffer = [0; 8];
        let start = std::time::Instant::now();
        assert_eq!(kind(listener.accept().timeout(ms(2)).await), ErrorKind::TimedOut);
        assert_eq!(kind(a.read(&mut buffer).timeout(ms(2)).await), ErrorKind::TimedOut);
        assert_eq!(kind(a.peek(&mut buffer).timeout(ms(2)).await), ErrorKind::TimedOut);
        assert_eq!(kind(a.read_exact(&mut buffer).timeout(ms(2)).await), ErrorKind::TimedOut);
        let (mut left, mut right) = ([0; 4], [0; 4]);
        let slices = &mut [IoSliceMut::new(&mut left), IoSliceMut::new(&mut right)];
        assert_eq!(kind(a.read_vectored(slices).timeout(ms(2)).await), ErrorKind::TimedOut);
        assert_eq!(kind(udp.recv(&mut buffer).timeout(ms(2)).await), ErrorKind::TimedOut);
        assert_eq!(kind(udp.recv_from(&mut buffer).timeout(ms(2)).await), ErrorKind::TimedOut);
        assert_eq!(kind(udp.peek_from(&mut buffer).timeout(ms(2)).await), ErrorKind::TimedOut);
        assert!(start.elapsed() >= ms(16), "p1: none of the eight is early");
        let (full, _peer) = full().await;
        assert_eq!(kind(full.write(b"no").timeout(ms(2)).await), ErrorKind::TimedOut);
        assert_eq!(kind(full.write_all(b"no").timeout(ms(2)).await), ErrorKind::TimedOut);
        assert_eq!(kind(full.write_vectored(&[IoSlice::new(b"no")]).timeout(ms(2)).await), ErrorKind::TimedOut);
    });
}

#[test]
fn f8_a_connection_attempt_without_an_answer_times_out_and_closes_its_socket() {
    everywhere(|| async {
        // A listener whose backlog is full does not answer.
        let listener = tourbillon_rt::net::ListenOptions::new().backlog(0).bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepted = Vec::new();
        let error = loop {
            match TcpStream::connect(address).timeout(ms(20)).await {
                Ok(stream) => accepted.push(stream),
                Err(error) => break error,
            }
            assert!(accepted.len() < 100, "no connection is accepted");
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn f8_the_earlier_of_timeout_and_deadline_counts() {
    everywhere(|| async {
        let (a, _b) = pair().await;
        let mut buffer = [0; 1];
        let hour = Duration::from_secs(3600);
        let soon = Instant::now() + ms(3);
        assert_eq!(kind(a.read(&mut buffer).timeout(hour).deadline(soon).await), ErrorKind::TimedOut);
        assert!(Instant::now() >= soon);
        assert_eq!(kind(a.read(&mut buffer).deadline(Instant::now() + hour).timeout(ms(1)).await), ErrorKind::TimedOut);
        assert_eq!(kind(a.read(&mut buffer).deadline(soon).await), ErrorKind::TimedOut, "it has passed");
        assert_eq!(kind(a.read(&mut buffer).timeout(Duration::MAX).timeout(ms(1)).await), ErrorKind::TimedOut);
    });
}

#[test]
fn d5_bytes_that_are_there_are_read_whatever_the_time() {
    everywhere(|| async {
        let (a, b) = pair().await;
        let mut buffer = [0; 8];
        assert_eq!(kind(a.read(&mut buffer).timeout(Duration::ZERO).await), ErrorKind::TimedOut, "a try");
        b.write_all(b"12345678").await.unwrap();
        let past = Instant::now() - ms(50);
        assert_eq!(a.read(&mut buffer[..4]).deadline(past).await.unwrap(), 4);
        assert_eq!(a.read(&mut buffer[..4]).timeout(Duration::ZERO).await.unwrap(), 4);
        assert_eq!(kind(a.read(&mut buffer).timeout(Duration::ZERO).await), ErrorKind::TimedOut);
    });
}

#[test]
fn d5_a_completion_and_a_deadline_in_one_iteration_give_the_completion() {
    everywhere(|| async {
        for _ in 0..20 {
            let (a, b) = pair().await;
            let mut buffer = [0; 8];
            let mut read = pin!(a.read(&mut buffer).timeout(ms(2)));
            let is_pending = poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_pending())).await;
            assert!(is_pending);
            // Both happen while the thread is blocked.
            b.write_all(b"in time").await.unwrap();
            std::thread::sleep(ms(4));
            assert_eq!(read.await.unwrap(), 7);
        }
    });
}

#[test]
fn d7_thousands_of_timeouts_at_once_all_end_and_leave_the_sockets_usable() {
    everywhere(|| async {
        let mut pairs = Vec::new();
        for _ in 0..500 {
            pairs.push(pair().await);
        }
        let tasks: Vec<_> = pairs
            .into_iter()
            .map(|(a, b)| {
                spawn(async move {
                    let mut buffer = [0; 4];
                    let deadline = Instant::now() + ms(10);
                    for _ in 0..5 {
                        assert_eq!(kind(a.read(&mut buffer).deadline(deadline).await), ErrorKind::TimedOut);
                    }
                    b.write_all(b"next").await.unwrap();
                    assert_eq!(a.read(&mut buffer).timeout(Duration::from_secs(20)).await.unwrap(), 4);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn the_error_of_an_incomplete_transfer_says_how_far_it_came() {
    everywhere(|| async {
        let done = |error: std::io::Error| {
            let incomplete = error.get_ref().and_then(|error| error.downcast_ref::<Incomplete>()).unwrap();
            (error.kind(), incomplete.done, incomplete.of)
        };
        let (a, b) = pair().await;
        b.write_all(b"12345").await.unwrap();
        let mut buffer = [0; 8];
        let error = a.read_exact(&mut buffer).timeout(ms(3)).await.unwrap_err();
        assert_eq!((done(error), &buffer[..5]), ((ErrorKind::TimedOut, 5, 8), &b"12345"[..]));
        b.write_all(b"67").await.unwrap();
        drop(b);
        let error = a.read_exact(&mut buffer).await.unwrap_err();
        assert_eq!(done(error), (ErrorKind::UnexpectedEof, 2, 8));

        let (a, b) = pair().await;
        a.set_send_buffer_size(4096).unwrap();
        let bytes = vec![3; 8 << 20];
        let (kind, sent, of) = done(a.write_all(&bytes).timeout(ms(20)).await.unwrap_err());
        assert_eq!((kind, of), (ErrorKind::TimedOut, bytes.len()));
        drop(a);
        let (mut received, mut buffer) = (0, vec![0; 65536]);
        loop {
            match b.read(&mut buffer).await.unwrap() {
                0 => break,
                count => received += count,
            }
        }
        assert_eq!(sent, received);
    });
}

#[test]
fn d11_an_operation_dropped_at_any_await_point_takes_no_byte_and_leaves_no_waker() {
    everywhere(|| async {
        let task = Arc::new(CountsWakers);
        let waker = Waker::from(Arc::clone(&task));
        let (a, b) = pair().await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut buffer = [0; 8];
        let drop_everywhere = |limit: Duration, buffer: &mut [u8]| {
            let context = &mut Context::from_waker(&waker);
            // Never polled, polled once, polled twice.
            drop(a.read(buffer).timeout(limit));
            let _ = pin!(a.read(buffer).timeout(limit)).as_mut().poll(context);
            {
                let mut read = pin!(a.read_exact(buffer).timeout(limit));
                let _ = read.as_mut().poll(context);
                if limit > Duration::from_secs(1) {
                    assert!(read.as_mut().poll(context).is_pending());
                }
            }
            let _ = pin!(a.peek(buffer).timeout(limit)).as_mut().poll(context);
            let _ = pin!(listener.accept().timeout(limit)).as_mut().poll(context);
            let _ = pin!(udp.recv_from(buffer).timeout(limit)).as_mut().poll(context);
            drop(pin!(TcpStream::connect(listener.local_addr().unwrap())).as_mut().poll(context));
        };
        for limit in [Duration::from_secs(9), Duration::from_micros(1), Duration::ZERO] {
            (0..3).for_each(|_| drop_everywhere(limit, &mut buffer));
        }
        time::sleep(ms(1)).await;
        b.write_all(b"all here").await.unwrap();
        a.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"all here");
        drop(waker);
        assert_eq!(Arc::strong_count(&task), 1, "no waker is left anywhere");
    });

    struct CountsWakers;
    impl std::task::Wake for CountsWakers {
        fn wake(self: Arc<Self>) {}
    }
}

#[test]
fn operations_of_many_tasks_on_one_socket_are_all_served() {
    everywhere(|| async {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = socket.local_addr().unwrap();
        let readers: Vec<_> = (0..50)
            .map(|_| {
                let socket = Arc::clone(&socket);
                spawn(async move { socket.recv(&mut [0; 8]).timeout(Duration::from_secs(20)).await })
            })
            .collect();
        time::sleep(ms(2)).await;
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(address).unwrap();
        for _ in 0..50 {
            sender.send(b"datagram").await.unwrap();
            time::sleep(Duration::from_micros(50)).await;
        }
        for reader in readers {
            assert_eq!(reader.await.unwrap().unwrap(), 8);
        }
    });
}

#[test]
fn a_stream_is_read_and_written_at_the_same_time_by_two_tasks() {
    everywhere(|| async {
        let (a, b) = pair().await;
        let copy = |from: TcpStream, length: usize| {
            spawn(async move {
                let mut buffer = vec![0; length];
                from.read_exact(&mut buffer).await.unwrap();
                buffer.iter().map(|byte| u64::from(*byte)).sum::<u64>()
            })
        };
        let readers = [copy(a.clone(), 1 << 20), copy(b.clone(), 1 << 20)];
        let writers = [a, b].map(|stream| spawn(async move { stream.write_all(&vec![3; 1 << 20]).await.unwrap() }));
        for writer in writers {
            writer.await.unwrap();
        }
        for reader in readers {
            assert_eq!(reader.await.unwrap(), 3 << 20);
        }
    });
}

//! TCP and UDP as users meet them: every operation, options, peers that misbehave (F11).

mod support;

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use support::{Random, bytes_from, everywhere, expect_bytes, kind, ms, on_each_backend_with, pair, soon, until};
use tourbillon_rt::net::{ListenOptions, Lookup, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use tourbillon_rt::{Incomplete, spawn, time};

const LOCAL: &str = "127.0.0.1:0";

async fn udp_pair() -> (UdpSocket, UdpSocket) {
    let (a, b) = (UdpSocket::bind(LOCAL).unwrap(), UdpSocket::bind(LOCAL).unwrap());
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    (a, b)
}

/// Sends a byte of urgent data.
fn send_urgent(stream: &TcpStream, byte: u8) {
    // SAFETY: the byte lives as long as the call.
    let sent = unsafe { libc::send(stream.as_fd().as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1);
}

// --- every operation of a stream ---

#[test]
fn f11_addresses_are_those_of_both_ends() {
    everywhere(|| async {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, from) = listener.accept().await.unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        assert_eq!(server.local_addr().unwrap(), client.peer_addr().unwrap());
    });
}

#[test]
fn f11_options_are_those_that_were_set_and_absurd_ones_are_errors_and_no_panics() {
    everywhere(|| async {
        let (a, _b) = pair().await;
        for yes in [true, false] {
            a.set_nodelay(yes).unwrap();
            assert_eq!(a.nodelay().unwrap(), yes);
            a.set_keepalive(yes).unwrap();
        }
        a.set_ttl(17).unwrap();
        assert_eq!(a.ttl().unwrap(), 17);
        assert!(a.set_ttl(100_000).is_err());
        a.set_linger(None).unwrap();
        a.set_linger(Some(Duration::from_secs(1))).unwrap();
        let _ = a.set_linger(Some(Duration::MAX));
        a.set_send_buffer_size(10_000).unwrap();
        a.set_recv_buffer_size(10_000).unwrap();
        let _ = (a.set_send_buffer_size(usize::MAX), a.set_recv_buffer_size(usize::MAX));
        let listener = TcpListener::bind(LOCAL).unwrap();
        listener.set_ttl(33).unwrap();
        assert_eq!(listener.ttl().unwrap(), 33);
        let socket = UdpSocket::bind(LOCAL).unwrap();
        socket.set_ttl(44).unwrap();
        assert_eq!(socket.ttl().unwrap(), 44);
        socket.set_broadcast(true).unwrap();
        assert!(socket.join_multicast_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST).is_err());
    });
}

#[test]
fn f11_buffers_of_all_sizes_in_one_vectored_operation_keep_their_order() {
    everywhere(|| async {
        let (a, b) = pair().await;
        let sent = bytes_from(0, 1000);
        let parts = [&sent[..1], &sent[1..1], &sent[1..500], &sent[500..1000]].map(IoSlice::new);
        assert_eq!(a.write_vectored(&parts).await.unwrap(), 1000);
        until("all of it has come", || futures_lite::future::block_on(b.peek(&mut [0; 2000])).is_ok_and(|n| n == 1000))
            .await;
        let (mut first, mut second, mut third) = ([0; 300], [0; 0], [0; 5000]);
        let mut parts = [&mut first[..], &mut second[..], &mut third[..]].map(IoSliceMut::new);
        assert_eq!(b.read_vectored(&mut parts).await.unwrap(), 1000);
        expect_bytes(&first, 0);
        expect_bytes(&third[..700], 300);
        // And a read that waits.
        let reads = spawn(async move {
            let (mut first, mut second) = ([0; 2], [0; 8]);
            let read = b.read_vectored(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)]).await.unwrap();
            (read, first, second)
        });
        time::sleep(ms(1)).await;
        a.write_all(b"abcd").await.unwrap();
        assert_eq!(reads.await.unwrap(), (4, *b"ab", *b"cd\0\0\0\0\0\0"));
    });
}

#[test]
fn f11_more_buffers_than_the_kernel_takes_at_a_time_are_no_reason_to_wait() {
    everywhere(|| async {
        let (a, b) = pair().await;
        // Both are registered from now on.
        assert!(a.read(&mut [0]).timeout(Duration::ZERO).await.is_err());
        assert!(b.read(&mut [0]).timeout(Duration::ZERO).await.is_err());
        let sent = bytes_from(0, 5000);
        let parts: Vec<_> = sent.chunks(1).map(IoSlice::new).collect();
        let mut written = 0;
        while written < parts.len() {
            written += soon("a write", a.write_vectored(&parts[written..])).await.unwrap();
        }
        // All bytes have come, and the reactor has seen the event, before they are read.
        time::sleep(ms(2)).await;
        let (mut read, mut taken) = (0, vec![0; 5000]);
        while read < taken.len() {
            let mut parts: Vec<_> = taken[read..].chunks_mut(1).map(IoSliceMut::new).collect();
            read += soon("a read", b.read_vectored(&mut parts)).await.unwrap();
        }
        expect_bytes(&taken, 0);
    });
}

#[test]
fn f11_peeked_bytes_are_still_there() {
    everywhere(|| async {
        let (a, b) = pair().await;
        let peeks = {
            let b = b.clone();
            spawn(async move {
                let mut buffer = [0; 3];
                assert_eq!(b.peek(&mut buffer).await.unwrap(), 3);
                buffer
            })
        };
        time::sleep(ms(1)).await;
        a.write_all(b"abc").await.unwrap();
        assert_eq!(&peeks.await.unwrap(), b"abc");
        let mut buffer = [0; 8];
        assert_eq!(b.peek(&mut buffer[..2]).await.unwrap(), 2);
        assert_eq!(b.read(&mut buffer).await.unwrap(), 3);
        assert_eq!(&buffer[..3], b"abc");
        a.shutdown(Shutdown::Write).unwrap();
        assert_eq!(b.peek(&mut buffer).await.unwrap(), 0);
    });
}

#[test]
fn operations_with_empty_buffers_do_no_harm() {
    everywhere(|| async {
        let (a, b) = pair().await;
        a.read_exact(&mut []).await.unwrap();
        a.write_all(&[]).await.unwrap();
        assert_eq!(a.write(&[]).await.unwrap(), 0);
        assert_eq!(a.write_vectored(&[]).await.unwrap(), 0);
        // Also if there is nothing to read, and no room to write.
        assert_eq!(kind(a.read(&mut [0; 1]).timeout(ms(1)).await), ErrorKind::TimedOut);
        soon("nothing to read", a.read_exact(&mut [])).await.unwrap();
        while b.write(&[0; 100_000]).timeout(ms(1)).await.is_ok() {}
        soon("nothing to write", b.write_all(&[])).await.unwrap();
        let (a, b) = pair().await;
        b.write_all(b"x").await.unwrap();
        assert_eq!(a.read(&mut []).await.unwrap(), 0);
        assert_eq!(a.read(&mut [0; 4]).await.unwrap(), 1);
    });
}

#[test]
fn f11_megabytes_in_both_directions_at_once_in_random_pieces_are_whole() {
    on_each_backend_with(2, |runtime| {
        let mut random = Random::new();
        let seeds: Vec<Random> = (0..4).map(|_| random.split()).collect();
        runtime.block_on(async {
            const ALL: u64 = 4_000_000;
            let (a, b) = pair().await;
            let mut tasks = Vec::new();
            for (number, mut random) in seeds.into_iter().enumerate() {
                let stream = if number % 2 == 0 { a.clone() } else { b.clone() };
                let writes = number < 2;
                tasks.push(spawn(async move {
                    let mut place = 0;
                    while place < ALL {
                        let most = (1 + random.below(50_000)).min(ALL - place) as usize;
                        if writes {
                            let bytes = bytes_from(place, most);
                            place += stream.write(&bytes).await.unwrap() as u64;
                        } else {
                            let mut buffer = vec![0; most];
                            let read = stream.read(&mut buffer).await.unwrap();
                            assert_ne!(read, 0);
                            expect_bytes(&buffer[..read], place);
                            place += read as u64;
                        }
                        if random.one_in(50) {
                            time::sleep(Duration::from_micros(random.below(200))).await;
                        }
                    }
                }));
            }
            for task in tasks {
                soon("a transfer", task).await.unwrap();
            }
        });
    });
}

// --- peers that misbehave ---

#[test]
fn a_read_that_ends_before_urgent_data_leaves_no_byte_behind_it() {
    everywhere(|| async {
        let (a, b) = pair().await;
        assert!(b.read(&mut [0]).timeout(Duration::ZERO).await.is_err());
        for _ in 0..3 {
            a.write_all(b"ab").await.unwrap();
            send_urgent(&a, b'!');
            a.write_all(b"cd").await.unwrap();
            // All bytes have come, and the reactor has seen the event, before they are read.
            time::sleep(ms(2)).await;
            let (mut read, mut bytes) = (0, [0; 64]);
            while read < 4 {
                read += soon("a read", b.read(&mut bytes[read..])).await.unwrap();
            }
            assert_eq!(&bytes[..read], b"abcd");
        }
    });
}

#[test]
fn urgent_data_on_many_streams_at_once_leaves_no_byte_behind_it() {
    everywhere(|| async {
        let mut pairs = Vec::new();
        for _ in 0..30 {
            pairs.push(pair().await);
        }
        for _ in 0..3 {
            let readers: Vec<_> = pairs.iter().map(|(_, b)| spawn(read_all_of(b.clone(), 4))).collect();
            for (a, _) in &pairs {
                a.write_all(b"ab").await.unwrap();
                send_urgent(a, b'!');
                a.write_all(b"cd").await.unwrap();
            }
            for reader in readers {
                assert_eq!(soon("a reader", reader).await.unwrap(), b"abcd");
            }
        }
    });
}

/// Reads `count` bytes, as they come.
async fn read_all_of(stream: TcpStream, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let mut some = [0; 64];
        let length = stream.read(&mut some).await.unwrap();
        all.extend(&some[..length]);
    }
    all
}

#[test]
fn a_half_close_ends_the_reads_of_the_peer_and_not_its_writes() {
    everywhere(|| async {
        let (a, b) = pair().await;
        let reads = {
            let b = b.clone();
            spawn(async move { b.read(&mut [0; 4]).await.unwrap() })
        };
        time::sleep(ms(1)).await;
        a.shutdown(Shutdown::Write).unwrap();
        assert_eq!(soon("the end", reads).await.unwrap(), 0);
        assert_eq!(kind(a.write(b"x").await), ErrorKind::BrokenPipe);
        let large = bytes_from(0, 500_000);
        let expected = large.clone();
        let writes = spawn(async move {
            b.write_all(&large).await.unwrap();
            // The end again and again, at once.
            assert_eq!(b.read(&mut [0; 4]).await.unwrap(), 0);
            assert_eq!(b.read(&mut [0; 4]).await.unwrap(), 0);
        });
        let mut received = vec![0; expected.len()];
        a.read_exact(&mut received).await.unwrap();
        assert!(received == expected);
        writes.await.unwrap();
    });
}

#[test]
fn a_shutdown_of_the_own_reading_side_wakes_the_own_reader() {
    everywhere(|| async {
        let (a, _b) = pair().await;
        let reads = {
            let a = a.clone();
            spawn(async move { a.read(&mut [0; 4]).await.unwrap() })
        };
        time::sleep(ms(1)).await;
        a.shutdown(Shutdown::Both).unwrap();
        assert_eq!(soon("the end", reads).await.unwrap(), 0);
    });
}

#[test]
fn a_reset_is_an_error_for_a_task_that_waits_to_write_and_for_later_ones() {
    everywhere(|| async {
        let (a, b) = pair().await;
        a.set_send_buffer_size(8192).unwrap();
        let (writes, reads) = (a.clone(), a.clone());
        // More than fits: the peer does not read.
        let writes = spawn(async move { writes.write_all(&vec![7; 20_000_000]).await });
        let reads = spawn(async move { reads.read(&mut [0; 4]).await });
        soon("the first bytes", b.peek(&mut [0; 4])).await.unwrap();
        time::sleep(ms(3)).await;
        b.set_linger(Some(Duration::ZERO)).unwrap();
        drop(b);
        let error = soon("the writer", writes).await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
        let incomplete = error.get_ref().and_then(|error| error.downcast_ref::<Incomplete>()).expect("how far it came");
        assert!(0 < incomplete.done && incomplete.done < incomplete.of, "{error}");
        // One of the two tasks gets the reset, the other the end.
        let read = soon("the reader", reads).await.unwrap();
        assert!(read.as_ref().is_ok_and(|read| *read == 0) || kind_is_reset(&read), "{read:?}");
        assert!(matches!(kind(a.write(b"x").await), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
    });
}

fn kind_is_reset(result: &std::io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn f8_a_peer_that_never_reads_makes_writes_time_out_and_no_byte_is_counted_twice_or_lost() {
    everywhere(|| async {
        let (a, b) = pair().await;
        a.set_send_buffer_size(8192).unwrap();
        b.set_recv_buffer_size(8192).unwrap();
        // In turn: the bytes that were written, by the count of each operation.
        let mut written = 0_u64;
        for round in 0..12 {
            let bytes = bytes_from(written, 100_000);
            if round % 2 == 0 {
                match a.write(&bytes).timeout(ms(2)).await {
                    Ok(count) => written += count as u64,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
                }
            } else {
                match a.write_all(&bytes).timeout(ms(2)).await {
                    Ok(()) => written += bytes.len() as u64,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                        let incomplete = error.get_ref().and_then(|error| error.downcast_ref::<Incomplete>());
                        written += incomplete.expect("how far it came").done as u64;
                    }
                }
            }
        }
        let error = a.write(b"x").timeout(ms(2)).await;
        assert_eq!(kind(error), ErrorKind::TimedOut, "by now it is full");
        a.shutdown(Shutdown::Write).unwrap();
        let (mut read, mut buffer) = (0_u64, vec![0; 50_000]);
        loop {
            let count = soon("the rest", b.read(&mut buffer)).await.unwrap();
            if count == 0 {
                break;
            }
            expect_bytes(&buffer[..count], read);
            read += count as u64;
        }
        assert_eq!(read, written);
    });
}

#[test]
fn an_address_that_cannot_be_reached_or_used_is_an_error_that_says_so() {
    everywhere(|| async {
        // The loopback device has no such network, and no router does: whichever error the system returns, it returns it at once.
        let nowhere: SocketAddr = "255.255.255.255:9".parse().unwrap();
        let error = TcpStream::connect(nowhere).timeout(ms(1000)).await.unwrap_err();
        assert_ne!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(kind(TcpListener::bind("192.0.2.1:0")), ErrorKind::AddrNotAvailable);
        let listener = TcpListener::bind(LOCAL).unwrap();
        assert_eq!(kind(TcpListener::bind(listener.local_addr().unwrap())), ErrorKind::AddrInUse);
        assert!(TcpListener::bind("not an address").is_err());
    });
}

/// A name whose lookup lasts as long as its other end lives.
struct Unknown(Mutex<Option<mpsc::Receiver<()>>>);

impl ToSocketAddrs for Unknown {
    fn to_lookup(&self) -> Lookup {
        let known = self.0.lock().unwrap().take().unwrap();
        Lookup::blocking(move || {
            let _ = known.recv();
            Ok(Vec::new())
        })
    }
}

#[test]
fn f8_connect_has_a_time_limit_while_its_name_is_looked_up_and_while_it_connects() {
    everywhere(|| async {
        let (known, name) = mpsc::channel();
        let connect = TcpStream::connect(Unknown(Mutex::new(Some(name)))).timeout(ms(5));
        assert_eq!(kind(soon("the time limit", connect).await), ErrorKind::TimedOut);
        drop(known);
        // No machine answers from an address that is reserved for documentation.
        let silent: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let connect = TcpStream::connect(silent).timeout(ms(20));
        assert!(soon("the time limit", connect).await.is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = TcpStream::connect(listener.local_addr().unwrap()).timeout(ms(20_000));
        soon("a connection", connect).await.unwrap();
    });
}

#[test]
fn e7_connect_tries_each_address_of_a_name_and_returns_the_error_of_the_last() {
    everywhere(|| async {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let (open, closed) = (listener.local_addr().unwrap(), unused());
        let client = TcpStream::connect(&[closed, open][..]).await.unwrap();
        assert_eq!(client.peer_addr().unwrap(), open);
        assert_eq!(kind(TcpStream::connect(closed).await), ErrorKind::ConnectionRefused);
        assert_eq!(kind(TcpStream::connect(&[closed, closed][..]).await), ErrorKind::ConnectionRefused);
        assert_eq!(kind(TcpStream::connect(&[] as &[SocketAddr]).await), ErrorKind::InvalidInput);
        for nonsense in ["", "localhost", "localhost:", "localhost:99999", ":80:"] {
            assert!(soon("an error", TcpStream::connect(nonsense)).await.is_err(), "{nonsense}");
        }
    });
}

#[test]
fn e7_connect_takes_what_that_of_the_standard_library_takes() {
    everywhere(|| async {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        let (port, text) = (address.port(), address.to_string());
        let SocketAddr::V4(v4) = address else { panic!("{address} is not of the fourth version") };
        let peers: [&(dyn ToSocketAddrs + Sync); 9] = [
            &address,
            &v4,
            &(address.ip(), port),
            &(Ipv4Addr::LOCALHOST, port),
            &&[address][..],
            &("127.0.0.1", port),
            &("127.0.0.1".to_owned(), port),
            &text.as_str(),
            &text,
        ];
        for peer in peers {
            assert!(!format!("{:?}", peer.to_lookup()).contains(".."), "an address needs no lookup");
            let client = soon("a connection", TcpStream::connect(peer)).await.unwrap();
            assert_eq!(client.peer_addr().unwrap(), address);
        }
        // A machine may have no such name, or know it only as an address of the sixth version.
        let is_known = std::net::TcpStream::connect(("localhost", port)).is_ok();
        assert_eq!(soon("an answer", TcpStream::connect(("localhost", port))).await.is_ok(), is_known);
    });
}

#[test]
fn e7_the_time_limit_of_a_connect_covers_all_its_attempts() {
    everywhere(|| async {
        let listener = ListenOptions::new().backlog(1).bind(LOCAL).unwrap();
        let full = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(client) = TcpStream::connect(full).timeout(ms(10)).await {
            waiting.push(client);
        }
        let start = time::Instant::now();
        let connect = TcpStream::connect(&[unused(), full, full][..]).timeout(ms(20));
        assert_eq!(kind(soon("the time limit", connect).await), ErrorKind::TimedOut);
        assert!(start.elapsed() >= ms(20));
    });
}

/// Returns an address at which no socket listens.
fn unused() -> SocketAddr {
    TcpListener::bind(LOCAL).unwrap().local_addr().unwrap()
}

#[test]
fn a_full_backlog_makes_connects_time_out_and_those_that_are_accepted_go_on() {
    everywhere(|| async {
        let listener = ListenOptions::new().backlog(1).bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        let mut connected = Vec::new();
        let mut timed_out = 0;
        while timed_out < 3 {
            match TcpStream::connect(address).timeout(ms(10)).await {
                Ok(stream) => connected.push(stream),
                Err(error) if error.kind() == ErrorKind::TimedOut => timed_out += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(connected.len() < 20, "the backlog is not full");
        }
        for client in &connected {
            let (server, from) = soon("accept", listener.accept()).await.unwrap();
            assert_eq!(from, client.local_addr().unwrap());
            server.write_all(b"x").await.unwrap();
            soon("read", client.read_exact(&mut [0; 1])).await.unwrap();
        }
    });
}

#[test]
fn connections_that_are_reset_before_they_are_accepted_do_not_stop_a_listener() {
    everywhere(|| async {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..10 {
            let client = TcpStream::connect(address).await.unwrap();
            client.set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
        }
        let client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"alive").await.unwrap();
        loop {
            let (server, _) = soon("accept", listener.accept()).await.unwrap();
            let mut buffer = [0; 5];
            if soon("read", server.read_exact(&mut buffer)).await.is_ok() {
                break assert_eq!(&buffer, b"alive");
            }
        }
    });
}

#[test]
fn many_tasks_accept_on_one_listener_and_each_connection_goes_to_one() {
    on_each_backend_with(2, |runtime| {
        runtime.block_on(async {
            let listener = Arc::new(TcpListener::bind(LOCAL).unwrap());
            let address = listener.local_addr().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let servers: Vec<_> = (0..8)
                .map(|_| {
                    let (listener, stop) = (Arc::clone(&listener), Arc::clone(&stop));
                    spawn(async move {
                        let mut accepted = 0;
                        while !stop.load(Ordering::SeqCst) {
                            match listener.accept().timeout(ms(20)).await {
                                Ok((stream, _)) => {
                                    stream.write_all(b"x").await.unwrap();
                                    accepted += 1;
                                }
                                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
                            }
                        }
                        accepted
                    })
                })
                .collect();
            let clients: Vec<_> = (0..200)
                .map(|_| {
                    spawn(async move {
                        let stream = TcpStream::connect(address).await.unwrap();
                        soon("served", stream.read_exact(&mut [0; 1])).await.unwrap();
                    })
                })
                .collect();
            for client in clients {
                client.await.unwrap();
            }
            stop.store(true, Ordering::SeqCst);
            let mut accepted = 0;
            for server in servers {
                accepted += server.await.unwrap();
            }
            assert_eq!(accepted, 200);
        });
    });
}

#[test]
fn f11_ipv6_works_where_the_machine_has_it() {
    everywhere(|| async {
        let Ok(listener) = TcpListener::bind("[::1]:0") else {
            return println!("NOT TESTED: this machine has no IPv6");
        };
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, from) = listener.accept().await.unwrap();
        assert!(from.is_ipv6());
        server.write_all(b"six").await.unwrap();
        let mut buffer = [0; 3];
        client.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"six");
        let (a, b) = (UdpSocket::bind("[::1]:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap());
        a.send_to(b"six", b.local_addr().unwrap()).await.unwrap();
        assert_eq!(b.recv_from(&mut [0; 8]).await.unwrap(), (3, a.local_addr().unwrap()));
    });
}

#[test]
fn sockets_of_the_standard_library_become_ours_also_if_they_are_blocking() {
    everywhere(|| async {
        let listener = std::net::TcpListener::bind(LOCAL).unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (listener, client) = (TcpListener::from_std(listener).unwrap(), TcpStream::from_std(client).unwrap());
        let (server, _) = listener.accept().await.unwrap();
        let reads = spawn(async move { client.read(&mut [0; 8]).await.unwrap() });
        time::sleep(ms(1)).await;
        server.write_all(b"abc").await.unwrap();
        assert_eq!(reads.await.unwrap(), 3);
        let socket = UdpSocket::from_std(std::net::UdpSocket::bind(LOCAL).unwrap()).unwrap();
        assert_eq!(kind(socket.recv(&mut [0; 8]).timeout(ms(1)).await), ErrorKind::TimedOut);
    });
}

// --- datagrams ---

#[test]
fn f11_datagrams_keep_their_bounds_and_their_order_on_loopback() {
    everywhere(|| async {
        let (a, b) = udp_pair().await;
        assert_eq!(a.peer_addr().unwrap(), b.local_addr().unwrap());
        let receives = spawn(async move {
            let mut lengths = Vec::new();
            let mut buffer = [0; 2000];
            for _ in 0..50 {
                lengths.push(soon("a datagram", b.recv(&mut buffer)).await.unwrap());
            }
            lengths
        });
        for length in 0..50 {
            assert_eq!(a.send(&vec![1; length]).await.unwrap(), length);
            if length % 10 == 0 {
                time::sleep(ms(1)).await;
            }
        }
        assert!(receives.await.unwrap().into_iter().eq(0..50));
    });
}

#[test]
fn f11_a_datagram_that_is_peeked_stays_and_one_that_is_too_long_is_cut() {
    everywhere(|| async {
        let (a, b) = (UdpSocket::bind(LOCAL).unwrap(), UdpSocket::bind(LOCAL).unwrap());
        let (from, to) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        let mut buffer = [0; 4];
        assert_eq!(kind(b.peek_from(&mut buffer).timeout(ms(1)).await), ErrorKind::TimedOut);
        a.send_to(b"abcdefgh", to).await.unwrap();
        a.send_to(b"second", to).await.unwrap();
        assert_eq!(soon("peek", b.peek_from(&mut buffer)).await.unwrap(), (4, from));
        assert_eq!(b.recv_from(&mut buffer).await.unwrap(), (4, from));
        assert_eq!(&buffer, b"abcd");
        let mut buffer = [0; 16];
        assert_eq!(soon("the next", b.recv_from(&mut buffer)).await.unwrap(), (6, from));
        assert_eq!(&buffer[..6], b"second");
    });
}

#[test]
fn a_datagram_that_cannot_be_sent_or_that_no_socket_took_is_an_error() {
    everywhere(|| async {
        let socket = UdpSocket::bind(LOCAL).unwrap();
        assert!(socket.send(b"lost").await.is_err());
        assert!(socket.peer_addr().is_err());
        assert!(socket.send_to(&vec![0; 100_000], socket.local_addr().unwrap()).await.is_err(), "too long");
        let closed = UdpSocket::bind(LOCAL).unwrap().local_addr().unwrap();
        socket.connect(closed).unwrap();
        let receives = async {
            loop {
                // The system reports that no socket is there, either now or at the next send.
                if let Err(error) = socket.send(b"hello?").await {
                    return error.kind();
                }
                match socket.recv(&mut [0; 8]).timeout(ms(50)).await {
                    Err(error) if error.kind() != ErrorKind::TimedOut => return error.kind(),
                    _ => {}
                }
            }
        };
        assert_eq!(soon("the answer", receives).await, ErrorKind::ConnectionRefused);
    });
}

// --- other crates' traits ---

#[test]
fn a_datagram_socket_that_is_closed_for_reading_makes_the_receiver_wait_and_not_spin() {
    everywhere(|| async {
        let (a, _b) = udp_pair().await;
        assert!(a.recv(&mut [0]).timeout(Duration::ZERO).await.is_err());
        // SAFETY: numbers. The socket is open.
        assert_eq!(unsafe { libc::shutdown(a.as_fd().as_raw_fd(), libc::SHUT_RD) }, 0);
        assert_eq!(kind(a.recv(&mut [0]).timeout(ms(5)).await), ErrorKind::TimedOut);
    });
}

#[test]
fn f11_the_traits_of_futures_io_read_and_write_the_same_stream() {
    use futures_lite::{AsyncReadExt, AsyncWriteExt};
    everywhere(|| async {
        let (mut a, b) = pair().await;
        let sent = bytes_from(0, 300_000);
        let expected = sent.clone();
        let writes = spawn(async move {
            AsyncWriteExt::write_all(&mut a, &sent).await.unwrap();
            AsyncWriteExt::flush(&mut a).await.unwrap();
            AsyncWriteExt::close(&mut a).await.unwrap();
        });
        let mut received = Vec::new();
        AsyncReadExt::read_to_end(&mut &b, &mut received).await.unwrap();
        assert!(received == expected);
        writes.await.unwrap();
    });
}

//! Connections, on both back ends (F11).

mod support;

use std::io::ErrorKind;
use std::net::Shutdown;
use support::{everywhere, kind, ms, on_each_backend_with, pair};
use tourbillon_rt::net::{TcpListener, TcpStream};
use tourbillon_rt::spawn;

async fn echo(stream: TcpStream) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => stream.write_all(&buffer[..count]).await.unwrap(),
        }
    }
}

#[test]
fn f11_bytes_sent_to_an_echo_server_come_back() {
    everywhere(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                spawn(echo(stream));
            }
        });
        let clients: Vec<_> = (0..20_u8)
            .map(|number| {
                spawn(async move {
                    let stream = TcpStream::connect(address).await.unwrap();
                    for round in 0..50_u8 {
                        let sent = [number ^ round; 64];
                        stream.write_all(&sent).await.unwrap();
                        let mut received = [0; 64];
                        stream.read_exact(&mut received).await.unwrap();
                        assert_eq!(sent, received);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        server.abort();
        assert!(server.await.unwrap_err().is_cancelled());
    });
}

#[test]
fn f11_megabytes_pass_through_small_buffers_whole() {
    everywhere(|| async {
        let (a, b) = pair().await;
        a.set_send_buffer_size(65536).unwrap();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let expected = bytes.clone();
        let writer = spawn(async move {
            a.write_all(&bytes).await.unwrap();
        });
        let mut received = vec![0; expected.len()];
        b.read_exact(&mut received).await.unwrap();
        assert!(received == expected);
        writer.await.unwrap();
        assert_eq!(b.read(&mut [0; 1]).await.unwrap(), 0, "and then the end");
    });
}

#[test]
fn a_stream_that_is_half_closed_can_still_be_written_in_the_other_direction() {
    everywhere(|| async {
        let (a, b) = pair().await;
        a.write_all(b"last words").await.unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        let mut received = [0; 10];
        b.read_exact(&mut received).await.unwrap();
        assert_eq!(b.read(&mut received).await.unwrap(), 0);
        b.write_all(b"answer").await.unwrap();
        drop(b);
        let mut answer = [0; 16];
        assert_eq!(a.read(&mut answer).await.unwrap(), 6);
        assert_eq!(a.read(&mut answer).await.unwrap(), 0);
    });
}

#[test]
fn a_refused_connection_is_an_error_that_says_so() {
    everywhere(|| async {
        let address = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        assert_eq!(kind(TcpStream::connect(address).await), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_reset_connection_wakes_a_task_that_waits_to_read() {
    everywhere(|| async {
        let (a, b) = pair().await;
        let reader = spawn(async move { a.read(&mut [0; 16]).await });
        tourbillon_rt::time::sleep(ms(2)).await;
        b.set_linger(Some(ms(0))).unwrap();
        drop(b);
        assert_eq!(kind(reader.await.unwrap()), ErrorKind::ConnectionReset);
    });
}

#[test]
fn d6_f8_a_read_that_times_out_says_so_and_takes_no_byte() {
    everywhere(|| async {
        let (a, b) = pair().await;
        let mut buffer = [0; 16];
        assert_eq!(kind(a.read(&mut buffer).timeout(ms(3)).await), ErrorKind::TimedOut);
        b.write_all(b"late").await.unwrap();
        assert_eq!(a.read(&mut buffer).timeout(ms(1000)).await.unwrap(), 4);
    });
}

#[test]
fn a_socket_first_used_in_block_on_is_served_when_that_has_ended() {
    on_each_backend_with(1, |runtime| {
        let (a, b) = runtime.block_on(async {
            let (a, b) = pair().await;
            // So that the socket is registered with the reactor of `block_on`.
            assert!(a.read(&mut [0; 1]).timeout(ms(1)).await.is_err());
            (a, b)
        });
        let reader = runtime.spawn(async move {
            let mut buffer = [0; 4];
            a.read_exact(&mut buffer).await.map(|()| buffer)
        });
        std::thread::sleep(ms(5));
        let writer = runtime.spawn(async move { b.write_all(b"here").await.map(|()| b) });
        assert_eq!(&runtime.block_on(reader).unwrap().unwrap(), b"here");
        drop(runtime.block_on(writer));
    });
}

//! Other crates' traits, on both back ends.

mod support;

use std::convert::Infallible;
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use hyper::service::service_fn;
use hyper::{Request, Response};
use support::{everywhere, ms, pair};
use tourbillon_rt::adapters::hyper::RuntimeExecutor;
use tourbillon_rt::{spawn, time};

#[test]
fn a_stream_is_read_and_written_by_the_traits_of_futures_io() {
    everywhere(|| async {
        let (mut a, b) = pair().await;
        let echo = spawn(async move {
            let (mut reads, mut writes) = (&b, &b);
            futures_lite::io::copy(&mut reads, &mut writes).await.unwrap();
            writes.close().await.unwrap();
        });
        let sent: Vec<u8> = (0..200_000_u32).map(|n| (n >> 3) as u8).collect();
        let (mut reads, expected) = (a.clone(), sent.clone());
        let reader = spawn(async move {
            let mut received = Vec::new();
            reads.read_to_end(&mut received).await.unwrap();
            assert!(received == expected);
        });
        a.write_all(&sent).await.unwrap();
        AsyncWriteExt::flush(&mut a).await.unwrap();
        a.close().await.unwrap();
        reader.await.unwrap();
        echo.await.unwrap();
    });
}

#[test]
fn w10_hyper_answers_each_request_after_a_while_and_holds_no_thread_meanwhile() {
    everywhere(|| async {
        let mut clients = Vec::new();
        for _ in 0..50 {
            let (client, server) = pair().await;
            let answer = |_: Request<hyper::body::Incoming>| async {
                time::sleep(ms(20)).await;
                Ok::<_, Infallible>(Response::new(String::from("later")))
            };
            spawn(hyper::server::conn::http1::Builder::new().serve_connection(server, service_fn(answer)));
            clients.push(spawn(async move {
                client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await.unwrap();
                let mut answer = Vec::new();
                let mut buffer = [0; 1024];
                loop {
                    match client.read(&mut buffer).timeout(Duration::from_secs(20)).await.unwrap() {
                        0 => break,
                        count => answer.extend_from_slice(&buffer[..count]),
                    }
                }
                let answer = String::from_utf8(answer).unwrap();
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nlater"), "{answer}");
            }));
        }
        for client in clients {
            client.await.unwrap();
        }
    });
}

#[test]
fn hypers_tasks_run_on_the_runtime_of_the_thread() {
    everywhere(|| async {
        let (sender, receiver) = std::sync::mpsc::channel();
        hyper::rt::Executor::execute(&RuntimeExecutor::new(), async move { sender.send(8).unwrap() });
        while receiver.try_recv() != Ok(8) {
            time::sleep(Duration::from_micros(100)).await;
        }
    });
}

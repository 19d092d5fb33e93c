//! Sockets of one runtime on another (D11).

use std::thread;

use super::runtime;
use crate::support::{in_time, ms, on_each_backend, on_each_backend_with, pair};

#[test]
fn d11_sockets_move_between_runtimes_and_outlive_the_one_that_they_were_registered_with() {
    on_each_backend(|backend| {
        in_time("sockets that move", move || {
            let (first, second) = (runtime(backend, 1), runtime(backend, 1));
            let (a, b) = first
                .block_on(first.spawn(async {
                    let (a, b) = pair().await;
                    assert!(a.read(&mut [0; 1]).timeout(ms(1)).await.is_err());
                    (a, b)
                }))
                .unwrap();
            // While the first runtime still serves the reactor that the socket is registered with,
            let reader = a.clone();
            let reads = second.spawn(async move { reader.read(&mut [0; 8]).await.unwrap() });
            thread::sleep(ms(5));
            first.block_on(b.write_all(b"abc")).unwrap();
            assert_eq!(second.block_on(reads).unwrap(), 3);
            // and when that runtime ends in the middle of a wait.
            let reads = second.spawn(async move { a.read(&mut [0; 8]).await.unwrap() });
            thread::sleep(ms(5));
            drop(first);
            second.block_on(b.write_all(b"abcd")).unwrap();
            assert_eq!(second.block_on(reads).unwrap(), 4);
        });
    });
}

#[test]
fn d11_sockets_of_a_block_on_that_has_ended_are_served_by_another_runtime() {
    on_each_backend(|backend| {
        in_time("sockets of an idle slot", move || {
            let (first, second) = (runtime(backend, 0), runtime(backend, 1));
            let (a, b) = first.block_on(async {
                let (a, b) = pair().await;
                assert!(a.read(&mut [0; 1]).timeout(ms(1)).await.is_err());
                (a, b)
            });
            // The first runtime still exists, and no thread works for it.
            let reads = second.spawn(async move { a.read(&mut [0; 8]).await.unwrap() });
            thread::sleep(ms(5));
            second.block_on(b.write_all(b"abc")).unwrap();
            assert_eq!(second.block_on(reads).unwrap(), 3);
            drop(first);
        });
    });
}

#[test]
fn d11_a_socket_that_is_polled_by_another_executor_says_that_there_is_no_runtime() {
    on_each_backend_with(1, |runtime| {
        let (a, b) = runtime.block_on(pair());
        let error = futures_lite::future::block_on(a.read(&mut [0; 4])).unwrap_err();
        assert!(error.to_string().contains("no tourbillon runtime"), "{error}");
        let error = futures_lite::future::block_on(a.read(&mut [0; 4]).timeout(ms(1))).unwrap_err();
        assert!(error.to_string().contains("no tourbillon runtime"), "{error}");
        // To have entered a runtime is not enough, and the error says so.
        let _entered = runtime.handle().enter();
        assert!(futures_lite::future::block_on(a.read(&mut [0; 4])).is_err());
        runtime.block_on(b.write_all(b"x")).unwrap();
        assert_eq!(runtime.block_on(a.read(&mut [0; 4])).unwrap(), 1);
    });
}

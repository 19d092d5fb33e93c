//! The default driver in a process that has runtimes with and without I/O. A file of its own: after the first runtime without I/O the driver
//! of this process stays on its thread.
#![cfg(tourbillon_driver_task)]

use std::time::Duration;

use tokio::runtime::Builder;
use tourbillon::Engine;

#[test]
fn e3_p6_in_a_runtime_without_io_the_thread_drives() {
    // The process has an epoll instance, so the driver has to try.
    let with_io = Builder::new_current_thread().enable_all().build().unwrap();
    let engine = Engine::builder().build().unwrap();
    for runtime in [Builder::new_current_thread().build().unwrap(), Builder::new_multi_thread().build().unwrap()] {
        for _ in 0..3 {
            runtime.block_on(async { engine.sleep(Duration::from_millis(1)).await });
        }
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    }
    drop(with_io);
}

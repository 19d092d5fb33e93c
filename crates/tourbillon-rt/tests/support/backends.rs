//! Tests on each back end, and connections for them.

use std::future::Future;
use std::sync::Mutex;

use tourbillon_rt::net::TcpStream;
use tourbillon_rt::{Backend, BuildError, Runtime};

/// Runs a test on each back end. Where io_uring is refused, this prints it, and the test has run on epoll alone.
pub(crate) fn on_each_backend(test: impl Fn(Backend)) {
    on_each_backend_with(2, |runtime| test(runtime.backend()));
}

/// Runs a test on a runtime of each back end, with `workers` workers.
pub(crate) fn on_each_backend_with(workers: usize, test: impl Fn(&Runtime)) {
    for backend in [Backend::Epoll, Backend::Uring] {
        match Runtime::builder().backend(backend).workers(workers).build() {
            Ok(runtime) => {
                // If the environment overrides the back end, the same one is tested twice. Without workers it is epoll.
                println!("on {}", runtime.backend());
                test(&runtime);
            }
            Err(BuildError::Refused { backend: Backend::Uring, why }) => {
                println!("NOT TESTED ON io_uring: it is refused here ({why})");
                eprintln!("NOT TESTED ON io_uring: it is refused here ({why})");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs an `async` test in `block_on` and as a task, on each back end.
pub(crate) fn everywhere<F>(test: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    on_each_backend_with(2, |runtime| {
        runtime.block_on(test());
        runtime.block_on(runtime.spawn(test())).unwrap();
    });
    on_each_backend_with(0, |runtime| runtime.block_on(test()));
}

/// Returns the two ends of a connection.
///
/// All connections share one listener: thousands of listeners would use up the ports, and the kernel would take ever longer to find a
/// free one.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    static LISTENER: Mutex<Option<std::net::TcpListener>> = Mutex::new(None);
    let mut listener = LISTENER.lock().unwrap();
    let listener = listener.get_or_insert_with(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (TcpStream::from_std(client).unwrap(), TcpStream::from_std(server).unwrap())
}

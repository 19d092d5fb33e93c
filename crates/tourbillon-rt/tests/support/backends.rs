//! Tests on each back end, and connections for them.

use std::future::Future;
use std::sync::Mutex;

use tourbillon_rt::net::TcpStream;
use tourbillon_rt::{Backend, BuildError, Runtime};

/// Runs a test on each back end. Where io_uring is refused, it says so and the test has been run on epoll alone.
pub(crate) fn on_each_backend(test: impl Fn(Backend)) {
    on_each_backend_with(2, |runtime| test(runtime.backend()));
}

/// Runs a test on a runtime of each back end, with so many workers.
pub(crate) fn on_each_backend_with(workers: usize, test: impl Fn(&Runtime)) {
    for backend in [Backend::Epoll, Backend::Uring] {
        match Runtime::builder().backend(backend).workers(workers).build() {
            Ok(runtime) => {
                // The environment may have overruled us: then the same back end is tested twice.
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

/// Two ends of a connection.
///
/// By one listener for the whole process: thousands of them would use up the ports, and it takes the kernel ever longer to find
/// another.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    static LISTENER: Mutex<Option<std::net::TcpListener>> = Mutex::new(None);
    let mut listener = LISTENER.lock().unwrap();
    let listener = listener.get_or_insert_with(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (TcpStream::from_std(client).unwrap(), TcpStream::from_std(server).unwrap())
}

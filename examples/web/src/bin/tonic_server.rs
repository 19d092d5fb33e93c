//! A tonic server where `grpc-timeout` is the `Deadline` of the handler, idle connections are closed, and `SIGTERM` shuts down gracefully.
//!
//!     cargo run -p tourbillon-web-examples --bin tonic_server
//!
//! The program is its own client: it checks what it shows, and ends. Its messages are strings and its service is written by hand, so that it
//! needs no `protoc`; with generated code the layer is used the same way.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut};
use http::uri::PathAndQuery;
use hyper::client::conn::http2;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, UnaryService};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use tourbillon::adapters::grpc::GrpcDeadlineLayer;
use tourbillon::adapters::hyper::TourbillonTimer;
use tourbillon::time::{Deadline, Instant, sleep, timeout};
use tourbillon_web_examples::{IDLE, PATIENCE, server, terminate, terminated};
use tower::ServiceBuilder;

/// The most time that the server gives to a call, whatever its client asks for.
const SERVER_LIMIT: Duration = Duration::from_secs(2);

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The handler: waits as many milliseconds as the message says, and answers how many were left for the call.
#[derive(Clone)]
struct Wait {
    begun: Arc<Notify>,
}

impl UnaryService<String> for Wait {
    type Response = String;
    type Future = BoxFuture<Result<Response<String>, Status>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let begun = Arc::clone(&self.begun);
        Box::pin(async move {
            begun.notify_one();
            let millis = request.get_ref().parse().map_err(|_| Status::invalid_argument("not a number"))?;
            Ok(Response::new(query(Duration::from_millis(millis)).await))
        })
    }
}

/// Stands for a database: any function that the handler calls knows the deadline of the client.
async fn query(takes: Duration) -> String {
    let left = Deadline::current().expect("the layer sets the deadline").remaining();
    sleep(takes).await;
    left.as_millis().to_string()
}

/// What `tonic-build` would generate for a service with one method.
#[derive(Clone)]
struct WaitServer(Wait);

impl NamedService for WaitServer {
    const NAME: &'static str = "example.Waiter";
}

impl tower::Service<http::Request<tonic::body::Body>> for WaitServer {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let handler = self.0.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(Text).unary(handler, request).await) })
    }
}

/// A codec whose messages are strings.
#[derive(Clone, Copy)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Text;
    type Decoder = Text;

    fn encoder(&mut self) -> Text {
        Text
    }

    fn decoder(&mut self) -> Text {
        Text
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, message: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(message.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        String::from_utf8(bytes.into()).map(Some).map_err(|_| Status::invalid_argument("the message is not UTF-8"))
    }
}

/// A client of the service, over one connection of hyper-util's pool.
#[derive(Clone)]
struct WaitClient(tonic::client::Grpc<Client<HttpConnector, tonic::body::Body>>);

impl WaitClient {
    fn new(server: http::Uri) -> WaitClient {
        let http =
            Client::builder(TokioExecutor::new()).pool_timer(TourbillonTimer::new()).http2_only(true).build_http();
        WaitClient(tonic::client::Grpc::with_origin(http, server))
    }

    async fn wait(&mut self, request: Request<String>) -> Result<String, Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static("/example.Waiter/Wait");
        let answer = timeout(PATIENCE, self.0.unary(request, path, Text)).await;
        Ok(answer.map_err(|_| Status::unknown("the server does not answer"))??.into_inner())
    }
}

fn call(millis: u64, limit: Option<Duration>) -> Request<String> {
    let mut request = Request::new(millis.to_string());
    if let Some(limit) = limit {
        request.set_timeout(limit);
    }
    request
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let begun = Arc::new(Notify::new());
    let routes = Routes::new(WaitServer(Wait { begun: Arc::clone(&begun) }));
    let service = ServiceBuilder::new().layer(GrpcDeadlineLayer::new(SERVER_LIMIT)).service(routes);
    let server = tokio::spawn(server().serve(listener, service, terminated()?));

    let mut client = WaitClient::new(format!("http://{address}").parse()?);
    deadlines(&mut client).await?;
    malformed(&mut client).await;
    idle_connection(address).await?;
    shutdown(client, &begun).await?;
    assert_eq!(server.await?, 0, "no call was cut off");
    println!("shutdown: the call in flight was answered, the server has ended");
    Ok(())
}

async fn deadlines(client: &mut WaitClient) -> Result<(), Status> {
    let left: u128 = client.wait(call(1, Some(Duration::from_millis(1500)))).await?.parse().unwrap();
    assert!(left <= 1500, "{left}");
    println!("a call with a timeout of 1500 ms: the handler had {left} ms left");

    let start = Instant::now();
    let status = client.wait(call(60_000, Some(Duration::from_millis(50)))).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(start.elapsed() >= Duration::from_millis(50), "ended too early");
    println!("a handler that takes longer: {:?}, {}", status.code(), status.message());

    let mut second = client.clone();
    let hour = Some(Duration::from_secs(3600));
    let (without, longer) = tokio::join!(client.wait(call(60_000, None)), second.wait(call(60_000, hour)));
    for ended in [without, longer] {
        let status = ended.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert_eq!(status.message(), "the call did not end within 2s");
    }
    println!("a call without a timeout, or with a longer one: the limit of the server");
    Ok(())
}

async fn malformed(client: &mut WaitClient) {
    let mut request = call(1, None);
    request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    let status = client.wait(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    println!("a malformed timeout: {:?}, {}", status.code(), status.message());
}

async fn idle_connection(server: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let io = TokioIo::new(TcpStream::connect(server).await?);
    let (unused, connection) = http2::handshake::<_, _, tonic::body::Body>(TokioExecutor::new(), io).await?;
    timeout(PATIENCE, connection).await??;
    drop(unused);
    assert!(start.elapsed() >= IDLE, "closed too early");
    println!("idle connections: closed");
    Ok(())
}

async fn shutdown(mut client: WaitClient, begun: &Notify) -> Result<(), Box<dyn std::error::Error>> {
    // A call before has left a permit.
    begun.notified().await;
    let in_flight = tokio::spawn(async move { client.wait(call(100, None)).await });
    begun.notified().await;
    terminate()?;
    in_flight.await??;
    Ok(())
}

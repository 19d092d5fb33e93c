//! A deadline that holds through three layers of calls, without a parameter for it.
//!
//!     cargo run -p tourbillon --example deadline_scopes

use std::time::Duration;

use futures_lite::future::block_on;
use tourbillon::time::{Deadline, sleep};

const MS: Duration = Duration::from_millis(1);

/// The first layer: a request may take half a second in all.
async fn handle(queries: u32) -> Result<u32, &'static str> {
    Deadline::after(500 * MS).scope(collect(queries)).await.unwrap_or(Err("the request took too long"))
}

/// The second layer: several queries, one after the other. It stops when there is no time for another.
async fn collect(queries: u32) -> Result<u32, &'static str> {
    let mut rows = 0;
    for query in 0..queries {
        let left = Deadline::current().map(Deadline::remaining);
        println!("  query {query}, left: {left:?}");
        if left.is_some_and(|left| left < 10 * MS) {
            return Err("no time for another query");
        }
        rows += fetch(120 * MS).await?;
    }
    Ok(rows)
}

/// The third layer: a query, with a limit of five seconds. Inside a scope it has no more time than the scope.
async fn fetch(takes: Duration) -> Result<u32, &'static str> {
    let query = async {
        sleep(takes).await;
        1
    };
    Deadline::after(5000 * MS).scope(query).await.map_err(|_| "a query took too long")
}

fn main() {
    let answer = block_on(handle(2));
    println!("two queries: {answer:?}");
    assert_eq!(answer, Ok(2));

    let answer = block_on(handle(10));
    println!("ten queries: {answer:?}");
    assert!(answer.is_err());

    // Outside any scope there is no deadline.
    assert_eq!(Deadline::current(), None);
    assert_eq!(block_on(collect(6)), Ok(6));
}

//! The store in PostgreSQL.
//!
//! Without a server every test prints `NOT TESTED ON POSTGRESQL` and passes: see `postgres/cluster.rs`.

mod conformance;
mod postgres;

use std::cell::RefCell;
use std::sync::Arc;

use postgres::Schema;

#[test]
fn q1_q2_q3_q4_q7_the_store_in_postgresql_does_what_every_store_does() {
    let Some(first) = Schema::new() else { return };
    let schemas = RefCell::new(vec![first]);
    conformance::all(|| {
        let schema = Schema::new().expect("the server is there");
        let store = schema.store();
        schemas.borrow_mut().push(schema);
        Arc::new(store)
    });
}

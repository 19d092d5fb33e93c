//! A PostgreSQL server whose data are where a benchmark measures the disk.
#![cfg(unix)]

use std::fs;

use tourbillon_tools::not_tested;
use tourbillon_tools::postgres::{Cluster, StopMode};

#[test]
fn the_data_of_a_server_are_below_the_directory_that_was_named() {
    // Too long a path for the name of a socket.
    let name = format!("tourbillon-cluster-{}-{}", std::process::id(), "long".repeat(25));
    let directory = std::env::temp_dir().join(name);
    fs::create_dir(&directory).unwrap();
    match Cluster::start_below(&directory, "-c fsync=off") {
        Err(reason) => not_tested("WITH DATA OF POSTGRESQL IN A DIRECTORY", &reason),
        Ok(cluster) => {
            assert!(directory.join("postgres/PG_VERSION").exists());
            assert!(directory.join("postgres/postmaster.pid").exists(), "the server runs there");
            cluster.stop(StopMode::Immediate);
            assert!(!directory.join("postgres/postmaster.pid").exists());
        }
    }
    // The shell that ends the server removes the data at the same time.
    while directory.exists() {
        let _again = fs::remove_dir_all(&directory);
    }
}

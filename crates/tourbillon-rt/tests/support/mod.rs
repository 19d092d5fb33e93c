//! Helpers that the tests of this crate share.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod backends;
mod chains;
mod children;
mod kernel;
mod random;
mod refuse;
mod waits;
mod wakers;

pub(crate) use backends::{everywhere, on_each_backend, on_each_backend_with, pair};
pub(crate) use chains::chain;
pub(crate) use children::{in_a_child, is_a_child, this_program};
pub(crate) use kernel::{alone, descriptors, sleeps_and_cpu, threads_named, try_refuse, watched_by_the_kernel};
pub(crate) use random::{Random, byte_at, bytes_from, expect_bytes};
pub(crate) use waits::{LONG, eventually, give_way, in_time, kind, ms, poll_once, soon, until};
pub(crate) use wakers::{Blocks, Counted, Flag, counted};

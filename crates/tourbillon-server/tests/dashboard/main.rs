//! Tests the dashboard: what it answers, and what it does in a browser where there is one.

mod browser;
mod pages;
mod server;

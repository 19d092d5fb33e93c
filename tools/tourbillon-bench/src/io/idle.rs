//! Case `idle`: 100,000 timers are pending, none is due, and nothing else happens.

use std::future::pending;
use std::time::Duration;

use tourbillon_tools::Random;

use super::OURS;
use super::server_client::ServerClient;
use super::server_process::IoService;
use crate::harness::{SystemChoice, arm, far_durations};
use crate::report::{BenchReport, Figure};
use crate::systems::monoio::Monoio;
use crate::systems::smol::Smol;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon_rt::TourbillonRt;
use crate::systems::{TaskRunner, monoio, smol, tokio, tourbillon};

const PENDING: usize = 100_000;

/// Time for background threads to take over what was armed, and to go to sleep.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs all processes at the same time, since they have nothing to do.
pub(super) fn run(systems: &[&'static str], choice: &SystemChoice, report: &mut BenchReport) {
    let time = Duration::from_secs(if choice.common.quick { 3 } else { 10 });
    let servers: Vec<_> =
        systems.iter().map(|system| (*system, ServerClient::start(system, IoService::Idle))).collect();
    std::thread::sleep(SETTLE);
    let before: Vec<_> = servers.iter().map(|(_, server)| server.usage()).collect();
    std::thread::sleep(time);
    for ((system, server), before) in servers.iter().zip(before) {
        let after = server.usage();
        let case = format!("idle,pending={PENDING},seconds={}", time.as_secs());
        let mut add = |metric, value| report.add(Figure::once(system, case.clone(), metric, value));
        add("wake_ups", (after.sleeps - before.sleeps) as f64);
        add("cpu_us", (after.cpu - before.cpu).as_nanos() as f64 / 1000.0);
    }
}

/// Arms the timers in a system, and then prints a line.
pub(super) fn serve(system: &str) {
    match system {
        ours if OURS.contains(&ours) => TourbillonRt::named(ours).run_one(wait(tourbillon::sleep)),
        tokio::CURRENT => Tokio::current_thread().run_one(wait(tokio::sleep)),
        monoio::NAME => Monoio::new().run_one(wait(monoio::sleep)),
        smol::NAME => Smol.run_one(wait(smol::sleep)),
        _ => {}
    }
}

async fn wait<F: Future>(sleep: impl Fn(Duration) -> F) {
    let _sleeps = arm(&sleep, &far_durations(PENDING, &mut Random::new(1))).await;
    println!("0");
    pending::<()>().await;
}

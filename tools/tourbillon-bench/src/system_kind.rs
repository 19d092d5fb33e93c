//! Whose a figure is: Tourbillon's as a user gets it by default, another variant of it, Tokio's, or a peer's.

use crate::systems::{clock_nanosleep, tokio, tourbillon, tourbillon_rt};

/// The kind of a system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SystemKind {
    /// Tourbillon, with the settings that a user gets by default.
    Default,
    /// Tourbillon, in any other variant.
    Variant,
    Tokio,
    Peer,
    /// The bare system call, which is no timer system.
    Floor,
}

/// The tasks of the scenario `jobs`, which are Tokio's.
pub(crate) const TOKIO_TASKS: &str = "tokio-tasks";

/// Tourbillon in the scenario `durable`, on each of its stores.
pub(crate) const DURABLE_EMBEDDED: &str = "tourbillon-embedded";
pub(crate) const DURABLE_POSTGRES: &str = "tourbillon-postgres";

/// The queues of Tourbillon. The first is the one that the engine uses.
const QUEUES: [&str; 4] = ["wheel", "heap", "list_tree", "rounds"];

/// Settings of a case that name the variant of a system, and not the work that was measured.
const VARIANT_SETTINGS: [&str; 5] = ["slack", "driver", "rt", "timer", "setup"];

impl SystemKind {
    /// Returns the kind of a system in a case.
    pub(crate) fn of(system: &str, case: &str) -> SystemKind {
        match system {
            tourbillon::NAME if is_default(case) => SystemKind::Default,
            tourbillon_rt::URING | tourbillon_rt::EPOLL | DURABLE_EMBEDDED | DURABLE_POSTGRES => SystemKind::Default,
            _ if system == QUEUES[0] => SystemKind::Default,
            _ if QUEUES.contains(&system) || system.starts_with(tourbillon::NAME) => SystemKind::Variant,
            tokio::CURRENT | tokio::MULTI | TOKIO_TASKS => SystemKind::Tokio,
            clock_nanosleep::NAME => SystemKind::Floor,
            _ => SystemKind::Peer,
        }
    }

    /// Returns whether the verdict compares rounds of this kind, so that they have to be many and paired.
    pub(crate) fn is_judged(self) -> bool {
        matches!(self, SystemKind::Default | SystemKind::Tokio)
    }
}

/// Returns whether a case names no variant other than the default.
fn is_default(case: &str) -> bool {
    variant(case).all(|(name, value)| match name {
        "slack" => value == "adaptive",
        "driver" => value == "default",
        "rt" => true,
        _ => false,
    })
}

/// Returns the settings of a case that name the variant of a system.
pub(crate) fn variant(case: &str) -> impl Iterator<Item = (&str, &str)> {
    case.split(',').filter(|part| is_variant(part)).filter_map(|part| part.split_once('='))
}

/// Returns a case without the settings that name the variant, so that all systems that do the same work have the same case.
pub(crate) fn work_of(case: &str) -> String {
    let parts: Vec<&str> = case.split(',').filter(|part| !is_variant(part)).collect();
    parts.join(",")
}

fn is_variant(part: &str) -> bool {
    // In `churn` the driver has turned for all systems, or for none.
    let is_work = part == "driver=turned";
    !is_work && part.split_once('=').is_some_and(|(name, _)| VARIANT_SETTINGS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_told_from_the_other_variants() {
        use SystemKind as Kind;
        let expected = [
            ("tourbillon", "pending=0,driver=turned", Kind::Default),
            ("tourbillon", "pending=0,driver=turned,rt=current", Kind::Default),
            ("tourbillon", "tasks=1,slack=adaptive,driver=default,rt=multi", Kind::Default),
            ("tourbillon", "tasks=1,slack=adaptive,driver=thread,rt=multi", Kind::Variant),
            ("tourbillon", "tasks=1,slack=1ms,driver=default,rt=multi", Kind::Variant),
            ("tourbillon-rt", "pending=0", Kind::Variant),
            ("tourbillon-rt-epoll", "echo,timeout=none", Kind::Default),
            ("wheel", "pop,pending=1000", Kind::Default),
            ("heap", "pop,pending=1000", Kind::Variant),
            ("tokio-current", "tasks=1", Kind::Tokio),
            ("tokio-tasks", "live=10", Kind::Tokio),
            ("tokio-cron-scheduler", "live=10", Kind::Peer),
            ("libevent", "tasks=1,timer=precise", Kind::Peer),
            ("clock_nanosleep", "tasks=1", Kind::Floor),
        ];
        for (system, case, kind) in expected {
            assert_eq!(SystemKind::of(system, case), kind, "{system} {case}");
        }
    }

    #[test]
    fn the_work_of_a_case_is_what_all_systems_have_in_common() {
        assert_eq!(work_of("tasks=1,slack=adaptive,driver=default,rt=multi"), "tasks=1");
        assert_eq!(work_of("pending=0,driver=turned,rt=current"), "pending=0,driver=turned");
        assert_eq!(work_of("echo,timeout=30s"), "echo,timeout=30s");
        assert_eq!(variant("tasks=1,slack=1ms,rt=multi").collect::<Vec<_>>(), [("slack", "1ms"), ("rt", "multi")]);
    }
}

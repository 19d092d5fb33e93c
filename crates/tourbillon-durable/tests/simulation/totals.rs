//! What happened in worlds, so that a test can see that nothing was left out.

use std::ops::AddAssign;

macro_rules! totals {
    ($($name:ident),* $(,)?) => {
        /// What happened in a world.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub(crate) struct Totals {
            $(pub(crate) $name: u64,)*
        }

        impl AddAssign for Totals {
            fn add_assign(&mut self, other: Totals) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

totals!(
    steps,
    longest_wait_us,
    steps_of_trouble,
    single_nodes,
    created,
    cancelled,
    cancelled_by_name,
    moved,
    beyond_end,
    replayed,
    repeated,
    skipped,
    delivered,
    pulled,
    extended,
    extensions_refused,
    late_extensions,
    groups,
    acknowledged,
    refused,
    crashes,
    drained,
    store_crashes,
    lost_writes,
    late_writes,
    lost_requests,
    lost_answers,
    undone_answers,
    full_answers,
    pauses,
    clock_steps,
    slow_phases,
    store_pauses,
    copies,
    outages,
    reported_failures,
    recoveries,
    handler_changes,
    delegated,
);

//! `Engine::builder`: invalid settings are refused with a message.

mod support;

use std::time::Duration;

use support::ms;
use tourbillon::{BuildError, Clock, Driver, Engine, QueueKind};

#[test]
fn p6_invalid_settings_are_refused_with_a_message_that_says_what_to_do() {
    let refused = Engine::builder().shards(0).build().unwrap_err();
    assert!(matches!(refused, BuildError::NoShards));
    assert_eq!(refused.to_string(), "the number of shards is zero: set one or more, or leave the default");

    let refused = Engine::builder().capacity(0).build().unwrap_err();
    assert!(matches!(refused, BuildError::NoCapacity));
    assert_eq!(refused.to_string(), "the capacity is zero timers: set one or more, or none for no limit");

    let refused = Engine::builder().clock(Clock::manual()).driver(Driver::thread()).build().unwrap_err();
    assert!(matches!(refused, BuildError::ManualClock));
    assert!(refused.to_string().contains("Driver::external()"), "{refused}");

    for (tick, slots, says) in [(Duration::ZERO, 16, "tick"), (ms(1), 0, "slots"), (ms(1), usize::MAX, "slots")] {
        let refused = Engine::builder().queue(QueueKind::Rounds { tick, slots }).build().unwrap_err();
        assert!(matches!(refused, BuildError::Rounds(_)));
        assert!(refused.to_string().contains("QueueKind::Rounds") && refused.to_string().contains(says), "{refused}");
        assert!(std::error::Error::source(&refused).is_some());
    }
}

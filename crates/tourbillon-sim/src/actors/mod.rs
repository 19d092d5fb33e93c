//! Who uses the engine: one file for each surface. Each says what can be done with it, does that, and tells the model.

pub mod delay_queue;
pub mod gate;
pub mod interval;
pub mod named;
pub mod scheduler;
pub mod scope;
pub mod sleep;
pub mod timeout;
pub mod timer;

use crate::hub::Manner;
use crate::random::Random;

/// At most so many of a kind are there at a time: the model looks at all of them after every step.
pub const MOST: usize = 24;

/// How a waker behaves: mostly well.
pub fn manner_of_waker(random: &mut Random) -> Manner {
    match random.below(16) {
        0 => Manner::Panics,
        1 => Manner::Nosy,
        2 => Manner::Turns,
        _ => Manner::Good,
    }
}

/// How a callback behaves: mostly well.
pub fn manner_of_callback(random: &mut Random) -> Manner {
    match random.below(16) {
        0 => Manner::Panics,
        1 => Manner::Nosy,
        2 => Manner::PanicsInDrop,
        _ => Manner::Good,
    }
}

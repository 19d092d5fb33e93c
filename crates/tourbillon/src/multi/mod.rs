//! What surfaces share that keep many timers behind one entry of the engine.

pub(crate) mod deadline_map;
pub(crate) mod waiter;
pub(crate) mod wakeup_timer;

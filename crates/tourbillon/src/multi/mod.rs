//! Parts of the surfaces that keep many timers behind one timer of the engine.

pub(crate) mod deadline_map;
pub(crate) mod due_items;
pub(crate) mod waiter;
pub(crate) mod wakeup_timer;

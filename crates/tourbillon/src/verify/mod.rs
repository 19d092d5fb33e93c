//! Model checks of every order (loom), and of many random orders (shuttle), in which threads can take their steps.

#[cfg(all(loom, test))]
pub(crate) mod loom;
#[cfg(all(shuttle, test))]
mod shuttle;

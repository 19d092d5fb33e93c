//! The timers armed last, before they are placed in the queue.
//!
//! Most timers are cancelled, and most of those soon: the answer comes, the lock is taken, the stream has data. So a newly armed
//! timer first waits in a short line. If it is cancelled there, the queue never hears of it. When the line is full, or the
//! shard is visited, those that are left in it are placed, in the order in which they were armed.
//!
//! ```text
//!     arm ---> [ a | - | c | d |   |   ]  ---- full, or a visit ---->  the queue
//!                    |
//!                 cancelled: a hole; holes at the end are taken back at once
//! ```

use crate::node::NodeRef;
use crate::sync::IS_CHECK;

/// How many can wait.
pub(crate) const YOUNG: usize = if IS_CHECK { 2 } else { 64 };

pub(crate) struct Young {
    line: [Option<NodeRef>; YOUNG],
    /// How many places are taken, holes included. The last of them is not a hole.
    len: usize,
}

const _: () = assert!(YOUNG <= u8::MAX as usize, "a node keeps its place in the line in a byte");

impl Young {
    pub(crate) const fn new() -> Young {
        Young { line: [None; YOUNG], len: 0 }
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.len == YOUNG
    }

    /// Lines up a node. There must be room. Returns its place, for [`remove`](Young::remove).
    #[inline(always)]
    pub(crate) fn push(&mut self, node: NodeRef) -> u8 {
        let place = self.len;
        self.line[place] = Some(node);
        self.len += 1;
        place as u8
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, place: u8) {
        self.line[usize::from(place)] = None;
        while self.len > 0 && self.line[self.len - 1].is_none() {
            self.len -= 1;
        }
    }

    /// Empties the line, oldest first.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = NodeRef> + use<> {
        let Young { line, len } = std::mem::replace(self, Young::new());
        line.into_iter().take(len).flatten()
    }
}

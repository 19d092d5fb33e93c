//! All timers by their names, behind one lock. It reads no clock and calls nobody.
//!
//! ```text
//!     names: name -> line        agenda: timers, by their deadlines
//!     lines: oldest <-> ... <-> youngest, a list through the timers of one name
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use tourbillon_queue::Time;

use crate::core::error::ArmError;
use crate::multi::deadline_map::{self, DeadlineMap, Key, Popped};
use crate::multi::waiter::Waiter;
use crate::outcome::Outcome;

/// Whoever takes a timer out of it, under the lock, decides how that timer ended, and tells it so outside.
pub(super) struct State {
    pub(super) deadlines: DeadlineMap<Item>,
    pub(super) names: HashMap<Arc<str>, u32>,
    /// By the numbers in `names`; some are free.
    lines: Vec<Line>,
    free: Vec<u32>,
    /// There are never more timers than this.
    most: usize,
    /// How many timers have been created.
    pub(super) created: u64,
    /// How many are started and pending.
    pub(super) pending: usize,
    /// No more are taken.
    pub(super) is_closed: bool,
    ringing: Ringing,
}

/// One timer.
pub(super) struct Item {
    line: u32,
    /// Who waits; `None` before it is started.
    waiter: Option<Waiter>,
    /// Timers of a name are cancelled by age.
    number: u64,
    /// In its line.
    before: Option<Key>,
    after: Option<Key>,
}

/// The timers of one name, from the oldest to the youngest: a list that is linked through them.
struct Line {
    /// `None`: it is free.
    name: Option<Arc<str>>,
    first: Option<Key>,
    last: Option<Key>,
    len: usize,
}

/// Whether some thread fires what is due. Only one does at a time, so that they are told in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ringing {
    No,
    Yes,
    /// And the bell has rung meanwhile.
    Again,
}

/// What came of starting a timer.
pub(super) enum Start {
    Done,
    WasCancelled(Waiter),
    Stopped(#[expect(dead_code, reason = "it is dropped outside the lock")] Waiter),
}

enum Side {
    Before,
    After,
}

pub(super) type Batch = Vec<(Waiter, Outcome)>;

/// So many are taken out before the lock is let go (D26).
pub(super) const BATCH: usize = 256;

/// So much of the wheel's upkeep is done, and so many places are looked at, before the lock is let go.
const STEPS: usize = 1024;

/// The memory for so many names is kept when there is none.
const KEPT: usize = 1024;

impl State {
    pub(super) fn new(most: usize) -> State {
        State {
            most: most.min(deadline_map::MOST),
            deadlines: DeadlineMap::new(),
            names: HashMap::new(),
            lines: Vec::new(),
            free: Vec::new(),
            created: 0,
            pending: 0,
            is_closed: false,
            ringing: Ringing::No,
        }
    }

    /// How many there are of this name.
    pub(super) fn count(&self, name: &str) -> usize {
        self.names.get(name).map_or(0, |line| self.lines[*line as usize].len)
    }

    pub(super) fn add(
        &mut self,
        name: &str,
        waiter: Option<Waiter>,
        due: Time,
    ) -> Result<Key, (ArmError, Option<Waiter>)> {
        if self.deadlines.len() >= self.most || self.deadlines.is_full() {
            return Err((ArmError::Full { capacity: self.most }, waiter));
        }
        self.pending += usize::from(waiter.is_some());
        let line = self.line(name);
        let before = self.lines[line as usize].last;
        let key = self.deadlines.insert(due, Item { line, waiter, number: self.created, before, after: None });
        self.created += 1;
        self.link(before, line, Side::After, Some(key));
        let line = &mut self.lines[line as usize];
        (line.last, line.len) = (Some(key), line.len + 1);
        Ok(key)
    }

    pub(super) fn start(&mut self, key: Key, due: Time, waiter: Waiter, engine_is_closed: bool) -> Start {
        let Some(item) = self.deadlines.get_mut(key) else { return Start::WasCancelled(waiter) };
        if self.is_closed || engine_is_closed {
            self.remove(key);
            return Start::Stopped(waiter);
        }
        item.waiter = Some(waiter);
        self.pending += 1;
        self.deadlines.set_deadline(key, due);
        Start::Done
    }

    pub(super) fn remove_unstarted(&mut self, key: Key) {
        if self.deadlines.get(key).is_some_and(|item| item.waiter.is_none()) {
            self.remove(key);
        }
    }

    /// Takes a timer out of everything. `None` if it has ended.
    pub(super) fn remove(&mut self, key: Key) -> Option<Item> {
        let item = self.deadlines.remove(key)?;
        self.link(item.before, item.line, Side::After, item.after);
        self.link(item.after, item.line, Side::Before, item.before);
        self.lines[item.line as usize].len -= 1;
        self.free_if_empty(item.line);
        self.pending -= usize::from(item.waiter.is_some());
        Some(item)
    }

    /// Up to `most` of a name, the oldest first, of those that were created before the one with this number. Gives how many;
    /// those that are started go into the batch.
    pub(super) fn take_oldest(&mut self, name: &str, youngest: u64, most: usize, batch: &mut Batch) -> usize {
        let Some(line) = self.names.get(name).copied() else { return 0 };
        let mut taken = 0;
        // With its last timer the line goes, and with the last line all of them may.
        while taken < most
            && let Some(first) = self.lines.get(line as usize).and_then(|line| line.first)
            && self.deadlines.get(first).is_some_and(|item| item.number < youngest)
        {
            self.end(first, Outcome::Cancelled, batch);
            taken += 1;
        }
        taken
    }

    /// A batch of those that are started, by their places from `cursor` on; whether that was the last.
    pub(super) fn take_started(&mut self, cursor: &mut u32, outcome: Outcome, batch: &mut Batch) -> bool {
        for _ in 0..STEPS {
            let Some(key) = self.deadlines.key_at(*cursor) else { return true };
            *cursor += 1;
            if self.deadlines.get(key).is_some_and(|item| item.waiter.is_some()) {
                self.end(key, outcome, batch);
            }
        }
        false
    }

    /// A batch of what is due, in order. Says whether there may be more.
    pub(super) fn take_due(&mut self, now: Time, batch: &mut Batch) -> bool {
        while batch.len() < BATCH {
            match self.deadlines.pop(now, STEPS) {
                Popped::Due(key, _) => self.end(key, Outcome::Fired, batch),
                Popped::NotYet => return true,
                Popped::Nothing => return false,
            }
        }
        true
    }

    /// Whether the caller is the one to fire what is due. If not, whoever does looks again.
    pub(super) fn begin_ringing(&mut self) -> bool {
        let before = self.ringing;
        self.ringing = if before == Ringing::No { Ringing::Yes } else { Ringing::Again };
        before == Ringing::No
    }

    /// Whether it was all.
    pub(super) fn end_ringing(&mut self) -> bool {
        let was_all = self.ringing == Ringing::Yes;
        self.ringing = if was_all { Ringing::No } else { Ringing::Yes };
        was_all
    }

    /// Takes a timer out. If it was started, who waits for it goes into the batch.
    fn end(&mut self, key: Key, outcome: Outcome, batch: &mut Batch) {
        let waiter = self.remove(key).and_then(|item| item.waiter);
        batch.extend(waiter.map(|waiter| (waiter, outcome)));
    }

    /// The line of a name, made if need be.
    fn line(&mut self, name: &str) -> u32 {
        if let Some(line) = self.names.get(name) {
            return *line;
        }
        let name: Arc<str> = name.into();
        let line = Line { name: Some(name.clone()), first: None, last: None, len: 0 };
        let index = match self.free.pop() {
            Some(index) => {
                self.lines[index as usize] = line;
                index
            }
            None => {
                self.lines.push(line);
                self.lines.len() as u32 - 1
            }
        };
        self.names.insert(name, index);
        index
    }

    fn free_if_empty(&mut self, index: u32) {
        let line = &mut self.lines[index as usize];
        if line.len == 0
            && let Some(name) = line.name.take()
        {
            self.names.remove(&name);
            self.free.push(index);
            self.give_memory_back();
        }
    }

    /// When there is no name left.
    fn give_memory_back(&mut self) {
        if self.names.is_empty() && self.names.capacity() > KEPT {
            self.names = HashMap::new();
            (self.lines, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// Makes `neighbour` what comes after or before `of` in a line; at its end, the line's first or last.
    fn link(&mut self, of: Option<Key>, line: u32, side: Side, neighbour: Option<Key>) {
        let item = of.and_then(|of| self.deadlines.get_mut(of));
        let line = &mut self.lines[line as usize];
        match (item, side) {
            (Some(item), Side::After) => item.after = neighbour,
            (Some(item), Side::Before) => item.before = neighbour,
            (None, Side::After) => line.first = neighbour,
            (None, Side::Before) => line.last = neighbour,
        }
    }
}

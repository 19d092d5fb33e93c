//! The sockets of a reactor, by token.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::readiness::Readiness;
use super::{Event, Ready, Token};

#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    readiness: Option<Arc<Readiness>>,
    /// Of the socket, while there is a readiness.
    fd: RawFd,
}

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Table {
    /// A new one.
    ///
    /// # Errors
    /// There are four billion.
    pub(super) fn insert(&mut self, readiness: Arc<Readiness>, fd: RawFd) -> io::Result<Token> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).map_err(io::Error::other)?;
                self.slots.push(Slot { generation: 0, readiness: None, fd });
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.readiness = Some(readiness);
        slot.fd = fd;
        Ok(slot.token(index))
    }

    /// Those for which somebody waits.
    pub(super) fn awaited(&self) -> Vec<Token> {
        let is_awaited = |slot: &Slot| slot.readiness.as_ref().is_some_and(|readiness| readiness.is_awaited());
        (0..).zip(&self.slots).filter(|(_, slot)| is_awaited(slot)).map(|(index, slot)| slot.token(index)).collect()
    }

    /// Asks sockets for what they are ready.
    pub(super) fn ask(&self, sockets: &[Token], flags: PollFlags, events: &mut Vec<Event>) {
        let there = sockets.iter().filter_map(|token| Some((*token, self.slot(*token)?.poll_fd(flags))));
        let (tokens, mut asked): (Vec<_>, Vec<_>) = there.unzip();
        // It can fail for want of memory only: then all of them are to try.
        let is_told = poll(&mut asked, Some(&NO_TIME)).is_ok();
        for (token, asked) in tokens.into_iter().zip(&asked) {
            let flags = if is_told { asked.revents() } else { flags };
            if !flags.is_empty() {
                events.push(Event { token, ready: Ready::from_poll(flags.bits() as u32), ended: false });
            }
        }
    }

    pub(super) fn get(&self, token: Token) -> Option<&Arc<Readiness>> {
        self.slot(token)?.readiness.as_ref()
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Arc<Readiness>> {
        self.get(token)?;
        self.free_slot(token.0 as u32 as usize)
    }

    /// Removes all.
    pub(super) fn clear(&mut self) -> Vec<Arc<Readiness>> {
        (0..self.slots.len()).filter_map(|index| self.free_slot(index)).collect()
    }

    /// One that is in use.
    fn slot(&self, token: Token) -> Option<&Slot> {
        let slot = self.slots.get(token.0 as u32 as usize)?;
        (slot.readiness.is_some() && slot.generation == (token.0 >> 32) as u32).then_some(slot)
    }

    fn free_slot(&mut self, index: usize) -> Option<Arc<Readiness>> {
        let slot = &mut self.slots[index];
        let readiness = slot.readiness.take()?;
        // The highest generation is the back ends' own.
        slot.generation = (slot.generation + 1) % Token::RESERVED_GENERATION;
        self.free.push(index as u32);
        Some(readiness)
    }
}

impl Slot {
    fn token(&self, index: u32) -> Token {
        Token(u64::from(self.generation) << 32 | u64::from(index))
    }

    /// Of a slot with a readiness, and not to outlive the lock of the table.
    fn poll_fd(&self, flags: PollFlags) -> PollFd<'_> {
        // SAFETY: a socket is closed after it has been removed from the table, which we have.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        PollFd::from_borrowed_fd(fd, flags)
    }
}

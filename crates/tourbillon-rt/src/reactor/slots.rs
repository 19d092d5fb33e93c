//! The sockets of a reactor, by token.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::readiness::Readiness;
use super::sys::{ReadyFlags, SocketEvent, Token};

#[derive(Default)]
pub(crate) struct SocketSlots {
    slots: Vec<SocketSlot>,
    free: Vec<u32>,
}

struct SocketSlot {
    generation: u32,
    /// `None` while the slot is free.
    readiness: Option<Arc<Readiness>>,
    /// The socket's descriptor. Valid while there is a readiness.
    fd: RawFd,
}

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl SocketSlots {
    /// Puts a socket into a free slot and returns its token.
    ///
    /// # Errors
    /// All four billion slots are taken.
    pub(crate) fn insert(&mut self, readiness: Arc<Readiness>, fd: RawFd) -> io::Result<Token> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).map_err(io::Error::other)?;
                self.slots.push(SocketSlot { generation: 0, readiness: None, fd });
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.readiness = Some(readiness);
        slot.fd = fd;
        Ok(slot.token(index))
    }

    /// Returns the tokens of the sockets that a task waits for.
    pub(crate) fn awaited(&self) -> Vec<Token> {
        let is_awaited = |slot: &SocketSlot| slot.readiness.as_ref().is_some_and(|readiness| readiness.is_awaited());
        (0..).zip(&self.slots).filter(|(_, slot)| is_awaited(slot)).map(|(index, slot)| slot.token(index)).collect()
    }

    /// Polls sockets, without waiting, and appends an event for each that is ready.
    pub(crate) fn poll_now(&self, sockets: &[Token], flags: PollFlags, events: &mut Vec<SocketEvent>) {
        let present = sockets.iter().filter_map(|token| Some((*token, self.slot(*token)?.poll_fd(flags))));
        let (tokens, mut polled): (Vec<_>, Vec<_>) = present.unzip();
        // The call can fail only for want of memory: then every socket counts as ready.
        let has_polled = poll(&mut polled, Some(&NO_TIME)).is_ok();
        for (token, polled) in tokens.into_iter().zip(&polled) {
            let flags = if has_polled { polled.revents() } else { flags };
            if !flags.is_empty() {
                events.push(SocketEvent { token, ready: ReadyFlags::from_poll(u32::from(flags.bits())), ended: false });
            }
        }
    }

    pub(crate) fn get(&self, token: Token) -> Option<&Arc<Readiness>> {
        self.slot(token)?.readiness.as_ref()
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Arc<Readiness>> {
        self.get(token)?;
        self.free_slot(token.0 as u32 as usize)
    }

    /// Removes and returns all sockets.
    pub(crate) fn clear(&mut self) -> Vec<Arc<Readiness>> {
        (0..self.slots.len()).filter_map(|index| self.free_slot(index)).collect()
    }

    /// Returns the slot of a token, if it is in use.
    fn slot(&self, token: Token) -> Option<&SocketSlot> {
        let slot = self.slots.get(token.0 as u32 as usize)?;
        (slot.readiness.is_some() && slot.generation == (token.0 >> 32) as u32).then_some(slot)
    }

    fn free_slot(&mut self, index: usize) -> Option<Arc<Readiness>> {
        let slot = &mut self.slots[index];
        let readiness = slot.readiness.take()?;
        // The back ends use the highest generation for descriptors of their own.
        slot.generation = (slot.generation + 1) % Token::RESERVED_GENERATION;
        self.free.push(index as u32);
        Some(readiness)
    }
}

impl SocketSlot {
    fn token(&self, index: u32) -> Token {
        Token(u64::from(self.generation) << 32 | u64::from(index))
    }

    /// Returns the argument for `poll`, of a slot in use. It must not outlive the lock of the slots.
    fn poll_fd(&self, flags: PollFlags) -> PollFd<'_> {
        // SAFETY: `IoSource::drop` removes a socket from the slots, under their lock, before it closes the descriptor. The caller
        // holds that lock and has found the slot in use, so the descriptor is open until the lock is released.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        PollFd::from_borrowed_fd(fd, flags)
    }
}

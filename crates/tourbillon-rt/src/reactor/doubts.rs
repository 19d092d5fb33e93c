//! Sockets that are to be asked whether there is something to read.
//!
//! A read that comes upon urgent data ends before it, with fewer bytes than there was room for. That looks as if it had taken all
//! that there was; so who reads next waits, and no event will come for what is left. io_uring does not tell that there is urgent data.
//! To try each read once more would do, and cost a system call each: 4% of a busy server's time. Instead all who wait after such a
//! read are asked together: at once if they are few, else a moment after the last time, in which most have got an event anyway.

use tourbillon::{Span, Time};

use super::Token;
use crate::clock;

#[derive(Default)]
pub(super) struct Doubts {
    tokens: Vec<Token>,
    /// When they were asked last.
    asked: Time,
}

/// So many are asked at once, whenever that was.
const FEW: usize = 8;

/// Within it more are not asked again.
const MOMENT: Span = Span::from_millis(1);

impl Doubts {
    pub(super) fn add(&mut self, token: Token) {
        self.tokens.push(token);
    }

    /// Those who are to be asked now, or when there will be any.
    pub(super) fn take(&mut self) -> Result<Vec<Token>, Option<Time>> {
        if self.tokens.is_empty() {
            return Err(None);
        }
        let (now, next) = (clock::now(), self.asked + MOMENT);
        if self.tokens.len() > FEW && now < next {
            return Err(Some(next));
        }
        self.asked = now;
        Ok(std::mem::take(&mut self.tokens))
    }

    /// What is left of them is their room.
    pub(super) fn give_back(&mut self, mut asked: Vec<Token>) {
        asked.clear();
        self.tokens = asked;
    }
}

//! For systems that do not tell: no thread is ever found waiting, so time does not move by itself.

/// The wait of a thread, which is never found.
#[derive(PartialEq, Eq)]
pub(in crate::virtual_time) enum NeverFound {}

impl NeverFound {
    pub(in crate::virtual_time) fn may_be_for_lock(&self) -> bool {
        match *self {}
    }
}

pub(in crate::virtual_time) fn visibility() -> Result<(), &'static str> {
    Err("this system does not tell whether a thread waits")
}

pub(in crate::virtual_time) fn current_thread() -> Option<i32> {
    None
}

pub(in crate::virtual_time) fn wait_of(_: i32) -> Option<NeverFound> {
    None
}

pub(in crate::virtual_time) fn others_wait(_: &[i32]) -> bool {
    false
}

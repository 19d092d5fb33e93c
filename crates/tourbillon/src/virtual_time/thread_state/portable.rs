//! For systems that do not tell: no thread is ever found waiting, so time does not move by itself.

#[derive(PartialEq, Eq)]
pub(in crate::virtual_time) struct ThreadWait;

impl ThreadWait {
    pub(in crate::virtual_time) fn may_be_for_lock(&self) -> bool {
        false
    }
}

pub(in crate::virtual_time) fn current_thread() -> Option<i32> {
    None
}

pub(in crate::virtual_time) fn wait_of(_: i32) -> Option<ThreadWait> {
    None
}

pub(in crate::virtual_time) fn others_wait(_: &[i32]) -> bool {
    false
}

//! The bodies of requests and answers, and their way to and from timers.

mod create;
mod payload;
mod text;
mod view;

pub(crate) use self::create::{CreateTimer, Created, INT64, SharedText, check_most};
pub(crate) use self::text::{DurationText, TimeText};
pub(crate) use self::view::{PulledTimer, TimerDetail, TimerPage, TimerView};

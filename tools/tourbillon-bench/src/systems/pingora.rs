//! pingora-timeout: one tree per thread with ticks of 10 ms, each shared by all sleeps that end in it; a thread checks every 10
//! ms. A dropped sleep leaves its tick in the tree. It is used in a Tokio runtime, as its documentation says.

pub(crate) use pingora_timeout::fast_timeout::fast_sleep as sleep;

pub(crate) const NAME: &str = "pingora-timeout";

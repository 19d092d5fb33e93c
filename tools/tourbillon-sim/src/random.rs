//! Random numbers from a seed, the same everywhere: those of all our command lines.

pub use tourbillon_tools::Random;

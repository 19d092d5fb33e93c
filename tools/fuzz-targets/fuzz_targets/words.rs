#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tourbillon_fuzz::words(bytes));

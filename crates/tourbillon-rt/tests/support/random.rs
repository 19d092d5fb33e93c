//! Random numbers from a seed that is printed and can be given, and streams of bytes that are known at every position.

/// Random numbers, from a seed that is printed and can be given.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        let given = std::env::var("TOURBILLON_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        });
        println!("TOURBILLON_SEED={seed}");
        eprintln!("TOURBILLON_SEED={seed}");
        Random(seed)
    }

    /// Returns another generator, with numbers of its own.
    pub(crate) fn split(&mut self) -> Random {
        Random(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// Returns the byte at a position of a stream. A wrong, missing or repeated byte is noticed.
pub(crate) fn byte_at(place: u64) -> u8 {
    (place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Returns the bytes of a stream from a position on.
pub(crate) fn bytes_from(place: u64, count: usize) -> Vec<u8> {
    (place..).take(count).map(byte_at).collect()
}

/// Fails unless these are the bytes of a stream from a position on.
#[track_caller]
pub(crate) fn expect_bytes(bytes: &[u8], place: u64) {
    if let Some(wrong) = bytes.iter().zip(place..).position(|(byte, place)| *byte != byte_at(place)) {
        panic!("byte {} of the stream is not the one that was sent", place + wrong as u64);
    }
}

//! Reads numbers from bytes.

/// Bytes that are read from the front. Zeros follow their end, so that every input is valid.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Bytes<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Reads a big-endian number of up to `width` bytes, eight at most; of fewer if no more are left.
    pub(crate) fn number(&mut self, width: usize) -> u64 {
        let (number, rest) = self.0.split_at(width.min(8).min(self.0.len()));
        self.0 = rest;
        number.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_from_the_front_and_then_there_are_zeroes() {
        let mut bytes = Bytes(&[1, 2, 3, 4]);
        assert_eq!((bytes.byte(), bytes.number(2), bytes.number(9)), (1, 0x0203, 4));
        assert!(bytes.is_empty());
        assert_eq!((bytes.byte(), bytes.number(8)), (0, 0));
    }
}

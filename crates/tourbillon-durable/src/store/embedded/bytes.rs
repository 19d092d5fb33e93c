//! Writing and reading the fields of values.
//!
//! Numbers are in base 128 with the lowest digits first; texts and options are preceded by their length or by whether they are there.

use std::time::Duration;

use crate::time::StoreTime;

/// A value that could not be read: too short, or a number or a tag out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// Writes fields one after the other.
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn time(&mut self, time: StoreTime) {
        self.number(time.as_micros());
    }

    pub(super) fn duration(&mut self, duration: Duration) {
        self.number(duration.as_secs());
        self.number(u64::from(duration.subsec_nanos()));
    }

    pub(super) fn option<T>(&mut self, option: Option<T>, write: impl FnOnce(&mut Encoder, T)) {
        self.byte(u8::from(option.is_some()));
        if let Some(value) = option {
            write(self, value);
        }
    }
}

/// Reads fields one after the other.
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let digit = u64::from(byte & 0x7f);
            if digit << shift >> shift != digit {
                return Err(Malformed);
            }
            number |= digit << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.number()?).map_err(|_| Malformed)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.small::<usize>()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)?;
        Ok(text.to_owned())
    }

    pub(super) fn time(&mut self) -> Result<StoreTime, Malformed> {
        let micros = self.number()?;
        let time = StoreTime::from_micros(micros);
        if time.as_micros() == micros { Ok(time) } else { Err(Malformed) }
    }

    pub(super) fn duration(&mut self) -> Result<Duration, Malformed> {
        let seconds = self.number()?;
        let nanos = self.small::<u32>()?;
        if nanos < 1_000_000_000 { Ok(Duration::new(seconds, nanos)) } else { Err(Malformed) }
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Decoder<'a>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// Returns an error if anything is left to read.
    pub(super) fn finish(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut encoder = Encoder(Vec::new());
            encoder.number(number);
            let mut decoder = Decoder(&encoder.0);
            assert_eq!(decoder.number(), Ok(number));
            assert_eq!(decoder.finish(), Ok(()));
        }
    }

    #[test]
    fn q8_numbers_that_do_not_fit_are_malformed() {
        assert_eq!(Decoder(&[0xff; 9]).number(), Err(Malformed), "it does not end");
        assert_eq!(Decoder(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), Err(Malformed));
        assert_eq!(Decoder(&[0x80, 2]).small::<u8>(), Err(Malformed));
        assert_eq!(Decoder(&[5, 1, 2]).bytes(), Err(Malformed));
        assert_eq!(Decoder(&[2]).flag(), Err(Malformed));
    }
}

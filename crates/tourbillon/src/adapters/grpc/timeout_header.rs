//! The header `grpc-timeout`.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::HeaderMap;

/// The most digits that the gRPC protocol allows.
const DIGITS: usize = 8;

/// The header `grpc-timeout` is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BadGrpcTimeout {
    /// The header is there more than once.
    Repeated,
    /// The value does not begin with one to eight digits.
    BadValue,
    /// The value does not end with one of the units `H`, `M`, `S`, `m`, `u`, `n`.
    BadUnit,
}

/// Returns how long the client of a gRPC call will wait: the value of the header `grpc-timeout`, or `None` without one.
///
/// The value is one to eight digits and a unit: `H` hours, `M` minutes, `S` seconds, `m` milliseconds, `u` microseconds, `n` nanoseconds.
/// Zero is accepted, although the protocol speaks of positive numbers: clients send it when their deadline has passed.
///
/// # Errors
/// [`BadGrpcTimeout`] if the header is malformed, or is there more than once.
///
/// ```
/// use std::time::Duration;
/// use http::{HeaderMap, HeaderValue};
/// use tourbillon::adapters::grpc::{BadGrpcTimeout, grpc_timeout};
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(grpc_timeout(&headers), Ok(None));
/// headers.insert("grpc-timeout", HeaderValue::from_static("250m"));
/// assert_eq!(grpc_timeout(&headers), Ok(Some(Duration::from_millis(250))));
/// headers.insert("grpc-timeout", HeaderValue::from_static("250"));
/// assert_eq!(grpc_timeout(&headers), Err(BadGrpcTimeout::BadUnit));
/// ```
pub fn grpc_timeout(headers: &HeaderMap) -> Result<Option<Duration>, BadGrpcTimeout> {
    let mut values = headers.get_all("grpc-timeout").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(BadGrpcTimeout::Repeated);
    }
    parse(value.as_bytes()).map(Some)
}

fn parse(value: &[u8]) -> Result<Duration, BadGrpcTimeout> {
    let (unit, digits) = value.split_last().ok_or(BadGrpcTimeout::BadValue)?;
    let unit = match unit {
        b'H' => Duration::from_secs(3600),
        b'M' => Duration::from_secs(60),
        b'S' => Duration::from_secs(1),
        b'm' => Duration::from_millis(1),
        b'u' => Duration::from_micros(1),
        b'n' => Duration::from_nanos(1),
        _ => return Err(BadGrpcTimeout::BadUnit),
    };
    if digits.is_empty() || digits.len() > DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BadGrpcTimeout::BadValue);
    }
    let count = digits.iter().fold(0, |count, digit| count * 10 + u32::from(digit - b'0'));
    Ok(unit * count)
}

impl fmt::Display for BadGrpcTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadGrpcTimeout::Repeated => "the header grpc-timeout is there more than once; send it once",
            BadGrpcTimeout::BadValue => "the header grpc-timeout must begin with one to eight digits",
            BadGrpcTimeout::BadUnit => "the header grpc-timeout must end with a unit, one of H, M, S, m, u, n",
        })
    }
}

impl Error for BadGrpcTimeout {}

#[cfg(test)]
mod tests {
    use super::{BadGrpcTimeout, Duration, parse};

    #[test]
    fn e4_a_grpc_timeout_is_digits_and_a_unit() {
        for (text, wanted) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("6n", Duration::from_nanos(6)),
            ("0n", Duration::ZERO),
            ("00000007S", Duration::from_secs(7)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn e4_a_grpc_timeout_that_the_protocol_does_not_allow_is_refused() {
        for text in ["H", "123456789S", "-1S", "+1S", " 1S", "1.5S", "1 S", "1mS", "١S"] {
            assert_eq!(parse(text.as_bytes()), Err(BadGrpcTimeout::BadValue), "{text}");
        }
        for text in ["1", "1s", "1h", "1S ", "1ms?", "1µ"] {
            assert_eq!(parse(text.as_bytes()), Err(BadGrpcTimeout::BadUnit), "{text}");
        }
        assert_eq!(parse(b""), Err(BadGrpcTimeout::BadValue));
    }
}

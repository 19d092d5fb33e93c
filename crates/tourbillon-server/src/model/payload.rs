//! A JSON value as the bytes that are stored: without spaces, with the keys of every object in order.
//!
//! Two bodies that mean the same value give the same bytes, so that a create can be repeated by a client that writes JSON differently. The bytes
//! are written while the body is parsed: there is no tree of values in between.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A JSON value, written in one way only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CanonicalJson(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for CanonicalJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CanonicalJson, D::Error> {
        let mut bytes = Vec::new();
        deserializer.deserialize_any(ValueWriter(&mut bytes))?;
        Ok(CanonicalJson(bytes))
    }
}

impl PartialSchema for CanonicalJson {
    fn schema() -> RefOr<Schema> {
        Value::schema()
    }
}

impl ToSchema for CanonicalJson {}

/// Writes the value that it visits behind the bytes that are there.
struct ValueWriter<'b>(&'b mut Vec<u8>);

impl ValueWriter<'_> {
    fn write<E: Error>(self, value: impl serde::Serialize) -> Result<(), E> {
        serde_json::to_writer(self.0, &value).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for ValueWriter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueWriter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.write(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.write(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.reserve(text.len() + 2);
        self.write(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let first = self.0.len();
        loop {
            let before = self.0.len();
            if before > first {
                self.0.push(b',');
            }
            if items.next_element_seed(ValueWriter(self.0))?.is_none() {
                self.0.truncate(before);
                self.0.push(b']');
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        self.0.push(b'{');
        let first = self.0.len();
        // Each key with the place where its entry begins.
        let mut keys: Vec<(Cow<'de, str>, usize)> = Vec::new();
        let mut is_sorted = true;
        while let Some(key) = entries.next_key_seed(KeyReader)? {
            if let Some((last, _)) = keys.last() {
                is_sorted &= *last < key;
                self.0.push(b',');
            }
            let begin = self.0.len();
            serde_json::to_writer(&mut *self.0, &key).map_err(A::Error::custom)?;
            self.0.push(b':');
            entries.next_value_seed(ValueWriter(self.0))?;
            keys.push((key, begin));
        }
        if !is_sorted {
            sort_entries(self.0, first, keys);
        }
        self.0.push(b'}');
        Ok(())
    }
}

/// Puts the entries of an object that begin at `first` in the order of their keys. Of several with the same key the last stays.
fn sort_entries(bytes: &mut Vec<u8>, first: usize, keys: Vec<(Cow<'_, str>, usize)>) {
    let written = bytes.split_off(first);
    // A comma is behind each entry but the last.
    let ends: Vec<usize> = keys.iter().skip(1).map(|(_, begin)| begin - 1).chain([first + written.len()]).collect();
    let ranges = keys.into_iter().zip(ends).map(|((key, begin), end)| (key, begin - first..end - first));
    let sorted: std::collections::BTreeMap<_, _> = ranges.collect();
    for range in sorted.into_values() {
        if bytes.len() > first {
            bytes.push(b',');
        }
        bytes.extend_from_slice(&written[range]);
    }
}

/// Reads a key without a copy if it has no escapes.
struct KeyReader;

impl<'de> DeserializeSeed<'de> for KeyReader {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeyReader {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string key")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Result<String, String> {
        let read: Result<CanonicalJson, _> = serde_json::from_str(text);
        read.map(|json| String::from_utf8(json.0).unwrap()).map_err(|error| error.to_string())
    }

    /// Through a tree of values, as a reference.
    fn by_tree(text: &str) -> Result<String, String> {
        serde_json::from_str::<Value>(text).map(|value| value.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn u1_a_payload_has_one_form_whatever_its_spaces_and_the_order_of_its_keys() {
        let expected = Ok(r#"{"a":[1,{"x":null,"y":-2.5}],"b":"\u0001é\"/"}"#.to_owned());
        for text in [
            r#"{"a":[1,{"x":null,"y":-2.5}],"b":"\u0001é\"/"}"#,
            " { \"b\" : \"\\u0001\\u00e9\\\"\\/\" , \"\\u0061\" : [ 1 , {\"y\":-25e-1,\"x\":null} ] } ",
            r#"{"b":0,"a":0,"b":"\u0001é\"/","a":[1,{"y":-2.5,"x":1,"x":null}]}"#,
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn u1_random_payloads_are_written_as_a_tree_of_values_writes_them() {
        let seed = std::env::var("TOURBILLON_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(rand_seed);
        println!("TOURBILLON_SEED={seed}");
        let mut numbers = Numbers(seed);
        for _ in 0..2_000 {
            let mut text = numbers.value(0);
            assert_eq!(canonical(&text), by_tree(&text), "{text}");
            // Damage: the errors are the same, too.
            let cut = text.len() - 1 - numbers.below(text.len());
            if text.is_char_boundary(cut) {
                text.truncate(cut);
                assert_eq!(canonical(&text), by_tree(&text), "{text}");
            }
        }
    }

    fn rand_seed() -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }

    /// Random JSON.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit
        }

        fn pick(&mut self, of: &[&str]) -> String {
            of[self.below(of.len())].to_owned()
        }

        fn value(&mut self, depth: usize) -> String {
            match self.below(if depth < 4 { 6 } else { 4 }) {
                0 => self.pick(&["null", "true", "false", " null "]),
                1 => self.pick(&[
                    "0",
                    "-0",
                    "1.0",
                    "1e3",
                    "-7",
                    "18446744073709551616",
                    "0.1",
                    "1E-7",
                    "9007199254740993",
                ]),
                2 | 3 => self.text(),
                4 => {
                    let items: Vec<_> = (0..self.below(4)).map(|_| self.value(depth + 1)).collect();
                    format!("[{}]", items.join(" ,"))
                }
                _ => {
                    let entries: Vec<_> =
                        (0..self.below(5)).map(|_| format!("{}: {}", self.text(), self.value(depth + 1))).collect();
                    format!("{{ {}}}", entries.join(","))
                }
            }
        }

        fn text(&mut self) -> String {
            self.pick(&[
                r#""""#,
                r#""a""#,
                r#""b""#,
                r#""\u0061""#,
                r#""c d""#,
                r#""\n\t\\\"""#,
                r#""é""#,
                r#""\u00e9""#,
                r#""\/""#,
                r#""😀""#,
                r#""\ud83d\ude00""#,
                "\"\u{7f}\"",
            ])
        }
    }
}

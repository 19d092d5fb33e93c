//! A minimal JSON writer.

use std::fmt::Write;

/// A JSON value.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<Json>),
    /// Fields in the order in which they are written.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// Formats the value on one line.
    pub(crate) fn line(&self) -> String {
        let mut line = String::new();
        self.write(&mut line);
        line
    }

    fn write(&self, to: &mut String) {
        match self {
            Json::Null => to.push_str("null"),
            Json::Bool(value) => _ = write!(to, "{value}"),
            Json::Number(value) => _ = write!(to, "{value}"),
            Json::Text(text) => write_text(text, to),
            Json::List(values) => {
                let items = values.iter().map(|value| (None, value));
                write_items(items, '[', ']', to);
            }
            Json::Object(fields) => {
                let items = fields.iter().map(|(name, value)| (Some(*name), value));
                write_items(items, '{', '}', to);
            }
        }
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Json {
        Json::Number(value)
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Json {
        Json::Number(value as u64)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::Text(text)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

impl<T: Into<Json>> FromIterator<T> for Json {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Json {
        Json::List(values.into_iter().map(Into::into).collect())
    }
}

fn write_items<'a>(
    items: impl Iterator<Item = (Option<&'static str>, &'a Json)>,
    open: char,
    close: char,
    to: &mut String,
) {
    to.push(open);
    for (place, (name, value)) in items.enumerate() {
        if place > 0 {
            to.push(',');
        }
        if let Some(name) = name {
            write_text(name, to);
            to.push(':');
        }
        value.write(to);
    }
    to.push(close);
}

fn write_text(text: &str, to: &mut String) {
    to.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => to.extend(['\\', character]),
            control if control.is_control() => _ = write!(to, "\\u{:04x}", u32::from(control)),
            other => to.push(other),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_by_a_parser() {
        let json = Json::Object(vec![
            ("text", "a \"quote\", a \\ and a\nline".into()),
            ("list", [1_u64, u64::MAX].into_iter().collect()),
            ("nothing", Json::Null),
            ("yes", true.into()),
            ("empty", Json::Object(Vec::new())),
        ]);
        let read: serde_json::Value = serde_json::from_str(&json.line()).unwrap();
        assert_eq!(
            read,
            serde_json::json!({
                "text": "a \"quote\", a \\ and a\nline", "list": [1, u64::MAX], "nothing": null, "yes": true, "empty": {}
            })
        );
    }
}

//! The events of a server.

use serde_json::Value;

use crate::error::ClientError;

/// The most bytes of one event.
const LONGEST_EVENT: usize = 1 << 20;

/// Something that happened to a timer.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct TimerEvent {
    /// The id of the event, from which [`events`](crate::Client::events) goes on after a broken connection.
    pub id: Option<String>,
    /// What happened: `fired`, for example; `lagged` if events were lost because the client was slow, `reset` if they were forgotten.
    pub what: String,
    /// What the server says about it.
    pub data: Value,
}

impl TimerEvent {
    /// Returns an event without an id. For tests of programs that show events.
    #[must_use]
    pub fn new(what: &str, data: Value) -> TimerEvent {
        TimerEvent { id: None, what: what.to_owned(), data }
    }
}

/// Events as they come.
#[derive(Debug)]
pub struct EventStream {
    answer: reqwest::Response,
    parser: SseParser,
}

impl EventStream {
    pub(crate) fn new(answer: reqwest::Response) -> EventStream {
        EventStream { answer, parser: SseParser::default() }
    }

    /// Waits for the next event; `None` if the server has ended the stream.
    ///
    /// # Errors
    /// The connection broke, or the server sends something else.
    pub async fn next(&mut self) -> Result<Option<TimerEvent>, ClientError> {
        loop {
            if let Some(event) = self.parser.next()? {
                return Ok(Some(event));
            }
            match self.answer.chunk().await? {
                Some(chunk) => self.parser.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

/// Reads server-sent events from the bytes of a stream.
#[derive(Debug, Default)]
struct SseParser {
    buffer: Vec<u8>,
    id: Option<String>,
    what: String,
    data: String,
}

impl SseParser {
    fn next(&mut self) -> Result<Option<TimerEvent>, ClientError> {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(event) = self.line(line.trim_end_matches(['\n', '\r']))? {
                return Ok(Some(event));
            }
        }
        match self.buffer.len() {
            0..LONGEST_EVENT => Ok(None),
            _ => Err(ClientError::Answer("an event is too long".to_owned())),
        }
    }

    /// Takes a line. An empty one ends an event.
    fn line(&mut self, line: &str) -> Result<Option<TimerEvent>, ClientError> {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.what),
            "data" => self.data.push_str(value),
            "" if line.is_empty() && !self.data.is_empty() => {
                let data = serde_json::from_str(&std::mem::take(&mut self.data));
                let data = data.map_err(|error| ClientError::Answer(error.to_string()))?;
                let what = std::mem::take(&mut self.what);
                return Ok(Some(TimerEvent { id: self.id.clone(), what, data }));
            }
            "" if line.is_empty() => self.what.clear(),
            // A comment, or a field that this client does not need.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o7_events_are_read_whatever_the_pieces_are() {
        let text = ": hello\n\nretry: 2000\n\nid: 7-1\nevent: fired\ndata: {\"a\":1}\n\n: still here\n\nevent: reset\r\ndata: {}\r\n\r\n";
        for size in 1..text.len() {
            let mut parser = SseParser::default();
            let mut events = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                parser.buffer.extend_from_slice(piece);
                while let Some(event) = parser.next().unwrap() {
                    events.push((event.id, event.what, event.data.to_string()));
                }
            }
            let id = Some("7-1".to_owned());
            assert_eq!(events, [(id.clone(), "fired".into(), "{\"a\":1}".into()), (id, "reset".into(), "{}".into())]);
        }
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        let mut parser = SseParser { buffer: b"data: <html>\n\n".to_vec(), ..SseParser::default() };
        assert!(parser.next().is_err());
        let mut parser = SseParser { buffer: vec![b'x'; LONGEST_EVENT], ..SseParser::default() };
        assert!(parser.next().is_err());
    }
}

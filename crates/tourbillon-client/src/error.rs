//! What can go wrong with a request.

use std::fmt;

use serde::Deserialize;

/// Why a request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The address of the server cannot be used.
    Address(String),
    /// The server cannot be reached, or the connection broke.
    Connection(reqwest::Error),
    /// The server refused the request.
    Refused(Box<Problem>),
    /// The answer is not one of a Tourbillon server.
    Answer(String),
}

/// What the server says about a request that it refused (RFC 9457).
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// The kind of problem: `/problems/conflict`, for example.
    #[serde(rename = "type")]
    pub kind: String,
    /// The problem in a few words.
    pub title: String,
    /// The status code of the answer.
    pub status: u16,
    /// What is wrong with this request, and what to do.
    #[serde(default)]
    pub detail: String,
    /// The timer that is in the way of a create.
    #[serde(default)]
    pub id: Option<String>,
    /// The version that the timer has, if another one was expected.
    #[serde(default)]
    pub version: Option<u64>,
    /// After how many seconds to try again.
    #[serde(skip)]
    pub retry_after: Option<u64>,
}

impl ClientError {
    /// Returns what the server said, if it refused the request.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            ClientError::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    /// Returns whether the same request may succeed later: the server is overloaded, or cannot be reached.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            ClientError::Connection(_) => true,
            ClientError::Refused(problem) => matches!(problem.status, 429 | 502 | 503 | 504 | 507),
            ClientError::Address(_) | ClientError::Answer(_) => false,
        }
    }
}

impl From<reqwest::Error> for ClientError {
    fn from(error: reqwest::Error) -> ClientError {
        ClientError::Connection(error)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Address(why) => write!(f, "the address of the server cannot be used: {why}"),
            ClientError::Connection(error) => {
                write!(f, "the server cannot be reached: {error}")?;
                let mut source = std::error::Error::source(error);
                while let Some(error) = source {
                    write!(f, ": {error}")?;
                    source = error.source();
                }
                Ok(())
            }
            ClientError::Refused(problem) => match problem.detail.as_str() {
                "" => write!(f, "{} ({})", problem.title, problem.status),
                detail => f.write_str(detail),
            },
            ClientError::Answer(why) => write!(f, "the answer is not one of a Tourbillon server: {why}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Connection(error) => Some(error),
            _ => None,
        }
    }
}

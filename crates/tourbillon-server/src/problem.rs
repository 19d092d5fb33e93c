//! Errors as RFC 9457 problem details.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use tourbillon_durable::{StoreError, TimersError};

/// The answer to a request that failed, as RFC 9457 has it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Problem {
    /// Names the kind of problem: `/problems/conflict`, for example. The page `/docs` lists them.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub(crate) kind: &'static str,
    /// The problem in a few words, the same for all of its kind.
    #[schema(value_type = String)]
    pub(crate) title: &'static str,
    /// The status code of the answer.
    pub(crate) status: u16,
    /// What is wrong with this request, and what to do.
    pub(crate) detail: String,
    /// The timer that is in the way of a create.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// The version that the timer has, if another one was expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
    /// After how many seconds to try again.
    #[serde(skip)]
    pub(crate) retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Problem {
        Problem {
            kind,
            title,
            status: status.as_u16(),
            detail: detail.into(),
            id: None,
            version: None,
            retry_after: None,
        }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "/problems/bad-request", "The request cannot be understood", detail)
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "/problems/invalid", "The request cannot be carried out", detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "/problems/forbidden", "This is not allowed", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "/problems/not-found", "There is no such thing", detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, "/problems/conflict", "The request conflicts with the present state", detail)
    }

    pub(crate) fn too_many(detail: impl Into<String>, retry_after: u64) -> Problem {
        let title = "There are too many requests";
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "/problems/too-many-requests", title, detail);
        Problem { retry_after: Some(retry_after.max(1)), ..problem }
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Problem {
        let title = "The store cannot be used at the moment";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "/problems/unavailable", title, detail);
        Problem { retry_after: Some(1), ..problem }
    }
}

impl From<TimersError> for Problem {
    fn from(error: TimersError) -> Problem {
        let detail = error.to_string();
        match error {
            TimersError::Invalid(_)
            | TimersError::OutOfRange
            | TimersError::ZeroLimit
            | TimersError::ZeroPage
            | TimersError::BatchPayloadTooLarge(_) => Problem::invalid(detail),
            TimersError::Conflict(id) => Problem { id: Some(id.to_string()), ..Problem::conflict(detail) },
            TimersError::NotFound => Problem::not_found(detail),
            TimersError::InFlight => Problem::conflict(format!("{detail}: wait for its end, or create another timer")),
            TimersError::VersionIs(version) => {
                let detail = format!("{detail}: read it again and decide anew");
                Problem { version: Some(version), ..Problem::conflict(detail) }
            }
            TimersError::Store(StoreError::Full(_)) => {
                let title = "The store is full";
                let detail = format!("{detail}. Cancels and deliveries go on: free some space, then try again");
                let problem = Problem::new(StatusCode::INSUFFICIENT_STORAGE, "/problems/store-full", title, detail);
                Problem { retry_after: Some(10), ..problem }
            }
            TimersError::Store(StoreError::Uncertain(_)) => Problem::unavailable(format!(
                "{detail}. The request may have been carried out: repeat it with the same key"
            )),
            _ => Problem::unavailable(detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.retry_after;
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

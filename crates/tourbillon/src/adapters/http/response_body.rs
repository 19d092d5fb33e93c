//! The body of a response: the service's, or a line of text.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response of an [`HttpTimeout`](super::HttpTimeout): the service's, or a line of text that says what took too long.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        source: Source<B>,
    }
}

pin_project! {
    #[project = SourceProjection]
    #[derive(Debug)]
    enum Source<B> {
        Service { #[pin] body: B },
        // `None` after the text was read.
        Text { text: Option<String> },
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn of_service(body: B) -> ResponseBody<B> {
        ResponseBody { source: Source::Service { body } }
    }

    pub(super) fn of_text(text: String) -> ResponseBody<B> {
        ResponseBody { source: Source::Text { text: Some(text) } }
    }
}

impl<B: Body<Data: From<String>>> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().source.project() {
            SourceProjection::Service { body } => body.poll_frame(context),
            SourceProjection::Text { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(text.into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Service { body } => body.is_end_stream(),
            Source::Text { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Service { body } => body.size_hint(),
            Source::Text { text } => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}

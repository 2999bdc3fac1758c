//! The body of a response, which has to be complete in time.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use kube::client::DynBody;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::BoxError;

use super::Timeout;

pub struct Limited {
    inner: Box<DynBody>,
    end: Pin<Box<Sleep>>,
    timeout: Timeout,
}

impl Limited {
    pub fn new(inner: Box<DynBody>, end: Instant, timeout: Timeout) -> Self {
        Self { inner, end: Box::pin(sleep_until(end)), timeout }
    }
}

impl Body for Limited {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            return Poll::Ready(frame);
        }
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(self.timeout.into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use windlass_core::LogEvent;

use crate::error::Error;
use crate::subscription::Subscription;

/// The events of a [`Subscription`], one by one.
pub struct EventStream {
    read: VecDeque<LogEvent>,
    /// The pending read; none after an error has ended the stream.
    reader: Option<Reader>,
}

type Page = Result<Vec<LogEvent>, Error>;
type Reader = Pin<Box<dyn Future<Output = (Subscription, Page)> + Send>>;

impl EventStream {
    pub(crate) fn new(subscription: Subscription) -> Self {
        Self { read: VecDeque::new(), reader: Some(reader(subscription)) }
    }
}

fn reader(mut subscription: Subscription) -> Reader {
    Box::pin(async move {
        let page = subscription.next().await;
        (subscription, page)
    })
}

impl Stream for EventStream {
    type Item = Result<LogEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(under_way) = &mut self.reader else { return Poll::Ready(None) };
            let (subscription, page) = ready!(under_way.as_mut().poll(context));
            match page {
                Ok(events) => {
                    self.read = events.into();
                    self.reader = Some(reader(subscription));
                }
                Err(error) => {
                    self.reader = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("read", &self.read.len()).finish_non_exhaustive()
    }
}

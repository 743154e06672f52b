use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The output of a future that never waits, as those of the in-memory store.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("memory does not wait"),
    }
}

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// What a future comes to that never waits, as those of the store in memory.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("memory answers at once"),
    }
}

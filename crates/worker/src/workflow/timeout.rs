use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::error::StepError;
use super::step::Step;

/// The output of a future, or an error if `limit` ends first.
pub(super) fn timeout<F: Future>(
    future: F,
    mut limit: Step<()>,
) -> impl Future<Output = Result<F::Output, StepError>> {
    let mut future = Some(Box::pin(future));
    poll_fn(move |context| {
        let running = future.as_mut().expect("it is not polled after it is ready");
        if let Poll::Ready(output) = running.as_mut().poll(context) {
            future = None;
            return Poll::Ready(Ok(output));
        }
        let Poll::Ready(over) = Pin::new(&mut limit).poll(context) else { return Poll::Pending };
        future = None;
        Poll::Ready(Err(over.err().unwrap_or(StepError::TimedOut)))
    })
}

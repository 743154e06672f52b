use std::collections::BTreeSet;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

/// A set of futures. Only those that were woken are polled, in order, so that one wake does not
/// cost a poll of all others.
pub(super) struct FutureSet<F: Future> {
    members: Vec<Option<Member<F>>>,
    running: usize,
    woken: Arc<Mutex<Woken>>,
}

struct Member<F> {
    future: Pin<Box<F>>,
    waker: Waker,
}

struct Woken {
    places: BTreeSet<usize>,
    /// The waker of the task that polls the set.
    poller: Option<Waker>,
}

/// The waker of one future.
struct MemberWaker {
    place: usize,
    woken: Arc<Mutex<Woken>>,
}

impl Wake for MemberWaker {
    fn wake(self: Arc<Self>) {
        let poller = {
            let mut woken = locked(&self.woken);
            woken.places.insert(self.place);
            woken.poller.clone()
        };
        if let Some(poller) = poller {
            poller.wake();
        }
    }
}

fn locked(woken: &Mutex<Woken>) -> MutexGuard<'_, Woken> {
    woken.lock().expect("no panic while the lock is held")
}

impl<F: Future> FutureSet<F> {
    pub(super) fn new(futures: Vec<impl IntoFuture<IntoFuture = F, Output = F::Output>>) -> Self {
        let running = futures.len();
        let places = (0..running).collect();
        let woken = Arc::new(Mutex::new(Woken { places, poller: None }));
        let member = |(place, future): (usize, _)| {
            let waker = Waker::from(Arc::new(MemberWaker { place, woken: Arc::clone(&woken) }));
            let future: F = IntoFuture::into_future(future);
            Some(Member { future: Box::pin(future), waker })
        };
        let members = futures.into_iter().enumerate().map(member).collect();
        Self { members, running, woken }
    }

    pub(super) fn places(&self) -> Range<usize> {
        0..self.members.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running == 0
    }

    /// Drops the remaining futures.
    pub(super) fn clear(&mut self) {
        self.members.clear();
        self.running = 0;
    }

    /// Polls the futures that were woken. Returns outputs with their positions, up to and including
    /// the first for which `is_last` holds.
    pub(super) fn poll(
        &mut self,
        context: &Context<'_>,
        is_last: impl Fn(&F::Output) -> bool,
    ) -> Vec<(usize, F::Output)> {
        let places = {
            let mut woken = locked(&self.woken);
            woken.poller = Some(context.waker().clone());
            std::mem::take(&mut woken.places)
        };
        let mut outputs = Vec::new();
        for place in places {
            let Some(slot) = self.members.get_mut(place) else { continue };
            let Some(member) = slot else { continue };
            let mut context = Context::from_waker(&member.waker);
            if let Poll::Ready(output) = member.future.as_mut().poll(&mut context) {
                *slot = None;
                self.running -= 1;
                let ends = is_last(&output);
                outputs.push((place, output));
                if ends {
                    break;
                }
            }
        }
        outputs
    }
}

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::future_set::FutureSet;

/// Several futures that are awaited together.
pub trait Join {
    type Output;

    fn join(self) -> impl Future<Output = Self::Output> + Send;
}

/// Several futures that are awaited together, until one of them fails.
pub trait TryJoin {
    /// A `Result`: all values, or the first error.
    type Output;

    fn try_join(self) -> impl Future<Output = Self::Output> + Send;
}

/// Several futures of which the first to be ready counts.
pub trait Select {
    type Output;

    fn select(self) -> impl Future<Output = Self::Output> + Send;
}

macro_rules! one_of {
    ($One:ident: $($F:ident $Place:ident)+) => {
        /// The output of the first future that was ready.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $One<$($F),+> {
            $($Place($F),)+
        }
    };
}

one_of!(Either: A First B Second);
one_of!(OneOf3: A First B Second C Third);
one_of!(OneOf4: A First B Second C Third D Fourth);
one_of!(OneOf5: A First B Second C Third D Fourth E Fifth);
one_of!(OneOf6: A First B Second C Third D Fourth E Fifth F Sixth);
one_of!(OneOf7: A First B Second C Third D Fourth E Fifth F Sixth G Seventh);
one_of!(OneOf8: A First B Second C Third D Fourth E Fifth F Sixth G Seventh H Eighth);

/// A future, or its output.
enum Slot<F: Future> {
    Running(Pin<Box<F>>),
    Done(Option<F::Output>),
}

impl<F: Future> Slot<F> {
    fn new(future: F) -> Self {
        Self::Running(Box::pin(future))
    }

    fn is_done(&mut self, context: &mut Context<'_>) -> bool {
        let Slot::Running(future) = self else { return true };
        let Poll::Ready(output) = future.as_mut().poll(context) else { return false };
        *self = Slot::Done(Some(output));
        true
    }

    fn take(&mut self) -> F::Output {
        match self {
            Slot::Done(output) => output.take().expect("it is taken once"),
            Slot::Running(_) => unreachable!("it is taken when all are done"),
        }
    }
}

impl<T, E, F: Future<Output = Result<T, E>>> Slot<F> {
    fn take_error(&mut self) -> Option<E> {
        match self {
            Slot::Done(output @ Some(Err(_))) => output.take().and_then(Result::err),
            Slot::Done(_) | Slot::Running(_) => None,
        }
    }

    fn take_value(&mut self) -> T {
        match self.take() {
            Ok(value) => value,
            Err(_) => unreachable!("an error ends all of them"),
        }
    }
}

macro_rules! join {
    ($($F:ident)+) => {
        impl<$($F),+> Join for ($($F,)+)
        where
            $($F: IntoFuture<Output: Send, IntoFuture: Send>,)+
        {
            type Output = ($($F::Output,)+);

            #[allow(non_snake_case, reason = "each is named like its type")]
            fn join(self) -> impl Future<Output = Self::Output> + Send {
                let ($($F,)+) = self;
                let ($(mut $F,)+) = ($(Slot::new($F.into_future()),)+);
                poll_fn(move |context| {
                    let done = [$($F.is_done(context)),+];
                    if done.contains(&false) {
                        return Poll::Pending;
                    }
                    Poll::Ready(($($F.take(),)+))
                })
            }
        }
    };
}

join!(A B);
join!(A B C);
join!(A B C D);
join!(A B C D E);
join!(A B C D E F);
join!(A B C D E F G);
join!(A B C D E F G H);

macro_rules! try_join {
    ($($F:ident $T:ident)+) => {
        impl<Error, $($F, $T),+> TryJoin for ($($F,)+)
        where
            Error: Send,
            $($T: Send,)+
            $($F: IntoFuture<Output = Result<$T, Error>, IntoFuture: Send>,)+
        {
            type Output = Result<($($T,)+), Error>;

            #[allow(non_snake_case, reason = "each is named like its type")]
            fn try_join(self) -> impl Future<Output = Self::Output> + Send {
                let ($($F,)+) = self;
                let mut running = Some(($(Slot::new($F.into_future()),)+));
                poll_fn(move |context| {
                    let ($($F,)+) = running.as_mut().expect("it is not polled after it is ready");
                    let mut all_done = true;
                    $(
                        let done = $F.is_done(context);
                        all_done &= done;
                        if let Some(error) = $F.take_error() {
                            // Dropping the others cancels their steps.
                            running = None;
                            return Poll::Ready(Err(error));
                        }
                    )+
                    if !all_done {
                        return Poll::Pending;
                    }
                    let values = ($($F.take_value(),)+);
                    running = None;
                    Poll::Ready(Ok(values))
                })
            }
        }
    };
}

try_join!(A TA B TB);
try_join!(A TA B TB C TC);
try_join!(A TA B TB C TC D TD);
try_join!(A TA B TB C TC D TD E TE);
try_join!(A TA B TB C TC D TD E TE F TF);
try_join!(A TA B TB C TC D TD E TE F TF G TG);
try_join!(A TA B TB C TC D TD E TE F TF G TG H TH);

impl<T, E, F> TryJoin for Vec<F>
where
    T: Send,
    E: Send,
    F: IntoFuture<Output = Result<T, E>, IntoFuture: Send>,
{
    type Output = Result<Vec<T>, E>;

    fn try_join(self) -> impl Future<Output = Self::Output> + Send {
        let mut set = FutureSet::new(self);
        let mut values: Vec<Option<T>> = set.places().map(|_| None).collect();
        poll_fn(move |context| {
            for (place, output) in set.poll(context, Result::is_err) {
                match output {
                    Ok(value) => values[place] = Some(value),
                    Err(error) => {
                        set.clear();
                        return Poll::Ready(Err(error));
                    }
                }
            }
            if !set.is_empty() {
                return Poll::Pending;
            }
            Poll::Ready(Ok(std::mem::take(&mut values).into_iter().flatten().collect()))
        })
    }
}

impl<F: IntoFuture<Output: Send, IntoFuture: Send>> Join for Vec<F> {
    type Output = Vec<F::Output>;

    fn join(self) -> impl Future<Output = Self::Output> + Send {
        let mut set = FutureSet::new(self);
        let mut outputs: Vec<Option<F::Output>> = set.places().map(|_| None).collect();
        poll_fn(move |context| {
            for (place, output) in set.poll(context, |_| false) {
                outputs[place] = Some(output);
            }
            if !set.is_empty() {
                return Poll::Pending;
            }
            Poll::Ready(std::mem::take(&mut outputs).into_iter().flatten().collect())
        })
    }
}

macro_rules! select {
    ($One:ident: $($F:ident $Place:ident)+) => {
        impl<$($F),+> Select for ($($F,)+)
        where
            $($F: IntoFuture<Output: Send, IntoFuture: Send>,)+
        {
            type Output = $One<$($F::Output),+>;

            #[allow(non_snake_case, reason = "each is named like its type")]
            fn select(self) -> impl Future<Output = Self::Output> + Send {
                let ($($F,)+) = self;
                let mut running = Some(($(Box::pin($F.into_future()),)+));
                poll_fn(move |context| {
                    let ($($F,)+) = running.as_mut().expect("it is not polled after it is ready");
                    $(
                        if let Poll::Ready(output) = $F.as_mut().poll(context) {
                            // Dropping the others cancels their steps.
                            running = None;
                            return Poll::Ready($One::$Place(output));
                        }
                    )+
                    Poll::Pending
                })
            }
        }
    };
}

select!(Either: A First B Second);
select!(OneOf3: A First B Second C Third);
select!(OneOf4: A First B Second C Third D Fourth);
select!(OneOf5: A First B Second C Third D Fourth E Fifth);
select!(OneOf6: A First B Second C Third D Fourth E Fifth F Sixth);
select!(OneOf7: A First B Second C Third D Fourth E Fifth F Sixth G Seventh);
select!(OneOf8: A First B Second C Third D Fourth E Fifth F Sixth G Seventh H Eighth);

/// The index of the first future that was ready, and its output. Without futures it never ends.
impl<F: IntoFuture<Output: Send, IntoFuture: Send>> Select for Vec<F> {
    type Output = (usize, F::Output);

    fn select(self) -> impl Future<Output = Self::Output> + Send {
        let mut set = FutureSet::new(self);
        poll_fn(move |context| {
            let Some(won) = set.poll(context, |_| true).pop() else { return Poll::Pending };
            set.clear();
            Poll::Ready(won)
        })
    }
}

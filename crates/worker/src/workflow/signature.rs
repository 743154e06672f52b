use crate::context::Context;

/// What an activity takes and gives, as its function says. It is `async fn(Context, I)`, or has
/// the state of its worker in front: `async fn(S, Context, I)`. The form says which.
pub trait Signature<Form> {
    type Input;
    type Output;
}

impl<F, I, O, E, Fut> Signature<fn(Context, I) -> Fut> for F
where
    F: Fn(Context, I) -> Fut,
    Fut: Future<Output = Result<O, E>>,
{
    type Input = I;
    type Output = O;
}

impl<F, S, I, O, E, Fut> Signature<fn(S, Context, I) -> Fut> for F
where
    F: Fn(S, Context, I) -> Fut,
    Fut: Future<Output = Result<O, E>>,
{
    type Input = I;
    type Output = O;
}

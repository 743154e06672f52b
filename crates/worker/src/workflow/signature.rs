use crate::context::Context;

/// The input and output types of an activity's function: `async fn(Context, I)`, or with shared
/// state `async fn(S, Context, I)`. `Form` tells these two apart.
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

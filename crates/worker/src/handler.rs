use std::fmt;
use std::pin::Pin;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::Payload;

use crate::context::Context;
use crate::failure::Failure;

/// The outcome of an attempt: the result to store, or the failure.
pub(crate) type Handled = Result<Option<Payload>, Failure>;

type Boxed = Pin<Box<dyn Future<Output = Handled> + Send>>;

/// User code for one kind of task, from payload to payload.
pub(crate) struct Handler(Box<dyn Fn(Context) -> Boxed + Send + Sync>);

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl Handler {
    pub(crate) fn new<F, I, O, Fut>(run: F) -> Self
    where
        F: Fn(Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
        I: DeserializeOwned,
        O: Serialize,
    {
        Self(Box::new(move |context| match decode(context.payload()) {
            Ok(input) => {
                let output = run(context, input);
                Box::pin(async move { output.await.and_then(|output| encode(&output)) })
            }
            Err(failure) => Box::pin(std::future::ready(Err(failure))),
        }))
    }

    pub(crate) fn raw<F, Fut>(run: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Handled> + Send + 'static,
    {
        Self(Box::new(move |context| {
            let result = run(context);
            Box::pin(async move { result.await.and_then(fitting) })
        }))
    }

    pub(crate) async fn call(&self, context: Context) -> Handled {
        (self.0)(context).await
    }
}

pub(crate) fn decode<I: DeserializeOwned>(payload: Option<&Payload>) -> Result<I, Failure> {
    let bytes = payload.map_or(&b"null"[..], |payload| &payload.bytes);
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::permanent(format!("the payload does not decode: {error}")))
}

pub(crate) fn encode<O: Serialize + ?Sized>(output: &O) -> Handled {
    let bytes = serde_json::to_vec(output)
        .map_err(|error| Failure::permanent(format!("the result does not encode: {error}")))?;
    if bytes == b"null" {
        return Ok(None);
    }
    fitting(Some(Payload::new("application/json", bytes)))
}

/// Fails the attempt if its result is too large.
fn fitting(result: Option<Payload>) -> Handled {
    if let Some(payload) = &result
        && let Err(rejection) = payload.check()
    {
        let bytes = payload.bytes.len();
        return Err(Failure::permanent(format!("a result of {bytes} bytes: {rejection}")));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn results() {
        assert_eq!(encode(&()), Ok(None));
        assert_eq!(encode(&None::<u32>), Ok(None));
        assert_eq!(encode(&7), Ok(Some(Payload::json("7"))));
        assert_eq!(encode(&"x"), Ok(Some(Payload::json("\"x\""))));
    }

    #[test]
    fn a_result_that_cannot_be_stored_is_a_permanent_failure() {
        let keys_that_are_no_text = BTreeMap::from([((1, 2), 3)]);
        let failure = encode(&keys_that_are_no_text).unwrap_err();
        assert_eq!(failure.class(), windlass_core::FailureClass::Permanent);
        let most = usize::try_from(windlass_core::limits::PAYLOAD_BYTES.max).unwrap();
        // Two of the bytes are the quotes.
        assert!(encode(&"x".repeat(most - 2)).is_ok());
        let failure = encode(&"x".repeat(most - 1)).unwrap_err();
        assert_eq!(failure.class(), windlass_core::FailureClass::Permanent);
    }

    #[test]
    fn no_payload_is_null() {
        assert_eq!(decode::<Option<u32>>(None), Ok(None));
        assert_eq!(decode::<()>(None), Ok(()));
        assert!(decode::<u32>(None).is_err());
        assert_eq!(decode::<u32>(Some(&Payload::json("7"))), Ok(7));
    }
}

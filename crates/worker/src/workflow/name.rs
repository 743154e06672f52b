use std::any::type_name;
use std::fmt;

/// A function without a stable name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonymousFunction {
    /// Its path, as the compiler prints it.
    pub function: &'static str,
}

impl fmt::Display for AnonymousFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function } = self;
        write!(f, "`{function}` has no stable name: give it one explicitly")
    }
}

impl std::error::Error for AnonymousFunction {}

/// The name of a function: the last part of its path. Closures, pointers and generic functions
/// have no stable name.
pub fn name_of<F>(_: &F) -> Result<&'static str, AnonymousFunction> {
    let function = type_name::<F>();
    let name = function.rsplit("::").next().unwrap_or(function);
    let plain = |c: char| c.is_alphanumeric() || c == '_';
    if !name.is_empty() && name.chars().all(plain) {
        Ok(name)
    } else {
        Err(AnonymousFunction { function })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() {}
    fn generic<T>() {}

    #[test]
    fn only_plain_functions_have_a_name() {
        assert_eq!(name_of(&plain), Ok("plain"));
        assert!(name_of(&generic::<u8>).is_err());
        assert!(name_of(&generic::<AnonymousFunction>).is_err());
        assert!(name_of(&|| ()).is_err());
        assert!(name_of(&(plain as fn())).is_err());
        let text = name_of(&|| ()).unwrap_err().to_string();
        assert!(text.ends_with("has no stable name: give it one explicitly"), "{text}");
    }
}

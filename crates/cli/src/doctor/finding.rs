use serde_json::{Value, json};

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) found: String,
    /// One sentence; empty if nothing needs to be done.
    pub(crate) advice: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Ok,
    Warning,
    Problem,
}

impl Level {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

impl Finding {
    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, found: found.into(), advice: String::new() }
    }

    pub(crate) fn warning(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { check, level: Level::Warning, found: found.into(), advice: advice.into() }
    }

    pub(crate) fn problem(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { check, level: Level::Problem, found: found.into(), advice: advice.into() }
    }

    pub(crate) fn json(&self) -> Value {
        let advice = Some(&self.advice).filter(|advice| !advice.is_empty());
        json!({
            "check": self.check,
            "level": self.level.as_str(),
            "found": self.found,
            "advice": advice,
        })
    }
}

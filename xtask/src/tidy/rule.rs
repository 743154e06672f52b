use crate::source::Source;

/// A rule, and every violation of it.
pub(super) struct Rule {
    pub(super) title: &'static str,
    pub(super) findings: Vec<String>,
}

impl Rule {
    /// A rule that checks one file at a time.
    pub(super) fn over<'a>(
        title: &'static str,
        sources: impl IntoIterator<Item = &'a Source>,
        check: impl Fn(&Source) -> Vec<String>,
    ) -> Self {
        Self { title, findings: sources.into_iter().flat_map(check).collect() }
    }
}

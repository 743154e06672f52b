use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::code_version::CodeVersion;
use crate::limits;
use crate::name::{Kind, TaskId, WorkerId};
use crate::rejection::{Problem, Rejection};
use crate::row::Value;

/// The capabilities that a task requires, as one canonical text: sorted, joined by commas, then `@`
/// and the tag. A task without requirements has the empty route.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Route(Arc<str>);

impl Route {
    /// Joins validated capabilities and a tag.
    pub fn new(capabilities: &BTreeSet<String>, tag: Option<&str>) -> Self {
        let mut text = String::new();
        for capability in capabilities {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(capability);
        }
        if let Some(tag) = tag {
            text.push('@');
            text.push_str(tag);
        }
        Self(Arc::from(text))
    }

    /// The queue of tasks granted to one worker. No task has this route, since `=` is not allowed
    /// in a capability.
    pub(crate) fn granted_to(worker: &WorkerId) -> Self {
        Self(Arc::from(format!("={worker}")))
    }

    /// The wake address of the lease holder of a task. No task has this route and no worker offers
    /// it.
    pub(crate) fn holder_address(task: &TaskId) -> Self {
        Self(Arc::from(format!("!{task}")))
    }

    /// The task, if this is the wake address of its lease holder.
    pub(crate) fn held_task(&self) -> Option<TaskId> {
        self.0.strip_prefix('!').map(TaskId::new)
    }

    /// The route with the capability `old` replaced by `new`, or with `new` added.
    pub(crate) fn with_capability(&self, old: Option<&str>, new: String) -> Self {
        let others = self.capabilities().filter(|capability| Some(*capability) != old);
        let capabilities = others.map(str::to_owned).chain([new]).collect();
        Self::new(&capabilities, self.tag())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn tag(&self) -> Option<&str> {
        self.0.split_once('@').map(|(_, tag)| tag)
    }

    pub fn capabilities(&self) -> impl Iterator<Item = &str> {
        let capabilities = self.0.split('@').next().unwrap_or_default();
        capabilities.split(',').filter(|capability| !capability.is_empty())
    }

    pub(crate) fn check(
        capabilities: &BTreeSet<String>,
        tag: Option<&str>,
    ) -> Result<(), Rejection> {
        limits::CAPABILITIES.check(capabilities.len())?;
        limits::CAPABILITIES_BYTES.check(capabilities.iter().map(String::len).sum::<usize>())?;
        for capability in capabilities {
            limits::CAPABILITY.check(capability)?;
            check_token(limits::CAPABILITY.field, capability)?;
        }
        if let Some(tag) = tag {
            limits::TAG.check(tag)?;
            check_token(limits::TAG.field, tag)?;
        }
        Ok(())
    }
}

pub(crate) fn check_token(field: &'static str, token: &str) -> Result<(), Rejection> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.:/-+".contains(c);
    if token.chars().all(fits) {
        return Ok(());
    }
    Err(Rejection::Invalid {
        field,
        problem: Problem::InvalidCharacters { allowed: "_ . : / - +" },
    })
}

impl From<&Route> for Value {
    fn from(route: &Route) -> Self {
        Value::Text(route.0.clone())
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The capability that tasks of a session require, and workers that own sessions offer. Workers
/// without session support never receive such tasks.
pub const SESSIONS: &str = "windlass.session";

/// The capabilities, tags and versions that a worker offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCapabilities {
    pub names: BTreeSet<String>,
    pub tags: TagFilter,
    /// Versions that it serves, as ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionRange>,
}

/// Versions of one kind of workflow, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange {
    pub kind: Kind,
    pub min: String,
    pub max: String,
}

impl VersionRange {
    /// Whether a capability of a route is a version in this range.
    fn covers(&self, capability: &str) -> bool {
        let version = capability.strip_prefix(self.kind.as_str());
        let version = version.and_then(|rest| rest.strip_prefix(':')?.parse::<CodeVersion>().ok());
        let ends = (self.min.parse::<CodeVersion>(), self.max.parse::<CodeVersion>());
        match (version, ends) {
            (Some(version), (Ok(min), Ok(max))) => min <= version && version <= max,
            _ => false,
        }
    }

    fn check(&self) -> Result<(), Rejection> {
        limits::KIND.check(self.kind.as_str())?;
        self.min.parse::<CodeVersion>()?;
        self.max.parse::<CodeVersion>().map(drop)
    }
}

/// The tags that a worker accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagFilter {
    #[default]
    Untagged,
    Only(BTreeSet<String>),
    UntaggedAnd(BTreeSet<String>),
    Any,
    None,
}

impl TagFilter {
    fn accepts(&self, tag: Option<&str>) -> bool {
        match (self, tag) {
            (TagFilter::Any, _) => true,
            (TagFilter::None, _) => false,
            (TagFilter::Untagged | TagFilter::UntaggedAnd(_), None) => true,
            (TagFilter::Untagged, Some(_)) | (TagFilter::Only(_), None) => false,
            (TagFilter::Only(tags) | TagFilter::UntaggedAnd(tags), Some(tag)) => tags.contains(tag),
        }
    }

    fn tags(&self) -> impl Iterator<Item = &str> {
        let tags = match self {
            TagFilter::Only(tags) | TagFilter::UntaggedAnd(tags) => Some(tags),
            TagFilter::Untagged | TagFilter::Any | TagFilter::None => None,
        };
        tags.into_iter().flatten().map(String::as_str)
    }
}

impl WorkerCapabilities {
    /// Whether the worker can own sessions.
    pub fn accepts_sessions(&self) -> bool {
        self.names.contains(SESSIONS)
    }

    pub fn meets(&self, route: &Route) -> bool {
        self.tags.accepts(route.tag()) && self.missing(route).next().is_none()
    }

    /// The capabilities that the route requires and this offer lacks.
    pub fn missing<'r>(&'r self, route: &'r Route) -> impl Iterator<Item = &'r str> {
        let covered = |capability: &str| self.versions.iter().any(|range| range.covers(capability));
        let offered = move |capability: &str| self.names.contains(capability);
        route.capabilities().filter(move |capability| !offered(capability) && !covered(capability))
    }

    pub(crate) fn check(&self) -> Result<(), Rejection> {
        Route::check(&self.names, None)?;
        limits::CAPABILITIES.check(self.versions.len())?;
        self.versions.iter().try_for_each(VersionRange::check)?;
        self.tags.tags().try_for_each(|tag| Route::check(&BTreeSet::new(), Some(tag)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &str) -> BTreeSet<String> {
        words.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn a_route_is_canonical() {
        for (capabilities, tag, text) in [
            ("", None, ""),
            ("gpu cuda", None, "cuda,gpu"),
            ("", Some("blue"), "@blue"),
            ("gpu", Some("blue"), "gpu@blue"),
        ] {
            let route = Route::new(&set(capabilities), tag);
            assert_eq!(route.as_str(), text);
            assert_eq!(route.tag(), tag);
            let back: BTreeSet<String> = route.capabilities().map(String::from).collect();
            assert_eq!(back, set(capabilities));
        }
    }

    #[test]
    fn an_offer_meets_routes_by_capability_and_tag() {
        let blue = || set("blue");
        for (capabilities, tags, route, meets) in [
            ("", TagFilter::Untagged, "", true),
            ("", TagFilter::Untagged, "@blue", false),
            ("", TagFilter::Untagged, "gpu", false),
            ("gpu", TagFilter::Untagged, "gpu", true),
            ("gpu cuda", TagFilter::Untagged, "gpu", true),
            ("gpu", TagFilter::Untagged, "cuda,gpu", false),
            ("", TagFilter::Only(blue()), "", false),
            ("", TagFilter::Only(blue()), "@blue", true),
            ("", TagFilter::Only(blue()), "@red", false),
            ("", TagFilter::UntaggedAnd(blue()), "", true),
            ("", TagFilter::UntaggedAnd(blue()), "@blue", true),
            ("", TagFilter::UntaggedAnd(blue()), "@red", false),
            ("", TagFilter::Any, "@red", true),
            ("", TagFilter::Any, "", true),
            ("", TagFilter::None, "", false),
            ("", TagFilter::None, "@red", false),
        ] {
            let capabilities =
                WorkerCapabilities { names: set(capabilities), tags, versions: Vec::new() };
            assert_eq!(
                capabilities.meets(&Route(Arc::from(route))),
                meets,
                "{capabilities:?} {route}"
            );
        }
    }

    #[test]
    fn tokens_are_plain() {
        for (token, ok) in [("gpu", true), ("a.b:c/d-e+f_1", true), ("a,b", false), ("a@b", false)]
        {
            assert_eq!(Route::check(&set(token), None).is_ok(), ok, "{token}");
            assert_eq!(Route::check(&BTreeSet::new(), Some(token)).is_ok(), ok, "{token}");
        }
        let many: BTreeSet<String> = (0..257).map(|n| n.to_string()).collect();
        assert!(Route::check(&many, None).is_err());
        let long: BTreeSet<String> = (0..20).map(|n| format!("{n}{}", "x".repeat(240))).collect();
        assert!(Route::check(&long, None).is_err());
    }
}

//! Options of lists and watches, as they stand in the query: which version, how much, from where on.
//!
//! The rules are those of API servers (`apimachinery` `ValidateListOptions` and the storage behind it): what they refuse
//! is refused, with their words.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::field::{FieldError, FieldErrors, go_quote};
use crate::status::{Resource, Status};

/// What a read of a collection asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectionQuery {
    /// The objects, once.
    List(ListOptions),
    /// The objects or their changes, as they come.
    Watch(WatchOptions),
}

/// Options of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOptions {
    /// As of when.
    pub version: ListVersion,
    /// At most so many objects.
    pub limit: Option<usize>,
    /// Where an earlier page ended.
    pub continuation: Option<Continuation>,
}

/// As of when a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListVersion {
    /// As things stand.
    Current,
    /// Any state will do.
    Any,
    /// No older than this.
    AtLeast(u64),
    /// Exactly this.
    Exact(u64),
}

/// Options of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchOptions {
    /// What comes first.
    pub start: WatchStart,
    /// Whether the client wants to be told of progress.
    pub bookmarks: bool,
    /// When it ends; `None`: when the server likes.
    pub timeout_seconds: Option<u64>,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// With every object as it is, then their changes.
    Objects,
    /// The same, from a state no older than this, with a bookmark behind the last of the objects.
    List {
        /// The version; 0: any.
        at_least: u64,
    },
    /// With the first change after this version.
    After(u64),
    /// With the next change.
    Now,
}

/// Where a list goes on, as `continue` carries it. The form is that of API servers; clients hand it back as it is, and
/// one that makes it up sees nothing more than it may list anyway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuation {
    v: String,
    /// The version of the first page.
    rv: i64,
    start: String,
}

/// Why a collection is not read as asked.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryFault {
    /// Options contradict each other: 422.
    Options(Vec<FieldError>),
    /// An option cannot be read: 400.
    Unreadable(String),
    /// A version that is no number, where API servers do not expect it to be none: 500.
    Version(String),
}

impl CollectionQuery {
    /// Reads the decoded query parameters; those that have nothing to do with it are not looked at.
    ///
    /// # Errors
    /// Says what cannot be read, or which options exclude each other.
    pub fn from_query<'q>(
        query: impl IntoIterator<Item = (&'q str, &'q str)>,
    ) -> Result<Self, QueryFault> {
        let given = Given::of(query);
        if given.watch {
            given.watch_options().map(Self::Watch)
        } else {
            given.list_options().map(Self::List)
        }
    }
}

/// Whether a read of a collection is a watch: that decides about the right to it, before anything else is looked at.
pub fn is_watch<'q>(query: impl IntoIterator<Item = (&'q str, &'q str)>) -> bool {
    Given::of(query).watch
}

/// The version that a `GET` of one object asks for at least; 0: any.
///
/// # Errors
/// It is no number.
pub fn version_at_least(text: &str) -> Result<u64, QueryFault> {
    match text {
        "" => Ok(0),
        text => watch_version(text),
    }
}

impl Continuation {
    /// Behind this key of a list of this version.
    #[must_use]
    pub fn behind(version: u64, key: &str) -> Self {
        Self {
            v: TOKEN_FORM.to_owned(),
            rv: i64::try_from(version).unwrap_or(i64::MAX),
            start: key.to_owned(),
        }
    }

    /// The same place in whatever there is now.
    #[must_use]
    pub fn of_any_version(&self) -> Self {
        Self {
            rv: ANY_VERSION,
            ..self.clone()
        }
    }

    /// The version of the list; `None`: any.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        u64::try_from(self.rv).ok()
    }

    /// The key that was the last.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.start
    }

    /// As clients get it.
    #[must_use]
    pub fn to_token(&self) -> String {
        // Text and a number can always be written.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn parse(token: &str) -> Result<Self, QueryFault> {
        let decoded = URL_SAFE_NO_PAD.decode(token).ok();
        let read = decoded.and_then(|json| serde_json::from_slice::<Self>(&json).ok());
        read.filter(|read| read.v == TOKEN_FORM && (read.rv > 0 || read.rv == ANY_VERSION))
            .ok_or_else(|| QueryFault::Unreadable("continue key is not valid".to_owned()))
    }
}

impl QueryFault {
    /// As clients are told.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Options(errors) => Resource::LIST_OPTIONS.invalid("", errors),
            Self::Unreadable(text) => Status::bad_request(text.as_str()),
            // Where a real server has 500: it is the client's mistake.
            Self::Version(text) => Status::bad_request(text.as_str()),
        }
    }
}

/// The parameters as they were given; of one that is given twice, the first counts.
#[derive(Debug, Default)]
struct Given<'q> {
    watch: bool,
    version: &'q str,
    matching: &'q str,
    initial_events: Option<bool>,
    bookmarks: bool,
    limit: Option<&'q str>,
    continuation: &'q str,
    timeout: Option<&'q str>,
}

impl<'q> Given<'q> {
    fn of(query: impl IntoIterator<Item = (&'q str, &'q str)>) -> Self {
        let mut given = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for (name, value) in query {
            if seen.contains(&name) || !PARAMETERS.contains(&name) {
                continue;
            }
            seen.push(name);
            match name {
                "watch" => given.watch = is_true(value),
                "resourceVersion" => given.version = value,
                "resourceVersionMatch" => given.matching = value,
                "sendInitialEvents" => given.initial_events = Some(is_true(value)),
                "allowWatchBookmarks" => given.bookmarks = is_true(value),
                "limit" => given.limit = Some(value),
                "continue" => given.continuation = value,
                "timeoutSeconds" => given.timeout = Some(value),
                _ => {}
            }
        }
        given
    }

    fn list_options(&self) -> Result<ListOptions, QueryFault> {
        let (limit, _) = (self.limit()?, self.timeout()?);
        let mut errors = FieldErrors::default();
        if !self.matching.is_empty() {
            self.check_match(&mut errors);
        }
        if self.initial_events.is_some() {
            let detail = "sendInitialEvents is forbidden for list";
            errors.push(FieldError::forbidden("sendInitialEvents", detail));
        }
        none(errors)?;
        let continuation = match self.continuation {
            "" => None,
            token => Some(Continuation::parse(token)?),
        };
        if continuation.is_some() && !matches!(self.version, "" | "0") {
            let text = "specifying resource version is not allowed when using continue";
            return Err(QueryFault::Unreadable(text.to_owned()));
        }
        let version = match (self.version, self.matching) {
            ("", _) => ListVersion::Current,
            ("0", _) => ListVersion::Any,
            (text, matching) => match (list_version(text)?, matching) {
                (version, "Exact") => ListVersion::Exact(version),
                // A page of a version has always meant that version.
                (version, "") if limit.is_some() => ListVersion::Exact(version),
                (version, _) => ListVersion::AtLeast(version),
            },
        };
        Ok(ListOptions {
            version,
            limit,
            continuation,
        })
    }

    /// Refuses a `resourceVersionMatch` of a list that does not fit the rest.
    fn check_match(&self, errors: &mut FieldErrors) {
        let mut forbid = |detail: &str| {
            errors.push(FieldError::forbidden("resourceVersionMatch", detail));
        };
        if self.version.is_empty() {
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !self.continuation.is_empty() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if self.matching == "Exact" && self.version == "0" {
            forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        if !["Exact", NOT_OLDER].contains(&self.matching) {
            let supported = ["Exact", NOT_OLDER, ""];
            let error =
                FieldError::not_supported("resourceVersionMatch", self.matching, &supported);
            errors.push(error);
        }
    }

    fn watch_options(&self) -> Result<WatchOptions, QueryFault> {
        let (timeout_seconds, _) = (self.timeout()?, self.limit()?);
        let mut errors = FieldErrors::default();
        let mut forbid = |detail: &str| {
            errors.push(FieldError::forbidden("resourceVersionMatch", detail));
        };
        if self.initial_events.is_some() && self.matching != NOT_OLDER {
            forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if !self.matching.is_empty() {
            if self.initial_events.is_none() {
                forbid(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
            if !self.continuation.is_empty() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if self.matching != NOT_OLDER {
                let (field, supported) = ("resourceVersionMatch", [NOT_OLDER]);
                errors.push(FieldError::not_supported(field, self.matching, &supported));
            }
        }
        none(errors)?;
        let version = match self.version {
            "" => 0,
            text => watch_version(text)?,
        };
        let start = match (self.initial_events, version) {
            (Some(true), at_least) => WatchStart::List { at_least },
            (Some(false), 0) => WatchStart::Now,
            (None, 0) => WatchStart::Objects,
            (Some(false) | None, version) => WatchStart::After(version),
        };
        Ok(WatchOptions {
            start,
            bookmarks: self.bookmarks,
            timeout_seconds,
        })
    }

    /// How many objects a page holds; like Go's clients and servers, nothing and less than one is any number.
    fn limit(&self) -> Result<Option<usize>, QueryFault> {
        let limit = self.limit.map(|text| number("limit", text)).transpose()?;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        Ok(limit.filter(|limit| *limit > 0))
    }

    fn timeout(&self) -> Result<Option<u64>, QueryFault> {
        let seconds = self.timeout.map(|text| number("timeoutSeconds", text));
        // Nothing is no wish; a time before now has passed.
        let seconds = seconds.transpose()?.filter(|seconds| *seconds != 0);
        Ok(seconds.map(|seconds| u64::try_from(seconds).unwrap_or(0)))
    }
}

fn none(errors: FieldErrors) -> Result<(), QueryFault> {
    match errors.is_empty() {
        true => Ok(()),
        false => Err(QueryFault::Options(errors.into_vec())),
    }
}

/// A truth value as API servers read those: whatever is there and does not deny it.
fn is_true(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

fn number(field: &str, text: &str) -> Result<i64, QueryFault> {
    let read = text.parse::<i64>();
    read.map_err(|_| {
        QueryFault::Unreadable(format!(
            "{field}: Invalid value: {}: it must be a number",
            go_quote(text)
        ))
    })
}

fn list_version(text: &str) -> Result<u64, QueryFault> {
    let read = text.parse();
    read.map_err(|_| {
        QueryFault::Unreadable(format!("invalid resource version: {}", bad_version(text)))
    })
}

fn watch_version(text: &str) -> Result<u64, QueryFault> {
    let read = text.parse();
    read.map_err(|_| QueryFault::Version(bad_version(text)))
}

fn bad_version(text: &str) -> String {
    let text = go_quote(text);
    format!(
        "resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: invalid syntax"
    )
}

const PARAMETERS: [&str; 8] = [
    "watch",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "limit",
    "continue",
    "timeoutSeconds",
];
const NOT_OLDER: &str = "NotOlderThan";
/// The form of continue tokens that API servers name so.
const TOKEN_FORM: &str = "meta.k8s.io/v1";
/// The version of a token that goes on in whatever there is.
const ANY_VERSION: i64 = -1;

#[cfg(test)]
mod tests;

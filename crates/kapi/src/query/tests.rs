use rstest::rstest;

use super::*;

fn read(query: &str) -> Result<CollectionQuery, QueryFault> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    CollectionQuery::from_query(pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))))
}

fn list(version: ListVersion, limit: Option<usize>) -> CollectionQuery {
    CollectionQuery::List(ListOptions {
        version,
        limit,
        continuation: None,
    })
}

fn watch(start: WatchStart, bookmarks: bool, timeout_seconds: Option<u64>) -> CollectionQuery {
    CollectionQuery::Watch(WatchOptions {
        start,
        bookmarks,
        timeout_seconds,
    })
}

#[rstest]
#[case::nothing("", list(ListVersion::Current, None))]
#[case::kubectl_get("limit=500", list(ListVersion::Current, Some(500)))]
#[case::reflector("limit=500&resourceVersion=0", list(ListVersion::Any, Some(500)))]
#[case::at_least("resourceVersion=7", list(ListVersion::AtLeast(7), None))]
#[case::page_of_a_version("resourceVersion=7&limit=1", list(ListVersion::Exact(7), Some(1)))]
#[case::not_older(
    "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=1",
    list(ListVersion::AtLeast(7), Some(1))
)]
#[case::exact(
    "resourceVersion=7&resourceVersionMatch=Exact",
    list(ListVersion::Exact(7), None)
)]
#[case::any_not_older(
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    list(ListVersion::Any, None)
)]
#[case::no_limit("limit=0", list(ListVersion::Current, None))]
#[case::negative_limit("limit=-3", list(ListVersion::Current, None))]
#[case::no_watch("watch=false&watch=true", list(ListVersion::Current, None))]
#[case::others(
    "pretty=true&labelSelector=a&timeout=32s",
    list(ListVersion::Current, None)
)]
#[case::watch("watch=true", watch(WatchStart::Objects, false, None))]
#[case::bare_word("watch", watch(WatchStart::Objects, false, None))]
#[case::any("watch=1&resourceVersion=0", watch(WatchStart::Objects, false, None))]
#[case::kubectl_get_w(
    "resourceVersion=42&watch=true",
    watch(WatchStart::After(42), false, None)
)]
#[case::reflector_watch(
    "allowWatchBookmarks=true&resourceVersion=42&timeoutSeconds=481&watch=true",
    watch(WatchStart::After(42), true, Some(481))
)]
#[case::watch_list(
    "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true",
    watch(WatchStart::List { at_least: 0 }, true, None)
)]
#[case::watch_list_again(
    "watch=true&resourceVersion=42&resourceVersionMatch=NotOlderThan&sendInitialEvents=true",
    watch(WatchStart::List { at_least: 42 }, false, None)
)]
#[case::no_initial_events(
    "watch=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=false",
    watch(WatchStart::Now, false, None)
)]
#[case::no_initial_events_after(
    "watch=true&resourceVersion=5&resourceVersionMatch=NotOlderThan&sendInitialEvents=false",
    watch(WatchStart::After(5), false, None)
)]
#[case::no_timeout("watch=true&timeoutSeconds=0", watch(WatchStart::Objects, false, None))]
#[case::over_before_it_begins(
    "watch=true&timeoutSeconds=-1",
    watch(WatchStart::Objects, false, Some(0))
)]
fn reads_what_clients_send(#[case] query: &str, #[case] expected: CollectionQuery) {
    assert_eq!(read(query), Ok(expected));
}

#[rstest]
#[case::match_alone(
    "resourceVersionMatch=Exact",
    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
)]
#[case::exact_of_any(
    "resourceVersion=0&resourceVersionMatch=Exact",
    "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
)]
#[case::match_and_continue(
    "resourceVersion=1&resourceVersionMatch=Exact&continue=x",
    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
)]
#[case::unknown_match(
    "resourceVersion=1&resourceVersionMatch=Older",
    "resourceVersionMatch: Unsupported value: \"Older\": supported values: \"Exact\", \"NotOlderThan\", \"\""
)]
#[case::initial_events_of_a_list(
    "sendInitialEvents=false",
    "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
)]
#[case::initial_events_without_match(
    "watch=true&sendInitialEvents=true",
    "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
)]
#[case::match_without_initial_events(
    "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=3",
    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
)]
fn refuses_contradictions(#[case] query: &str, #[case] text: &str) {
    let Err(fault) = read(query) else {
        panic!("{query} is accepted");
    };
    let status = fault.status();
    assert_eq!((status.code, status.reason), (422, "Invalid"));
    assert_eq!(
        status.message,
        format!("ListOptions.meta.k8s.io \"\" is invalid: {text}")
    );
}

#[test]
fn collects_every_contradiction() {
    let fault = read("resourceVersionMatch=Older&continue=x&sendInitialEvents=true");
    let Err(QueryFault::Options(errors)) = fault else {
        panic!("{fault:?}");
    };
    assert_eq!(errors.len(), 4, "{errors:?}");
}

#[rstest]
#[case::version("resourceVersion=abc", 400)]
#[case::negative_version("resourceVersion=-1", 400)]
#[case::limit("limit=many", 400)]
#[case::timeout("watch=true&timeoutSeconds=soon", 400)]
#[case::token("continue=abc", 400)]
#[case::version_and_token(
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJhIn0&resourceVersion=5",
    400
)]
#[case::watch_version("watch=true&resourceVersion=abc", 400)]
fn refuses_what_it_cannot_read(#[case] query: &str, #[case] code: u16) {
    let fault = read(query).expect_err(query);
    assert_eq!(fault.status().code, code, "{fault:?}");
}

#[test]
fn tokens_come_back_as_they_went() {
    let token = Continuation::behind(42, "lab/csr-7").to_token();
    let CollectionQuery::List(options) = read(&format!("limit=2&continue={token}")).unwrap() else {
        panic!("a list is none");
    };
    let continuation = options.continuation.unwrap();
    assert_eq!(
        (continuation.version(), continuation.key()),
        (Some(42), "lab/csr-7")
    );
    let anywhere = continuation.of_any_version();
    assert_eq!(anywhere.version(), None);
    assert_eq!(
        Continuation::parse(&anywhere.to_token()),
        Ok(anywhere.clone())
    );
    for forged in [
        r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#,
        r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#,
        r#"{"v":"v2","rv":7,"start":"a"}"#,
        "{}",
    ] {
        let token = URL_SAFE_NO_PAD.encode(forged);
        assert!(Continuation::parse(&token).is_err(), "{forged}");
    }
}

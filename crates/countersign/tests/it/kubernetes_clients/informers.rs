//! Informers of client-go, with which controllers and kubelets look at requests: they hear of everything once, whatever
//! happens to the server, and begin anew when it cannot tell them what they missed.

use std::collections::BTreeMap;

use countersign_testkit::client_go::informer;
use countersign_testkit::counterparts::KubernetesRelease;
use countersign_testkit::json_lines::JsonLines;
use serde_json::Value;

use super::{Writer, version};
use crate::site::Site;

/// One of each release and way of beginning, all of them at work.
struct Informers(Vec<(String, JsonLines)>);

/// What an informer was told about one request: event and version, in order.
type Story = Vec<(String, String)>;

impl Informers {
    fn start(site: &Site) -> Self {
        let ways = [
            ("list", "--watch-list=false"),
            ("stream", "--watch-list=true"),
        ];
        let releases = [
            KubernetesRelease::V1_28,
            KubernetesRelease::V1_33,
            KubernetesRelease::V1_36,
        ];
        let all = releases.into_iter().flat_map(|release| {
            ways.map(|(way, option)| {
                let options = [option, "--timeout=10m"];
                let lines = informer(release, &site.kubeconfig(), &options).unwrap();
                (format!("{} with a {way}", release.minor()), lines)
            })
        });
        Self(all.collect())
    }

    /// Reads until every one has said such a line.
    fn read_until(&mut self, test: impl Fn(&Value) -> bool) {
        for (name, lines) in &mut self.0 {
            let read = lines.read_until(&test);
            read.unwrap_or_else(|fault| panic!("{name}: {fault}"));
        }
    }
}

#[test]
fn informers_of_all_ages_hear_of_everything_once_across_restarts() {
    let mut site = Site::start(&[]);
    let writer = Writer::new(&site);
    for number in 0..5 {
        writer.create(&format!("before-{number}"));
    }
    let mut informers = Informers::start(&site);
    informers.read_until(|line| line["event"] == "synced" && line["count"] == 5);

    // What happened is told to whoever listens; what nobody has heard when the server dies is told after.
    work(&writer, ROUNDS[0]);
    site = site.kill_and_restart_there();
    work(&Writer::new(&site), ROUNDS[1]);
    // For clients this end of a watch is one like any other: its time was up.
    site = site.stop_and_restart_there();
    let writer = Writer::new(&site);
    work(&writer, ROUNDS[2]);
    writer.create("last");
    informers.read_until(|line| line["name"] == "last");

    let stories = informers
        .0
        .iter()
        .map(|(name, lines)| (name, stories(lines)));
    // An informer whose watch had hardly begun when the server went lists anew, by client-go's own choice. It hears of
    // everything again, also of what never changed, and not of what it missed.
    let is_whole = |story: &BTreeMap<String, Story>| story["before-0"].len() == 1;
    let (whole, anew): (Vec<_>, Vec<_>) = stories.partition(|(_, story)| is_whole(story));
    let Some((_, first)) = whole.first() else {
        panic!("all informers began anew");
    };
    for (name, story) in &whole {
        assert_eq!(story, first, "what {name} was told");
    }
    for (request, events) in first {
        let versions: Vec<u64> = events
            .iter()
            .map(|(_, version)| version.parse().unwrap())
            .collect();
        assert!(
            versions.is_sorted_by(|a, b| a < b),
            "nothing twice: {request}: {events:?}"
        );
    }
    for round in ROUNDS {
        for number in 0..REQUESTS_A_ROUND {
            let name = format!("{round}-{number}");
            let events: Vec<&str> = first[&name].iter().map(|(event, _)| &**event).collect();
            let (expected, last) = match is_deleted(number) {
                true => (["add", "update", "update", "delete"].as_slice(), "delete"),
                false => (["add", "update", "update"].as_slice(), "update"),
            };
            assert_eq!(events, expected, "{name}");
            for (informer, story) in &anew {
                // One that came and went meanwhile is none of its business.
                let Some((event, _)) = story.get(&name).and_then(|story| story.last()) else {
                    assert_eq!(last, "delete", "{informer} never heard of {name}");
                    continue;
                };
                assert_eq!(event == "delete", last == "delete", "{informer}: {name}");
            }
        }
    }
    // And it is the truth.
    let list = writer.list();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 5 + 1 + ROUNDS.len() * REQUESTS_A_ROUND / 2);
    for item in items {
        let name = item["metadata"]["name"].as_str().unwrap();
        for (informer, story) in whole.iter().chain(&anew) {
            let (_, last) = story[name].last().unwrap();
            assert_eq!(last, version(item), "{informer}: {name}");
        }
    }
}

#[test]
fn an_informer_that_slept_too_long_begins_anew() {
    let site = Site::start(&[]);
    let writer = Writer::new(&site);
    for name in ["kept", "deleted"] {
        writer.create(name);
    }
    let mut informers = Informers::start(&site);
    informers.read_until(|line| line["event"] == "synced" && line["count"] == 2);
    for (_, lines) in &informers.0 {
        lines.pause();
    }
    writer.delete("deleted");
    // More than the server keeps of the past, and more than lies between it and a client that does not read.
    let large = "x".repeat(LARGE);
    let mut last = Value::Null;
    for round in 0..CHANGES {
        last = writer.annotate("kept", "note", &format!("{round} {large}"));
    }
    writer.create("new");
    for (_, lines) in &informers.0 {
        lines.resume();
    }
    informers.read_until(|line| line["name"] == "new");
    let after = writer.annotate("kept", "note", "small");
    informers.read_until(|line| line["resourceVersion"] == *version(&after));
    for (name, lines) in &informers.0 {
        let stories = stories(lines);
        let heard = |request: &str| stories[request].iter().map(|(_, version)| version.as_str());
        assert!(heard("kept").any(|heard| heard == version(&last)), "{name}");
        assert!(
            heard("kept").count() < CHANGES,
            "{name} heard of everything, so nothing was too old"
        );
        let (event, _) = stories["deleted"].last().unwrap();
        assert_eq!(event, "delete", "{name}");
    }
}

/// Some requests live their life, some of them to its end.
fn work(writer: &Writer, round: &str) {
    let names: Vec<String> = (0..REQUESTS_A_ROUND)
        .map(|number| format!("{round}-{number}"))
        .collect();
    for name in &names {
        writer.create(name);
    }
    for (number, name) in names.iter().enumerate() {
        writer.approve(name);
        if is_deleted(number) {
            writer.delete(name);
        }
    }
}

fn is_deleted(number: usize) -> bool {
    number.is_multiple_of(2)
}

fn stories(lines: &JsonLines) -> BTreeMap<String, Story> {
    let mut stories = BTreeMap::<String, Story>::new();
    for line in lines.seen() {
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        if matches!(&*text("event"), "add" | "update" | "delete") {
            let story = stories.entry(text("name")).or_default();
            story.push((text("event"), text("resourceVersion")));
        }
    }
    stories
}

/// Between them the server is killed, then stopped.
const ROUNDS: [&str; 3] = ["first", "second", "third"];
const REQUESTS_A_ROUND: usize = 10;
const LARGE: usize = 200 * 1024;
/// Of that size: 80 MB, where 64 MB are kept.
const CHANGES: usize = 400;

//! Ten thousand requests by fifty clients at the Kubernetes door while fifty watchers follow: in peace, with the server killed
//! in between, and with watchers that do not read.
//!
//! Watchers read their lines as text: a million of them are compared, and reading each as JSON would take longer than all
//! the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use countersign_testkit::deadline::ask_again;
use countersign_testkit::https::{Answer, Connection, HttpsClient};
use serde_json::{Value, json};

use crate::site::{JSON, REQUESTS, Site, approved, kubernetes_request};

const CLIENTS: usize = 50;
const WATCHERS: usize = 50;
const REQUESTS_EACH: usize = 200;

/// A state of an object, as somebody was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    version: u64,
    event: Event,
    name: String,
    uid: String,
    /// The object's whole text.
    text: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Added,
    Modified,
    Deleted,
}

impl Told {
    /// From an object as it is sent: the metadata come first, and its names and numbers before any text of a client's.
    fn of(event: Event, object: &str) -> Self {
        let field = |key: &str| {
            let (_, value) = object
                .split_once(key)
                .unwrap_or_else(|| panic!("{key} in {object}"));
            value.split_once('"').unwrap().0.to_owned()
        };
        let mut text = DefaultHasher::new();
        object.hash(&mut text);
        Self {
            version: field(r#""resourceVersion":""#).parse().unwrap(),
            event,
            name: field(r#""name":""#),
            uid: field(r#""uid":""#),
            text: text.finish(),
        }
    }

    fn of_line(line: &str) -> Self {
        let event = line
            .strip_prefix(r#"{"type":""#)
            .unwrap_or_else(|| panic!("{line}"));
        let (word, object) = event.split_once(r#"","object":"#).unwrap();
        let event = match word {
            "ADDED" => Event::Added,
            "MODIFIED" => Event::Modified,
            "DELETED" => Event::Deleted,
            _ => panic!("{line}"),
        };
        Self::of(event, object.strip_suffix('}').unwrap())
    }
}

/// Somebody who follows everything, also after the server has been killed.
struct Watcher {
    /// The last version that it knows.
    since: u64,
    told: Vec<Told>,
}

impl Watcher {
    /// Follows until the last object of the load, or the end of the server.
    fn follow(&mut self, admin: &HttpsClient) -> io::Result<()> {
        let path = format!("{REQUESTS}?watch=true&resourceVersion={}", self.since);
        let follow = || match admin
            .connect()
            .and_then(|connection| connection.follow(&path))
        {
            // It has not read its own history yet, and says so.
            Err(error) if error.to_string().starts_with("503:") => None,
            other => Some(other),
        };
        let mut lines = ask_again(PATIENCE, follow).expect("no watch is possible")?;
        while let Some(line) = lines.read()? {
            let told = Told::of_line(&line);
            self.since = told.version;
            let is_last = told.name == LAST;
            self.told.push(told);
            if is_last {
                return Ok(());
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Somebody who has requests made, and remembers what the server said about them.
struct Client {
    number: usize,
    /// How many of its requests are done with.
    done: usize,
    /// Whether its last call was not answered.
    in_doubt: bool,
    /// In which life of the server it is.
    life: usize,
    /// What it was told, and in which life it happened.
    told: Vec<(usize, Told)>,
    /// The objects whose deletion was acknowledged.
    deleted: BTreeSet<String>,
}

impl Client {
    fn new(number: usize) -> Self {
        Self {
            number,
            done: 0,
            in_doubt: false,
            life: 0,
            told: Vec::new(),
            deleted: BTreeSet::new(),
        }
    }

    fn run(&mut self, admin: &HttpsClient, progress: &SyncSender<()>) -> io::Result<()> {
        let mut connection = admin.connect()?;
        while self.done < REQUESTS_EACH {
            let made = self.request(&mut connection);
            self.in_doubt = made.is_err();
            made?;
            self.done += 1;
            let _nobody_waits = progress.send(());
        }
        Ok(())
    }

    /// The life of a request; what was in doubt is done again.
    fn request(&mut self, connection: &mut Connection) -> io::Result<()> {
        let name = format!("c{}-{}", self.number, self.done);
        let path = format!("{REQUESTS}/{name}");
        let object = kubernetes_request(&name).to_string();
        let created = connection.call("POST", REQUESTS, &[JSON], object.as_bytes())?;
        let object = match created.status {
            201 => self.hear(Event::Added, &created),
            // It was created, but nobody said so.
            409 if self.in_doubt => {
                let answer = connection.call("GET", &path, &[], b"")?;
                assert_eq!(answer.status, 200, "{name}: {}", answer.text());
                serde_json::from_slice(&answer.body).unwrap()
            }
            _ => panic!("{name}: {}", created.text()),
        };
        let is_decided = !object["status"]["conditions"].is_null();
        if is_to_be_approved(self.done) && !is_decided {
            let body = approved(object).to_string();
            let path = format!("{path}/approval");
            let answer = connection.call("PUT", &path, &[JSON], body.as_bytes())?;
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
            self.hear(Event::Modified, &answer);
        } else if is_to_be_deleted(self.done) {
            let answer = connection.call("DELETE", &path, &[], b"")?;
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
            let status: Value = serde_json::from_slice(&answer.body).unwrap();
            let uid = status["details"]["uid"].as_str().unwrap();
            self.deleted.insert(uid.to_owned());
        }
        Ok(())
    }

    fn hear(&mut self, event: Event, answer: &Answer) -> Value {
        let told = Told::of(event, answer.text().trim_end());
        self.told.push((self.life, told));
        serde_json::from_slice(&answer.body).unwrap()
    }
}

/// The whole of a load, which may outlive a server.
struct Load {
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
}

impl Load {
    /// Watchers begin with what there is: nothing.
    fn new(site: &Site) -> Self {
        let since = version_of(&list(&site.kubernetes_admin()));
        let watcher = |_| Watcher {
            since,
            told: Vec::new(),
        };
        Self {
            clients: (0..CLIENTS).map(Client::new).collect(),
            watchers: (0..WATCHERS).map(watcher).collect(),
        }
    }

    /// Goes on until so many requests more are done, and kills the server in the middle of the others.
    fn run_until_killed(&mut self, site: &Site, requests: usize) {
        let admin = &site.kubernetes_admin();
        let (progress, done) = sync_channel(CLIENTS);
        std::thread::scope(|scope| {
            for watcher in &mut self.watchers {
                scope.spawn(move || watcher.follow(admin).unwrap_err());
            }
            for client in &mut self.clients {
                let progress = progress.clone();
                scope.spawn(move || client.run(admin, &progress).unwrap_err());
            }
            for _ in 0..requests {
                done.recv_timeout(PATIENCE).unwrap();
            }
            site.server.kill_now();
            drop(done);
        });
        for client in &mut self.clients {
            client.life += 1;
        }
    }

    /// Goes on until everything is done, signed, and seen by everybody.
    fn run_to_the_end(&mut self, site: &Site) {
        let admin = &site.kubernetes_admin();
        let (progress, done) = sync_channel(CLIENTS);
        std::thread::scope(|scope| {
            let watchers: Vec<_> = self.watchers.iter_mut().collect();
            let watchers: Vec<_> = watchers
                .into_iter()
                .map(|watcher| scope.spawn(move || watcher.follow(admin)))
                .collect();
            for client in &mut self.clients {
                let progress = progress.clone();
                scope.spawn(move || client.run(admin, &progress).unwrap());
            }
            drop(progress);
            while done.recv_timeout(PATIENCE).is_ok() {}
            // Approved requests are signed by themselves.
            let approved = CLIENTS * (0..REQUESTS_EACH).filter(|n| is_to_be_approved(*n)).count();
            let are_signed = || list(admin).matches(r#""certificate":""#).count() == approved;
            assert!(ask_again(PATIENCE, || are_signed().then_some(())).is_some());
            let last = kubernetes_request(LAST).to_string();
            let created = admin.call("POST", REQUESTS, &[JSON], last.as_bytes());
            assert_eq!(created.unwrap().status, 201);
            for watcher in watchers {
                watcher.join().unwrap().unwrap();
            }
        });
    }

    /// Nobody has lost, or been told twice or otherwise, anything.
    fn check(&self, site: &Site) {
        let told = &self.watchers[0].told;
        for (number, watcher) in self.watchers.iter().enumerate() {
            let differs = told
                .iter()
                .zip(&watcher.told)
                .find(|(one, other)| one != other);
            assert_eq!(differs, None, "watcher {number}");
            assert_eq!(told.len(), watcher.told.len(), "watcher {number}");
        }
        let mut objects: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
        for pair in told.windows(2) {
            assert!(pair[0].version < pair[1].version, "{pair:?}");
        }
        for one in told {
            objects.entry(&one.uid).or_default().push(one);
        }
        for states in objects.values() {
            let (first, rest) = states.split_first().unwrap();
            assert_eq!(first.event, Event::Added, "{states:?}");
            assert!(
                rest.iter().all(|state| state.event != Event::Added),
                "{states:?}"
            );
            let ends = |state: &&&Told| state.event == Event::Deleted;
            let end = rest.iter().position(|state| ends(&state));
            assert!(end.is_none_or(|end| end + 1 == rest.len()), "{states:?}");
        }
        self.check_answers(told, &objects);
        self.check_list(site, &objects);
    }

    /// Whatever a client was told is what watchers were told under that number, and each life has numbers of its own.
    fn check_answers(&self, told: &[Told], objects: &BTreeMap<&str, Vec<&Told>>) {
        let by_version: BTreeMap<u64, &Told> = told.iter().map(|one| (one.version, one)).collect();
        let mut lives: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for client in &self.clients {
            assert_eq!(client.done, REQUESTS_EACH);
            for (life, answer) in &client.told {
                assert_eq!(by_version.get(&answer.version), Some(&answer));
                let span = lives
                    .entry(*life)
                    .or_insert((answer.version, answer.version));
                *span = (span.0.min(answer.version), span.1.max(answer.version));
            }
            for uid in &client.deleted {
                let last = objects[uid.as_str()].last().unwrap();
                assert_eq!(last.event, Event::Deleted, "{last:?}");
            }
        }
        let spans: Vec<(u64, u64)> = lives.into_values().collect();
        for pair in spans.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{spans:?}");
        }
    }

    /// What there is, is what watchers have been told, and all that was asked for.
    fn check_list(&self, site: &Site, objects: &BTreeMap<&str, Vec<&Told>>) {
        let list: Value = serde_json::from_str(&list(&site.kubernetes_admin())).unwrap();
        let listed: BTreeSet<(String, String)> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                let field = |name: &str| item["metadata"][name].as_str().unwrap().to_owned();
                (field("name"), field("resourceVersion"))
            })
            .collect();
        let last = objects.values().map(|states| states.last().unwrap());
        let there = last.filter(|state| state.event != Event::Deleted);
        let there: BTreeSet<(String, String)> = there
            .map(|state| (state.name.clone(), state.version.to_string()))
            .collect();
        assert!(
            listed == there,
            "the list differs from what watchers were told"
        );
        let mut asked = vec![LAST.to_owned()];
        for client in &self.clients {
            let kept = (0..REQUESTS_EACH).filter(|number| !is_to_be_deleted(*number));
            asked.extend(kept.map(|number| format!("c{}-{number}", client.number)));
        }
        assert!(
            listed
                .into_iter()
                .map(|(name, _)| name)
                .collect::<BTreeSet<_>>()
                == asked.into_iter().collect(),
            "something is missing, or too much"
        );
    }
}

#[test]
fn no_event_is_lost_duplicated_or_out_of_order_under_load() {
    let site = site();
    let mut load = Load::new(&site);
    load.run_to_the_end(&site);
    load.check(&site);
    let count = |event| {
        let told = load.watchers[0].told.iter();
        told.filter(|told| told.event == event).count()
    };
    let each =
        |is_so: fn(usize) -> bool| CLIENTS * (0..REQUESTS_EACH).filter(|n| is_so(*n)).count();
    assert_eq!(count(Event::Added), CLIENTS * REQUESTS_EACH + 1);
    // Approved, and signed.
    assert_eq!(count(Event::Modified), 2 * each(is_to_be_approved));
    assert_eq!(count(Event::Deleted), each(is_to_be_deleted));
    let peak = peak_mib(&site);
    println!("the server had {peak} MiB at most");
    assert!(peak < MOST_MIB, "{peak} MiB");

    // The next process reads all of it without ever holding it twice, and answers when it has.
    let running = memory_mib(&site, "VmRSS:");
    let site = site.stop_and_restart_there();
    let first = format!("{REQUESTS}?limit=1");
    let listed = site.kubernetes_admin().call("GET", &first, &[], b"");
    let listed = listed.unwrap();
    assert_eq!(listed.status, 200, "{}", listed.text());
    let loading = peak_mib(&site);
    println!(
        "the next one had {loading} MiB at most when it had loaded; the first ran with {running}"
    );
    assert!(10 * loading < 13 * running, "{loading} MiB, {running} MiB");
}

#[test]
fn nothing_acknowledged_is_lost_and_no_version_used_twice_by_kill_9_under_load() {
    let mut site = site();
    let mut load = Load::new(&site);
    for _ in 0..2 {
        load.run_until_killed(&site, CLIENTS * REQUESTS_EACH / 3);
        site = site.kill_and_restart(&ARGUMENTS);
    }
    load.run_to_the_end(&site);
    load.check(&site);
}

/// What nobody reads is not kept for them: a watch is a place in the history, which has an end.
#[test]
fn watchers_that_do_not_read_cost_nothing_and_are_told_that_they_are_too_late() {
    let site = site();
    let admin = site.kubernetes_admin();
    let object = kubernetes_request(LAST).to_string();
    let created = admin.call("POST", REQUESTS, &[JSON], object.as_bytes());
    let since = Told::of(Event::Added, &created.unwrap().text()).version;
    let follow = |since: u64| {
        let path = format!("{REQUESTS}?watch=true&resourceVersion={since}");
        admin.connect().unwrap().follow(&path).unwrap()
    };
    let slow: Vec<_> = (0..WATCHERS).map(|_| follow(since)).collect();
    let before = peak_mib(&site);
    let mut connection = admin.connect().unwrap();
    let path = format!("{REQUESTS}/{LAST}");
    let mut versions = Vec::new();
    for number in 0..NOTES {
        let note = format!("{number}{}", "x".repeat(200_000));
        let patch = json!({"metadata": {"annotations": {"note": note}}}).to_string();
        let patched = connection.call("PATCH", &path, &[MERGE_PATCH], patch.as_bytes());
        versions.push(Told::of(Event::Modified, &patched.unwrap().text()).version);
    }
    let peak = peak_mib(&site);
    println!(
        "{NOTES} large events took {} MiB beside {before} MiB",
        peak - before
    );
    for mut lines in slow {
        let mut told = Vec::new();
        let end = loop {
            match lines.read() {
                Ok(Some(line)) if line.starts_with(r#"{"type":"ERROR""#) => break line,
                Ok(Some(line)) => told.push(Told::of_line(&line).version),
                // It took nothing for so long that its connection was ended; it may come back.
                Ok(None) | Err(_) => lines = follow(told.last().copied().unwrap_or(since)),
            }
        };
        let end: Value = serde_json::from_str(&end).unwrap();
        assert_eq!(end["object"]["code"], 410, "{end}");
        assert_eq!(end["object"]["reason"], "Expired", "{end}");
        assert!(versions.starts_with(&told), "{told:?}");
        assert!(lines.read().unwrap().is_none());
    }
    assert!(
        peak - before < MOST_MIB_OF_NOTES,
        "{before} MiB before, {peak} MiB at most"
    );
}

fn site() -> Site {
    Site::start(&ARGUMENTS)
}

/// Everything there is, as soon as the server has read it.
fn list(admin: &HttpsClient) -> String {
    let listed = ask_again(PATIENCE, || {
        let answer = admin.call("GET", REQUESTS, &[], b"").unwrap();
        (answer.status != 503).then_some(answer)
    });
    let answer = listed.expect("no list is possible");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

fn version_of(list: &str) -> u64 {
    let list: Value = serde_json::from_str(list).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str();
    version.unwrap().parse().unwrap()
}

fn is_to_be_approved(number: usize) -> bool {
    number.is_multiple_of(4)
}

fn is_to_be_deleted(number: usize) -> bool {
    number % 10 == 5
}

/// The most memory that the server ever had.
fn peak_mib(site: &Site) -> u64 {
    memory_mib(site, "VmHWM:")
}

fn memory_mib(site: &Site, what: &str) -> u64 {
    let path = format!("/proc/{}/status", site.server.pid());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    kib / 1024
}

/// The name of the object behind which nothing comes.
const LAST: &str = "the-last";
const ARGUMENTS: [&str; 0] = [];
const PATIENCE: Duration = Duration::from_secs(120);
/// Ten thousand objects and their texts take some 60 MiB, the ring of events 64 MiB.
const MOST_MIB: u64 = 400;
/// Twice as many changes of 200 kB as the ring holds.
const NOTES: usize = 300;
/// The ring, the texts under way to fifty watchers, and what the store takes; were they kept for each, it would be 3 GB.
const MOST_MIB_OF_NOTES: u64 = 300;
const MERGE_PATCH: (&str, &str) = ("Content-Type", "application/merge-patch+json");

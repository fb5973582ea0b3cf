//! Certificate signing requests at any API server that the kubeconfig names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::connection::{Connection, Follower, Server};
use crate::{Options, summary};

/// Creates `count` objects `prefix`-0 onwards for a signer.
pub(crate) async fn create(options: &Options) {
    let work = creations(options);
    let server = Arc::new(Server::new(options));
    let connections = options.number("connections", 32);
    let (mut took, elapsed) = share(&server, connections, work).await;
    let rate = per_second(took.len(), elapsed);
    println!("{}", summary(&mut took, &[("per_second", rate)]));
}

/// Approves every object `prefix`-…; with `until=signed`, it ends with the last certificate.
pub(crate) async fn approve(options: &Options) {
    let server = Arc::new(Server::new(options));
    let prefix = format!("{}-", options.text("prefix"));
    let (version, objects) = everything(&mut server.connect().await, 0).await;
    let work: Vec<Work> = objects
        .into_iter()
        .filter(|object| name_of(object).starts_with(&prefix))
        .map(|mut object| {
            object["status"]["conditions"] = json!([{
                "type": "Approved", "status": "True", "reason": "Load", "message": "by the load generator",
            }]);
            Work {
                method: "PUT",
                path: format!("{REQUESTS}/{}/approval", name_of(&object)),
                body: object.to_string(),
                expected: 200,
            }
        })
        .collect();
    let count = work.len();
    let is_until_signed = options
        .0
        .get("until")
        .is_some_and(|until| until == "signed");
    let signed = match is_until_signed {
        true => {
            let path = format!("{REQUESTS}?watch=true&resourceVersion={version}");
            let mut follower = server.connect().await.follow(&path).await;
            Some(tokio::spawn(async move {
                let mut left = count;
                while left > 0 {
                    let line = follower.line().await;
                    left -= usize::from(line.contains(r#""certificate":""#));
                }
                Instant::now()
            }))
        }
        false => None,
    };
    let started = Instant::now();
    let connections = options.number("connections", 32);
    let (mut took, mut elapsed) = share(&server, connections, work).await;
    if let Some(signed) = signed {
        elapsed = signed.await.unwrap() - started;
    }
    println!(
        "{}",
        summary(&mut took, &[("per_second", per_second(count, elapsed))])
    );
}

/// Creates objects, with `connections=1` each only after the one before was signed; the times are from the beginning of a
/// creation until a watch shows the certificate. `until_all_ms` is the time for all of them.
pub(crate) async fn signed(options: &Options) {
    let server = Arc::new(Server::new(options));
    let (version, _) = everything(&mut server.connect().await, 1).await;
    let work = creations(options);
    let mut signed = Signed::follow(&server, &version, options).await;
    let started = Instant::now();
    let (mut begun, mut told) = (Vec::new(), vec![started; work.len()]);
    match options.number("connections", 32) {
        1 => {
            let mut connection = server.connect().await;
            for work in &work {
                begun.push(Instant::now());
                work.send(&mut connection).await;
                let (number, at) = signed.next().await;
                told[number] = at;
            }
        }
        connections => {
            let count = work.len();
            let following = tokio::spawn(async move {
                for _ in 0..count {
                    let (number, at) = signed.next().await;
                    told[number] = at;
                }
                told
            });
            let (mut made, _) = share_timed(&server, connections, work, None).await;
            made.sort_unstable_by_key(|made| made.number);
            begun.extend(made.into_iter().map(|made| made.begun));
            told = following.await.unwrap();
        }
    }
    let all = *told.iter().max().unwrap() - started;
    let mut took: Vec<Duration> = told
        .iter()
        .zip(&begun)
        .map(|(told, begun)| *told - *begun)
        .collect();
    let figures = [("until_all_ms", all.as_secs_f64() * 1e3)];
    println!("{}", summary(&mut took, &figures));
}

/// Waits until all `count` objects `prefix`-… are signed.
pub(crate) async fn drained(options: &Options) {
    let server = Arc::new(Server::new(options));
    let begun = Instant::now();
    let (version, objects) = everything(&mut server.connect().await, 0).await;
    let prefix = format!("{}-", options.text("prefix"));
    let is_signed = |object: &&Value| {
        name_of(object).starts_with(&prefix) && object["status"]["certificate"].is_string()
    };
    let signed = objects.iter().filter(is_signed).count();
    let mut following = Signed::follow(&server, &version, options).await;
    for _ in signed..options.number("count", 5000) {
        following.next().await;
    }
    println!("{}", summary(&mut [begun.elapsed()], &[]));
}

/// Tells which objects `prefix`-… are signed, by their numbers.
struct Signed {
    follower: Follower,
    prefix: String,
}

impl Signed {
    async fn follow(server: &Arc<Server>, version: &str, options: &Options) -> Self {
        let path = format!("{REQUESTS}?watch=true&resourceVersion={version}");
        Self {
            follower: server.connect().await.follow(&path).await,
            prefix: format!(r#""name":"{}-"#, options.text("prefix")),
        }
    }

    async fn next(&mut self) -> (usize, Instant) {
        loop {
            let line = self.follower.line().await;
            if line.contains(r#""certificate":""#)
                && let Some((_, number)) = line.split_once(&self.prefix)
            {
                let number = number.split_once('"').unwrap().0.parse().unwrap();
                return (number, Instant::now());
            }
        }
    }
}

/// Lists everything `count` times, in pages of `limit` if that is not 0.
pub(crate) async fn list(options: &Options) {
    let mut connection = Server::new(options).connect().await;
    let limit = options.number("limit", 0);
    let (mut took, mut objects, mut bytes) = (Vec::new(), 0, 0);
    for _ in 0..options.number("count", 10) {
        let begun = Instant::now();
        let pages = pages(&mut connection, limit).await;
        took.push(begun.elapsed());
        bytes = pages.iter().map(Vec::len).sum();
        let page = |page: &Vec<u8>| {
            String::from_utf8_lossy(page)
                .matches(r#""signerName":"#)
                .count()
        };
        objects = pages.iter().map(page).sum();
    }
    let figure = |number: usize| f64::from(u32::try_from(number).unwrap());
    println!(
        "{}",
        summary(
            &mut took,
            &[("objects", figure(objects)), ("bytes", figure(bytes))]
        )
    );
}

/// Has `watchers` follow while objects are created, `rate` a second (0: as many as it can); the times are from the
/// beginning of a creation until the last of them knows.
pub(crate) async fn watch(options: &Options) {
    let server = Arc::new(Server::new(options));
    let (version, _) = everything(&mut server.connect().await, 1).await;
    let work = creations(options);
    let (count, watchers) = (work.len(), options.number("watchers", 50));
    let prefix = format!(r#""name":"{}-"#, options.text("prefix"));
    let path = format!("{REQUESTS}?watch=true&resourceVersion={version}");
    let mut tasks = Vec::new();
    for _ in 0..watchers {
        let mut follower = server.connect().await.follow(&path).await;
        let prefix = prefix.clone();
        tasks.push(tokio::spawn(async move {
            let mut told = vec![None; count];
            for _ in 0..count {
                let line = follower.line().await;
                let (_, number) = line.split_once(&prefix).unwrap();
                let number: usize = number.split_once('"').unwrap().0.parse().unwrap();
                assert!(told[number].replace(Instant::now()).is_none(), "told twice");
            }
            told
        }));
    }
    let connections = options.number("connections", 16);
    let started = Instant::now();
    let begun = match options.number("rate", 0) {
        0 => None,
        rate => Some(Duration::from_secs(1) / u32::try_from(rate).unwrap()),
    };
    let (created, _) = share_timed(&server, connections, work, begun).await;
    let mut last: Vec<Instant> = vec![started; count];
    for task in tasks {
        for (last, told) in last.iter_mut().zip(task.await.unwrap()) {
            *last = (*last).max(told.unwrap());
        }
    }
    let elapsed = *last.iter().max().unwrap() - started;
    let mut took: Vec<Duration> = created
        .iter()
        .map(|one| last[one.number] - one.begun)
        .collect();
    let events = per_second(count * watchers, elapsed);
    println!("{}", summary(&mut took, &[("events_per_second", events)]));
}

/// A call that is to be made once.
struct Work {
    method: &'static str,
    path: String,
    body: String,
    expected: u16,
}

impl Work {
    async fn send(&self, connection: &mut Connection) {
        let (status, text) = connection
            .call_as("application/json", self.method, &self.path, &self.body)
            .await;
        let text = String::from_utf8_lossy(&text);
        assert_eq!(status, self.expected, "{}: {text}", self.path);
    }
}

/// A call that was made.
struct Made {
    number: usize,
    begun: Instant,
    took: Duration,
}

fn creations(options: &Options) -> Vec<Work> {
    let signer = options
        .0
        .get("signer")
        .map_or("kubernetes.io/kube-apiserver-client", String::as_str);
    (0..options.number("count", 10_000))
        .map(|number| {
            let name = format!("{}-{number}", options.text("prefix"));
            // What asks for a node's certificate has a node's name.
            let builder = match signer == KUBELET {
                true => {
                    CsrBuilder::new(&format!("system:node:{name}")).organization("system:nodes")
                }
                false => CsrBuilder::new(&name).organization("load"),
            };
            let request = builder.sign_pem(keys::p256_a());
            let object = json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"name": name},
                "spec": {
                    "request": BASE64.encode(request),
                    "signerName": signer,
                    "usages": ["digital signature", "client auth"],
                },
            });
            Work {
                method: "POST",
                path: REQUESTS.to_owned(),
                body: object.to_string(),
                expected: 201,
            }
        })
        .collect()
}

/// Has connections do the work together; how long each call took, and all of it.
async fn share(
    server: &Arc<Server>,
    connections: usize,
    work: Vec<Work>,
) -> (Vec<Duration>, Duration) {
    let (made, elapsed) = share_timed(server, connections, work, None).await;
    (made.into_iter().map(|made| made.took).collect(), elapsed)
}

/// The same, with a pause between the beginnings of two calls.
async fn share_timed(
    server: &Arc<Server>,
    connections: usize,
    work: Vec<Work>,
    pause: Option<Duration>,
) -> (Vec<Made>, Duration) {
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(server.connect().await);
    }
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let started = Instant::now();
    let tasks: Vec<_> = open
        .into_iter()
        .map(|mut connection| {
            let (work, next) = (Arc::clone(&work), Arc::clone(&next));
            tokio::spawn(async move {
                let mut done = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(work) = work.get(number) else {
                        return done;
                    };
                    if let Some(pause) = pause {
                        let at = started + pause * u32::try_from(number).unwrap();
                        tokio::time::sleep_until(at.into()).await;
                    }
                    let begun = Instant::now();
                    work.send(&mut connection).await;
                    done.push(Made {
                        number,
                        begun,
                        took: begun.elapsed(),
                    });
                }
            })
        })
        .collect();
    let mut done = Vec::new();
    for task in tasks {
        done.extend(task.await.unwrap());
    }
    (done, started.elapsed())
}

/// All pages of the list.
async fn pages(connection: &mut Connection, limit: usize) -> Vec<Vec<u8>> {
    let (mut pages, mut path) = (Vec::new(), format!("{REQUESTS}?limit={limit}"));
    loop {
        let (status, body) = connection.call("GET", &path, "").await;
        assert_eq!(status, 200, "{path}");
        // Before the first object: reading all of it would cost more than the list.
        let begin = String::from_utf8_lossy(&body[..body.len().min(1000)]).into_owned();
        pages.push(body);
        match begin
            .split_once(r#""continue":""#)
            .map(|(_, token)| token.split_once('"').unwrap().0)
        {
            None | Some("") => return pages,
            Some(token) => path = format!("{REQUESTS}?limit={limit}&continue={token}"),
        }
    }
}

/// The version of the list, and its objects if there is no limit; else those of the first page.
async fn everything(connection: &mut Connection, limit: usize) -> (String, Vec<Value>) {
    let (status, body) = connection
        .call("GET", &format!("{REQUESTS}?limit={limit}"), "")
        .await;
    assert_eq!(status, 200);
    let mut list: Value = serde_json::from_slice(&body).unwrap();
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let Value::Array(objects) = list["items"].take() else {
        panic!("a list without items");
    };
    let whole = |mut object: Value| {
        object["apiVersion"] = json!("certificates.k8s.io/v1");
        object["kind"] = json!("CertificateSigningRequest");
        object
    };
    (version, objects.into_iter().map(whole).collect())
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn per_second(count: usize, elapsed: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap()) / elapsed.as_secs_f64()
}

const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

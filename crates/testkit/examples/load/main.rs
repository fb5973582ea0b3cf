//! The load generator behind `cargo xtask bench`.
//!
//! `load raw` measures what the cryptography alone costs. `load enrol` puts enrolments (PUT of a request, GET
//! of its certificate) on any Puppet-compatible CA that signs at once, over kept-alive connections, a fresh one
//! for each enrolment or a fresh one for each call;
//! `load get` repeats one GET; `load handshake` only connects; `load revoke` revokes one name after the other, or cleans
//! them in batches. What begins with `kubernetes-` is for any API server with certificate signing requests. Each prints one line of JSON. It speaks HTTP/1.1 by hand: on a machine with two cores, the generator's own appetite is part of the result.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a measuring tool: it stops at the first surprise, and it measures time"
)]

mod connection;
mod kubernetes;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
    RSA_PKCS1_SHA256, UnparsedPublicKey,
};
use countersign_pki::pem;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

use crate::connection::{Connection, Server};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let options = Options(
        arguments
            .map(|a| {
                a.split_once('=')
                    .map(|(k, v)| (k.to_owned(), v.to_owned()))
                    .unwrap()
            })
            .collect(),
    );
    if what == "raw" {
        return raw(&options);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    match what.as_str() {
        "enrol" => runtime.block_on(enrol(&options)),
        "get" => runtime.block_on(get(&options)),
        "handshake" => runtime.block_on(handshake(&options)),
        "revoke" => runtime.block_on(revoke(&options)),
        "kubernetes-create" => runtime.block_on(kubernetes::create(&options)),
        "kubernetes-approve" => runtime.block_on(kubernetes::approve(&options)),
        "kubernetes-list" => runtime.block_on(kubernetes::list(&options)),
        "kubernetes-signed" => runtime.block_on(kubernetes::signed(&options)),
        "kubernetes-drained" => runtime.block_on(kubernetes::drained(&options)),
        "kubernetes-watch" => runtime.block_on(kubernetes::watch(&options)),
        _ => panic!("load raw|enrol|get|handshake|revoke|kubernetes-... KEY=VALUE..."),
    }
}

struct Options(HashMap<String, String>);

impl Options {
    fn text(&self, key: &str) -> &str {
        self.0
            .get(key)
            .unwrap_or_else(|| panic!("{key}=... is missing"))
    }

    fn number(&self, key: &str, default: usize) -> usize {
        self.0
            .get(key)
            .map_or(default, |text| text.parse().unwrap())
    }

    fn kept(&self) -> Kept {
        match self.0.get("fresh").map(String::as_str) {
            None | Some("never") => Kept::Always,
            Some("enrolment") => Kept::Enrolment,
            Some("call") => Kept::Call,
            Some(other) => panic!("fresh={other}: never, enrolment or call"),
        }
    }

    /// CPU ticks of the server under load, if its process is known.
    fn server_ticks(&self) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.get("pid")?)).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        Some(fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?)
    }
}

/// One verification of a request and one signature of a certificate on one core, and RSA signatures on all of them at once:
/// cores of a virtual machine may share one, so twice the rate of one is not what two do.
fn raw(options: &Options) {
    let seconds = options.number("seconds", 2);
    let message = vec![7u8; 600];
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
    let signature = key.sign(&random, &message).unwrap();
    let public =
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.public_key().as_ref().to_vec());
    let ec = rate(seconds, || {
        public.verify(&message, signature.as_ref()).unwrap();
        key.sign(&random, &message).unwrap();
    });
    let rsa = RsaKeyPair::generate(KeySize::Rsa4096).unwrap();
    let sign = || {
        let mut out = vec![0u8; rsa.public_modulus_len()];
        rate(seconds, || {
            rsa.sign(&RSA_PKCS1_SHA256, &random, &message, &mut out)
                .unwrap();
        })
    };
    let one = sign();
    let cores = std::thread::available_parallelism().unwrap().get();
    let all: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(sign)).collect();
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    println!(
        "{{\"raw_p256_verify_and_sign_per_second\":{ec:.0},\"raw_p256_verify_and_sign_us\":{:.1},\"raw_rsa4096_sign_per_second\":{one:.0},\"raw_rsa4096_sign_per_second_all_cores\":{all:.0},\"cores\":{cores}}}",
        1e6 / ec
    );
}

fn rate(seconds: usize, mut once: impl FnMut()) -> f64 {
    let (started, limit) = (
        Instant::now(),
        Duration::from_secs(u64::try_from(seconds).unwrap()),
    );
    let mut count = 0u32;
    while started.elapsed() < limit {
        for _ in 0..16 {
            once();
        }
        count += 16;
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}

/// How long an enrolment keeps its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Always,
    Enrolment,
    Call,
}

async fn enrol(options: &Options) {
    let count = options.number("count", 20_000);
    let connections = options.number("connections", 16);
    let kept = options.kept();
    let prefix = options.0.get("prefix").map_or("load", String::as_str);
    let key = keys::p256_a();
    let requests: Arc<Vec<(String, String)>> = Arc::new(
        (0..count)
            .map(|n| {
                let name = format!("{prefix}-{n}.load.example.com");
                let body = pem::encode("CERTIFICATE REQUEST", &CsrBuilder::new(&name).sign(key));
                (name, body)
            })
            .collect(),
    );
    let server = Arc::new(Server::new(options));
    let next = Arc::new(AtomicUsize::new(0));
    let signed = Arc::new(AtomicUsize::new(0));
    let ticks = options.server_ticks();
    let started = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (server, requests) = (Arc::clone(&server), Arc::clone(&requests));
            let (next, signed) = (Arc::clone(&next), Arc::clone(&signed));
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut connection: Option<Connection> = None;
                loop {
                    let Some((name, body)) = requests.get(next.fetch_add(1, Ordering::Relaxed))
                    else {
                        return latencies;
                    };
                    let begun = Instant::now();
                    let mut open = match connection.take() {
                        Some(open) => open,
                        None => server.connect().await,
                    };
                    let put = open
                        .call(
                            "PUT",
                            &format!("/puppet-ca/v1/certificate_request/{name}"),
                            body,
                        )
                        .await;
                    assert_eq!(
                        put.0,
                        200,
                        "PUT {name}: {}",
                        String::from_utf8_lossy(&put.1)
                    );
                    if kept == Kept::Call {
                        open = server.connect().await;
                    }
                    let got = open
                        .call("GET", &format!("/puppet-ca/v1/certificate/{name}"), "")
                        .await;
                    if got.0 == 200 && got.1.starts_with(b"-----BEGIN CERTIFICATE") {
                        signed.fetch_add(1, Ordering::Relaxed);
                    }
                    latencies.push(begun.elapsed());
                    if kept == Kept::Always && !open.closed {
                        connection = Some(open);
                    }
                }
            })
        })
        .collect();
    let mut latencies: Vec<Duration> = Vec::new();
    for task in tasks {
        latencies.extend(task.await.unwrap());
    }
    let elapsed = started.elapsed().as_secs_f64();
    let signed = signed.load(Ordering::Relaxed);
    latencies.sort_unstable();
    let millis = |share: usize| latencies[(latencies.len() - 1) * share / 100].as_secs_f64() * 1e3;
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark")]
    let (per_second, cpu_us) = (
        signed as f64 / elapsed,
        ticks.zip(options.server_ticks()).map(|(before, after)| {
            (after - before) as f64 * 1e6 / ticks_per_second() / signed.max(1) as f64
        }),
    );
    println!(
        "{{\"enrolled\":{signed},\"of\":{count},\"per_second\":{per_second:.0},\"p50_ms\":{:.2},\"p99_ms\":{:.2},\"server_cpu_us\":{}}}",
        millis(50),
        millis(99),
        cpu_us.map_or("null".to_owned(), |us| format!("{us:.0}"))
    );
}

async fn get(options: &Options) {
    let path = options.text("path").to_owned();
    repeat(options, move |server, next| {
        let path = path.clone();
        async move {
            let mut connection = server.connect().await;
            let mut done = Vec::new();
            while next() {
                let begun = Instant::now();
                let (status, bytes) = connection.measure(&path).await;
                assert_eq!(status, 200, "GET {path}");
                done.push(Done {
                    took: begun.elapsed(),
                    bytes,
                });
            }
            done
        }
    })
    .await;
}

/// Names `prefix`-`from` onwards: each by a call of its own, until its serial is on the published list; or, with
/// `batch`, so many in one call.
async fn revoke(options: &Options) {
    let (from, count) = (options.number("from", 0), options.number("count", 20));
    let batch = options.number("batch", 1);
    let name = |n: usize| format!("{}-{n}.load.example.com", options.text("prefix"));
    let mut connection = Server::new(options).connect().await;
    let mut took = Vec::new();
    for first in (from..from + count).step_by(batch) {
        let names: Vec<String> = (first..first + batch).map(name).collect();
        let (path, body) = if batch == 1 {
            (
                format!("/puppet-ca/v1/certificate_status/{}", names[0]),
                r#"{"desired_state":"revoked"}"#.to_owned(),
            )
        } else {
            let body = format!(r#"{{"certnames":{names:?}}}"#);
            ("/puppet-ca/v1/clean".to_owned(), body)
        };
        let begun = Instant::now();
        let told = connection
            .call_as("application/json", "PUT", &path, &body)
            .await;
        assert!(told.0 == 200 || told.0 == 204, "{path}: {}", told.0);
        took.push(begun.elapsed());
    }
    println!("{}", summary(&mut took, &[]));
}

/// What one call cost.
struct Done {
    took: Duration,
    bytes: usize,
}

fn summary(took: &mut [Duration], extra: &[(&str, f64)]) -> String {
    took.sort_unstable();
    let millis = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1e3;
    let extra: String = extra
        .iter()
        .map(|(name, value)| format!(",\"{name}\":{value:.0}"))
        .collect();
    format!(
        "{{\"done\":{},\"p50_ms\":{:.2},\"p99_ms\":{:.2}{extra}}}",
        took.len(),
        millis(50),
        millis(99)
    )
}

async fn handshake(options: &Options) {
    repeat(options, |server, next| async move {
        let mut done = Vec::new();
        while next() {
            let begun = Instant::now();
            server.connect().await.stream.shutdown().await.ok();
            done.push(Done {
                took: begun.elapsed(),
                bytes: 0,
            });
        }
        done
    })
    .await;
}

async fn repeat<F, W>(options: &Options, work: F)
where
    F: Fn(Arc<Server>, Box<dyn Fn() -> bool + Send + Sync>) -> W,
    W: Future<Output = Vec<Done>> + Send + 'static,
{
    let count = options.number("count", 20_000);
    let server = Arc::new(Server::new(options));
    let left = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let tasks: Vec<_> = (0..options.number("connections", 16))
        .map(|_| {
            let left = Arc::clone(&left);
            let next = Box::new(move || left.fetch_add(1, Ordering::Relaxed) < count);
            tokio::spawn(work(Arc::clone(&server), next))
        })
        .collect();
    let mut done = Vec::new();
    for task in tasks {
        done.extend(task.await.unwrap());
    }
    let elapsed = started.elapsed().as_secs_f64();
    let bytes = done.iter().map(|one| one.bytes).max().unwrap_or(0);
    let mut took: Vec<Duration> = done.iter().map(|one| one.took).collect();
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark")]
    let extra = [
        ("per_second", took.len() as f64 / elapsed),
        ("bytes", bytes as f64),
    ];
    println!("{}", summary(&mut took, &extra));
}

fn ticks_per_second() -> f64 {
    let output = std::process::Command::new("getconf")
        .arg("CLK_TCK")
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

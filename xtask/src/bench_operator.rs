//! The certificate operator at a fresh kube-apiserver on etcd, with `countersign serve` behind it that signs at once.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::Server;
use crate::bench_cluster::{Cluster, Controllers};
use crate::bench_kubernetes::Usage;

/// Creates so many Certificates and waits until all of them are signed.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
pub(crate) fn run(target: &Path, data: &Path, certificates: usize) -> Result<()> {
    fs::create_dir_all(data)?;
    let Some(cluster) = Cluster::start(target)? else {
        println!("the certificate operator    not prepared; see cargo xtask setup");
        return Ok(());
    };
    let program = target.join("countersign");
    let definitions = Command::new(&program)
        .args(["cluster", "--print-crds"])
        .output()
        .context("cannot print the resource definitions")?;
    kubectl(&cluster, "apply", &definitions.stdout)?;
    kubectl(&cluster, "apply", WORLD.as_bytes())?;
    let server = Server::start(target, &data.join("serve"), "p256", "off")?;
    let [certificate, key] = server.administrator();
    let mut command = Command::new(&program);
    command
        .args(["cluster", "--controllers=operator", "--leader-elect=false"])
        .arg(format!("--metrics-listen={METRICS}"))
        .arg(format!("--kubeconfig={}", cluster.of("controllers")?))
        .arg(format!("--{}", server.at()))
        .arg(format!("--{certificate}"))
        .arg(format!("--{key}"))
        .arg(format!("--cacert={}", server.trust().display()))
        .env_remove("RUST_LOG");
    let operator = Controllers::start(command, &data.join("operator.log"))?;
    until("the authority is ready", || Ok(signed()? == 1))?;
    let before = Usage::of(operator.pid())?;
    let begun = Instant::now();
    kubectl(&cluster, "create", &objects(certificates))?;
    until("all are signed", || Ok(signed()? > certificates as u64))?;
    let seconds = begun.elapsed().as_secs_f64();
    let after = Usage::of(operator.pid())?;
    let metrics = metrics()?;
    let calls: u64 = lines(
        &metrics,
        "countersign_operator_ca_calls_total{call=\"issue\"",
    );
    println!("operator, {certificates} Certificates signed {seconds:8.1} s");
    println!(
        "... its CPU time            {:8.1} s",
        after.cpu_seconds - before.cpu_seconds
    );
    println!("... resident in the end     {:8.0} MiB", after.resident_mib);
    println!("... attempts at the CA      {calls:8}");
    Ok(())
}

fn kubectl(cluster: &Cluster, verb: &str, input: &[u8]) -> Result<()> {
    let mut child = Command::new(cluster.of("kubectl")?)
        .args([verb, "--validate=false", "-f", "-"])
        .arg(format!("--kubeconfig={}", cluster.of("controllers")?))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    child
        .stdin
        .take()
        .context("kubectl has no input")?
        .write_all(input)?;
    ensure!(child.wait()?.success(), "kubectl {verb} failed");
    Ok(())
}

/// How many Certificates are signed, as the operator has seen it. Listing them would take the processors that it needs.
fn signed() -> Result<u64> {
    let signed = "countersign_operator_certificates{phase=\"Signed\"}";
    // Nobody listens before it has read all objects.
    Ok(metrics().map_or(0, |metrics| lines(&metrics, signed)))
}

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn until(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if is_so()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    bail!("not within {} s: {what}", PATIENCE.as_secs())
}

fn objects(count: usize) -> Vec<u8> {
    let objects = (0..count).map(|index| {
        format!(
            "---\napiVersion: openvox.voxpupuli.org/v1alpha1\nkind: Certificate\n\
             metadata: {{name: c{index}, namespace: bench}}\n\
             spec: {{authorityRef: ca, certname: c{index}.example.com}}\n"
        )
    });
    objects.collect::<String>().into_bytes()
}

fn metrics() -> Result<String> {
    let mut stream = TcpStream::connect(METRICS)?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The sum of the samples that begin so.
fn lines(metrics: &str, prefix: &str) -> u64 {
    let samples = metrics.lines().filter(|line| line.starts_with(prefix));
    let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    values.sum()
}

const WORLD: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: bench}\n---\n\
    apiVersion: openvox.voxpupuli.org/v1alpha1\nkind: CertificateAuthority\n\
    metadata: {name: ca, namespace: bench}\nspec: {}\n";
const METRICS: &str = "127.0.0.1:28141";
const PATIENCE: Duration = Duration::from_secs(1_200);

//! `countersign kubeconfig`: credentials for the Kubernetes door. The key is made here and leaves only in the file.

use anyhow::{Context as _, Result, anyhow, ensure};
use countersign_keys::{LeafKey, private_file};
use countersign_pki::pem;
use http::{Method, Uri};
use serde::Deserialize;
use serde_json::json;

use super::csr::accepted;
use crate::cli::{KubeconfigArgs, ServerArgs};
use crate::config::Span;
use crate::kubeconfig::Kubeconfig;
use crate::output::{complain, secret};

/// Carries the command out.
pub(crate) async fn run(args: KubeconfigArgs) -> Result<()> {
    ensure!(!args.user.is_empty(), "--user: the name is empty");
    let groups: Vec<&str> = args.groups.iter().map(String::as_str).collect();
    ensure!(
        groups.iter().all(|group| !group.is_empty()),
        "--group: a group's name is empty"
    );
    // Before anything is signed: what cannot be written or would lead nowhere is not asked for.
    let url = place(&args)?;
    if let Some(file) = &args.out {
        ensure!(
            !file.try_exists()?,
            "{} exists: remove it, or write to another file",
            file.display()
        );
    }
    let key = LeafKey::generate()?;
    let request = key.request(&args.user, &groups, &[])?;
    let body = json!({
        "csr": pem::encode("CERTIFICATE REQUEST", &request),
        "reason": "countersign kubeconfig",
        "lifetime_seconds": args.ttl.map(Span::as_seconds),
    });
    let mut client = args.reach.client()?;
    let reply = client
        .call(Method::POST, "/enrol/v1/kubernetes-users", Some(&body))
        .await?;
    let user: User = accepted(reply)?.json()?;
    let key_pem = key.to_pkcs8_pem()?;
    let kubeconfig = Kubeconfig {
        url: &url,
        ca_pem: user.ca.as_bytes(),
        user: &args.user,
        certificate_pem: user.certificate.as_bytes(),
        key_pem: key_pem.as_bytes(),
    };
    match &args.out {
        None => Ok(secret(&kubeconfig.text())?),
        Some(file) => {
            private_file::write_new(file, kubeconfig.text().as_bytes())
                .with_context(|| format!("cannot write {}", file.display()))?;
            complain(&format!("wrote {}", file.display()));
            Ok(())
        }
    }
}

/// What the server answers.
#[derive(Deserialize)]
struct User {
    certificate: String,
    ca: String,
}

/// Where the Kubernetes door is, as the file shall say it.
fn place(args: &KubeconfigArgs) -> Result<String> {
    if let Some(url) = &args.url {
        let uri: Uri = url
            .parse()
            .with_context(|| format!("--url: {url:?} is no URL: write https://HOST:PORT"))?;
        ensure!(
            uri.scheme_str() == Some("https") && uri.host().is_some(),
            "--url: {url:?} is no place of a Kubernetes door: write https://HOST:PORT"
        );
        return Ok(url.clone());
    }
    let ServerArgs { server, .. } = &args.reach.server;
    if server.is_some() {
        return Err(anyhow!(
            "say where the Kubernetes door is: --url https://HOST:8141"
        ));
    }
    let folder = args.reach.config.data(&args.reach.server.data)?.folder();
    let served = folder.server()?.and_then(|server| server.kubernetes);
    served.ok_or_else(|| {
        anyhow!(
            "no server with a Kubernetes door was started on {}: start it with `countersign serve`, or say where the door is with --url",
            folder.root().display()
        )
    })
}

//! `countersign kubeconfig`: credentials for the Kubernetes door. The key is made here and leaves only in the file.

use anyhow::{Context as _, Result, anyhow, ensure};
use countersign_api::{
    BootstrapTokenOrder, KubernetesUser, KubernetesUserRequest, MintedBootstrapToken,
};
use countersign_keys::{LeafKey, private_file};
use countersign_pki::pem;
use http::{Method, Uri};
use serde_json::json;

use super::csr::accepted;
use crate::cli::{KubeconfigArgs, ServerArgs};
use crate::config::Span;
use crate::kubeconfig::{Credential, Kubeconfig};
use crate::output::{complain, secret};

/// Carries the command out.
pub(crate) async fn run(args: KubeconfigArgs) -> Result<()> {
    ensure!(
        args.groups.iter().all(|group| !group.is_empty()),
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
    match &args.user {
        Some(user) => for_user(&args, &url, user).await,
        None => for_bootstrap(&args, &url).await,
    }
}

async fn for_user(args: &KubeconfigArgs, url: &str, user: &str) -> Result<()> {
    ensure!(!user.is_empty(), "--user: the name is empty");
    let groups: Vec<&str> = args.groups.iter().map(String::as_str).collect();
    let key = LeafKey::generate()?;
    let request = key.request(user, &groups, &[])?;
    let body = KubernetesUserRequest {
        csr: pem::encode("CERTIFICATE REQUEST", &request),
        reason: "countersign kubeconfig".to_owned(),
        lifetime_seconds: args.ttl.map(Span::as_seconds),
    };
    let mut client = args.reach.client()?;
    let reply = client
        .call(
            Method::POST,
            "/enrol/v1/kubernetes-users",
            Some(&json!(body)),
        )
        .await?;
    let made: KubernetesUser = accepted(reply)?.json()?;
    let key_pem = key.to_pkcs8_pem()?;
    let kubeconfig = Kubeconfig {
        url,
        ca_pem: made.ca.as_bytes(),
        user,
        credential: Credential::Certificate {
            pem: made.certificate.as_bytes(),
            key_pem: key_pem.as_bytes(),
        },
    };
    handed_out(args, &kubeconfig)
}

/// With a token of its own: whoever reads the file can ask as a machine that bootstraps, and nothing else.
async fn for_bootstrap(args: &KubeconfigArgs, url: &str) -> Result<()> {
    let mut client = args.reach.client()?;
    let order = BootstrapTokenOrder {
        ttl_seconds: args.ttl.map(Span::as_seconds),
        groups: args.groups.clone(),
        description: "countersign kubeconfig".to_owned(),
    };
    let reply = client
        .call(Method::POST, BOOTSTRAP_TOKENS, Some(&json!(order)))
        .await?;
    let minted: MintedBootstrapToken = accepted(reply)?.json()?;
    let id = &minted.id.0;
    let revoke =
        || format!("revoke the token with `countersign token revoke {id}`: nobody has got it");
    let ca = minted.ca.as_ref().context(
        "the server has no Kubernetes door: set kubernetes.listen there, and revoke the token",
    )?;
    let kubeconfig = Kubeconfig {
        url,
        ca_pem: ca.as_bytes(),
        user: "bootstrap",
        credential: Credential::Token(&minted.token.0),
    };
    handed_out(args, &kubeconfig).with_context(revoke)?;
    let end = minted.expires_at.map(|end| format!("is good until {end}"));
    let end = end.as_deref().unwrap_or("has no end");
    complain(&format!(
        "its bootstrap token {id} {end}; `countersign token revoke {id}` takes it back"
    ));
    Ok(())
}

fn handed_out(args: &KubeconfigArgs, kubeconfig: &Kubeconfig<'_>) -> Result<()> {
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

const BOOTSTRAP_TOKENS: &str = "/enrol/v1/bootstrap-tokens";

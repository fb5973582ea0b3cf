//! `docs/signers.md`, written from the profiles.

use std::fmt::Write as _;
use std::path::Path;

use countersign_authority::Signer;
use countersign_authority::profile::Point;

use super::{
    KUBE_APISERVER_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN, PUPPET_AGENT, all,
};
use crate::config::Config;

/// A signer that a site may declare, as the document shows it.
const SAMPLE: &str = "signers:
  - name: example.com/vpn
    subject:
      common_names: ['*.vpn.example.com']
      organizations: ['team-*']
      required_organizations: [team-vpn]
    names: [dns, ip]
    required_names: [dns]
    name_patterns:
      dns: ['*.vpn.example.com']
      ip: [10.0.0.0/8, 'fd00::/8']
    usages: [digital signature, key encipherment, server auth, client auth]
    required_usages: [server auth]
    extensions: {copied: [1.3.6.1.4.1.99999.1], others: refused}
    lifetime: 30d
    max_lifetime: 90d
";

const HEAD: &str = include_str!("signers.head.md");

#[test]
fn the_document_of_the_signers_is_what_the_profiles_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/signers.md");
    let text = document();
    let is_stale = std::fs::read_to_string(&path).ok().as_deref() != Some(text.as_str());
    if is_stale {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(
        !is_stale,
        "docs/signers.md was written anew, look at it and commit it"
    );
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    let built_in = all(&Config::default()).unwrap();
    for (name, trust) in TRUST {
        let signer = built_in.iter().find(|signer| signer.name.as_str() == name);
        describe(&mut text, signer.unwrap(), trust);
    }
    text.push_str("\n## A signer of your own\n\nSuch a declaration in the configuration ([keys](configuration.md#signers))\n\n```yaml\n");
    text.push_str(SAMPLE);
    text.push_str("```\n\nmakes this signer. Without `subject` it certifies any subject that is approved, without `name_patterns` any name of the kinds in `names`.\n");
    let declared: Config = serde_saphyr::from_str(SAMPLE).unwrap();
    let signers = all(&declared).unwrap();
    describe(&mut text, signers.last().unwrap(), OWN_TRUST);
    text
}

fn describe(text: &mut String, signer: &Signer, trust: &str) {
    let name = &signer.name;
    let (level, issuer) = ("##", &signer.issuer);
    writeln!(text, "\n{level} `{name}`\n").unwrap();
    writeln!(text, "| | |\n|---|---|").unwrap();
    writeln!(
        text,
        "| Trust distribution | {trust} CA: `issuers/{issuer}/ca_crt.pem`. |"
    )
    .unwrap();
    for Point { title, sentences } in signer.profile.statement() {
        writeln!(text, "| {title} | {} |", sentences.join("<br>")).unwrap();
    }
}

const TRUST: [(&str, &str); 5] = [
    (
        KUBE_APISERVER_CLIENT,
        "An identity at this server's Kubernetes door: the common name is the user, each organization a group. API servers elsewhere honour it if they are given the CA as client CA.",
    ),
    (
        KUBELET_CLIENT,
        "An identity at this server's Kubernetes door, that of a node. API servers elsewhere honour it if they are given the CA as client CA.",
    ),
    (
        KUBELET_SERVING,
        "For API servers that connect to kubelets, if they are given the CA for that. No identity here.",
    ),
    (
        LEGACY_UNKNOWN,
        "Nobody is promised anything. No identity here. The present API refuses requests for it.",
    ),
    (
        PUPPET_AGENT,
        "An identity at this server's Puppet door and in the whole Puppet fleet, whose members are given the CA when they enrol.",
    ),
];
const OWN_TRUST: &str = "Whoever is to trust it is given the CA by the site. No identity at this server, whichever issuer signs.";

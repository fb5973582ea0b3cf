//! Sets of rules that come with the program, as the policy files they stand for.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use countersign_policy::{Network, PolicyFile};
use serde_json::{Value, json};

use crate::cli::{GoBool, KubeletCsrApproverArgs, Preset};

/// The policy files of a preset: one document per signer, so that each can give way to a site's own.
pub(super) fn files(
    preset: Option<Preset>,
    approver: Option<&KubeletCsrApprover>,
) -> Vec<PolicyFile> {
    let Some(preset) = preset else {
        return Vec::new();
    };
    let (name, client, serving) = match preset {
        Preset::KubeControllerManager => {
            ("kube-controller-manager", vec![renewal(), first()], None)
        }
        Preset::ClusterMachineApprover => {
            let options = json!({"preset": "cluster-machine-approver"});
            let client = vec![rule("node-client", "nodeClient", &options)];
            let serving = vec![rule("node-serving", "nodeServing", &options)];
            ("cluster-machine-approver", client, Some(serving))
        }
        Preset::KubeletCsrApprover => {
            let options = approver.map_or_else(|| json!({}), KubeletCsrApprover::options);
            let serving = vec![rule("node-serving", "nodeServing", &options)];
            ("kubelet-csr-approver", Vec::new(), Some(serving))
        }
        Preset::Hardened => {
            let options = json!({"preset": "hardened"});
            // Nodes renew their own certificates with the right that Kubernetes gives them for that.
            let client = vec![renewal(), rule("node-client", "nodeClient", &options)];
            let serving = vec![rule("node-serving", "nodeServing", &options)];
            ("hardened", client, Some(serving))
        }
    };
    let mut text = String::new();
    for (suffix, signer, rules) in [
        (
            "client",
            CLIENT,
            Some(client).filter(|rules| !rules.is_empty()),
        ),
        ("serving", SERVING, serving),
    ] {
        let Some(rules) = rules else { continue };
        let document = json!({
            "apiVersion": "countersign.dev/v1alpha1",
            "kind": "ApprovalPolicy",
            "metadata": {"name": format!("preset.{name}.{suffix}")},
            "spec": {"signers": [signer], "rules": rules},
        });
        // JSON is YAML. Writing to a string does not fail.
        let _ = writeln!(text, "---\n{document}");
    }
    let path = PathBuf::from(format!("(built in: --preset {name})"));
    vec![PolicyFile::new(path, text)]
}

fn rule(name: &str, kind: &str, options: &Value) -> Value {
    json!({"name": name, "approve": {kind: options}})
}

/// What kube-controller-manager recognizes first: a node that asks for its own next certificate.
fn renewal() -> Value {
    json!({
        "name": "self-node-client",
        "when": "requester.username == request.commonName",
        "approve": {
            "nodeClient": csrapproving_without("C06"),
            "message": "Auto approving self kubelet client certificate after SubjectAccessReview.",
        },
    })
}

/// What it recognizes then: whoever may ask for the certificates of nodes.
fn first() -> Value {
    json!({
        "name": "node-client",
        "approve": {
            "nodeClient": csrapproving_without("C13"),
            "message": "Auto approving kubelet client certificate after SubjectAccessReview.",
        },
    })
}

/// The parameters of one recognizer: without the check of the other.
fn csrapproving_without(check: &str) -> Value {
    json!({"preset": "kube-controller-manager", "checks": {check: "off"}})
}

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// The options of kubelet-csr-approver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KubeletCsrApprover {
    provider_regex: String,
    prefixes: Vec<String>,
    max_expiration_seconds: u32,
    allowed_dns_names: u32,
    bypass_dns_resolution: bool,
    bypass_hostname_check: bool,
    ignore_non_system_node: bool,
    skip_deny_step: bool,
    pub(super) leader_election: bool,
    pub(super) metrics_bind_address: Option<String>,
}

impl KubeletCsrApprover {
    /// Flags over variables over defaults; an empty variable counts as unset.
    pub(super) fn read(
        args: &KubeletCsrApproverArgs,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let text = |flag: &Option<String>, name: &str| {
            let set = || variable(name).filter(|value| !value.is_empty());
            flag.clone().or_else(set)
        };
        let truth = |flag: &Option<String>, name: &str| -> Result<bool> {
            match text(flag, name) {
                None => Ok(false),
                Some(value) => {
                    let read = value.parse::<GoBool>().map_err(anyhow::Error::msg);
                    Ok(read.context(name.to_owned())?.0)
                }
            }
        };
        let number = |flag: &Option<String>, name: &str, default: u32, most: u32| -> Result<u32> {
            let Some(value) = text(flag, name) else {
                return Ok(default);
            };
            let read: Option<u32> = value.parse().ok().filter(|number| *number <= most);
            read.with_context(|| format!("{name}: {value:?} is not a number from 0 to {most}"))
        };
        let regex = text(&args.provider_regex, "PROVIDER_REGEX");
        let regex = regex.unwrap_or_else(|| ".*".to_owned());
        ensure!(
            !regex.is_empty(),
            "--provider-regex is empty: leave it out for any name"
        );
        let prefixes = text(&args.provider_ip_prefixes, "PROVIDER_IP_PREFIXES");
        let prefixes = prefixes.unwrap_or_else(|| "0.0.0.0/0,::/0".to_owned());
        let prefixes: Vec<String> = prefixes.split(',').map(str::to_owned).collect();
        for prefix in &prefixes {
            ensure!(
                prefix.contains('/') && Network::parse(prefix).is_some(),
                "PROVIDER_IP_PREFIXES: {prefix:?} is not a network such as 10.0.0.0/8"
            );
        }
        Ok(Self {
            provider_regex: regex,
            prefixes,
            max_expiration_seconds: number(
                &args.max_expiration_sec,
                "MAX_EXPIRATION_SEC",
                MAX_EXPIRATION,
                MAX_EXPIRATION,
            )?,
            allowed_dns_names: number(&args.allowed_dns_names, "ALLOWED_DNS_NAMES", 1, 1000)?,
            bypass_dns_resolution: truth(&args.bypass_dns_resolution, "BYPASS_DNS_RESOLUTION")?,
            bypass_hostname_check: truth(&args.bypass_hostname_check, "BYPASS_HOSTNAME_CHECK")?,
            ignore_non_system_node: truth(&args.ignore_non_system_node, "IGNORE_NON_SYSTEM_NODE")?,
            skip_deny_step: truth(&args.skip_deny_step, "SKIP_DENY_STEP")?,
            leader_election: truth(&args.leader_election, "LEADER_ELECTION")?,
            metrics_bind_address: text(&args.metrics_bind_address, "METRICS_BIND_ADDRESS"),
        })
    }

    /// As the parameters of a rule.
    fn options(&self) -> Value {
        json!({
            "preset": "kubelet-csr-approver",
            "providerRegex": self.provider_regex,
            "providerIpPrefixes": self.prefixes,
            "maxExpirationSeconds": self.max_expiration_seconds,
            "allowedDnsNames": self.allowed_dns_names,
            "bypassDnsResolution": self.bypass_dns_resolution,
            "bypassHostnameCheck": self.bypass_hostname_check,
            "ignoreNonSystemNode": self.ignore_non_system_node,
            "skipDenyStep": self.skip_deny_step,
        })
    }
}

/// 367 days.
const MAX_EXPIRATION: u32 = 31_708_800;

#[cfg(test)]
mod tests {
    use countersign_policy::{PolicySet, RuleKind};

    use super::*;

    #[test]
    fn kube_controller_managers_rules_are_good() {
        let set = PolicySet::read(&files(Some(Preset::KubeControllerManager), None)).unwrap();
        let names: Vec<String> = set.rules().map(|(_, rule, _)| rule.name.clone()).collect();
        assert_eq!(names, ["self-node-client", "node-client"]);
        for (_, rule, _) in set.rules() {
            let words: Vec<&str> = rule.kinds.iter().map(RuleKind::word).collect();
            assert_eq!(words, ["nodeClient"], "{}", rule.name);
        }
        assert!(files(None, None).is_empty());
    }

    #[test]
    fn flags_win_over_variables_and_empty_variables_are_none() {
        let none = KubeletCsrApproverArgs::default();
        let read = |args: &KubeletCsrApproverArgs, variables: &[(&str, &str)]| {
            KubeletCsrApprover::read(args, |name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let defaults = read(&none, &[("PROVIDER_REGEX", ""), ("SKIP_DENY_STEP", "")]).unwrap();
        assert_eq!(defaults.provider_regex, ".*");
        assert_eq!(defaults.prefixes, ["0.0.0.0/0", "::/0"]);
        assert_eq!(
            (defaults.allowed_dns_names, defaults.skip_deny_step),
            (1, false)
        );
        let flags = KubeletCsrApproverArgs {
            provider_regex: Some("^a$".to_owned()),
            ..none.clone()
        };
        let variables = [
            ("PROVIDER_REGEX", "^b$"),
            ("SKIP_DENY_STEP", "T"),
            ("ALLOWED_DNS_NAMES", "3"),
        ];
        let set = read(&flags, &variables).unwrap();
        assert_eq!(
            (set.provider_regex.as_str(), set.skip_deny_step),
            ("^a$", true)
        );
        assert_eq!(set.options()["allowedDnsNames"], 3);
        for (name, value) in [
            ("SKIP_DENY_STEP", "yes"),
            ("MAX_EXPIRATION_SEC", "31708801"),
            ("MAX_EXPIRATION_SEC", "-1"),
            ("PROVIDER_IP_PREFIXES", "10.0.0.0/8, ::/0"),
            ("PROVIDER_IP_PREFIXES", "10.0.0.1"),
            ("PROVIDER_IP_PREFIXES", "fd20::/129"),
        ] {
            let fault = read(&none, &[(name, value)]).unwrap_err();
            assert!(format!("{fault:#}").contains(name), "{fault:#}");
        }
    }
}

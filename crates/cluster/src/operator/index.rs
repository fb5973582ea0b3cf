//! What the watches have shown of the operator's objects, and who has to look again when one changes. Pure: it is fed with
//! changes and answers questions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use countersign_policy::json::{items, named, part};
use serde_json::Value;

use super::address::Neighbours;
use super::calls::Kind;
use super::object::{
    AuthorityObject, CertificateObject, ConfigObject, Meta, ObjectName, PolicyObject, PoolObject,
    ServerObject,
};
use super::standing::is_operators;
use crate::index::Change;

/// Something to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Certificate(ObjectName),
    Authority(ObjectName),
    /// The SigningPolicies of a CertificateAuthority.
    Policies(ObjectName),
}

impl Key {
    /// Reads what [`fmt::Display`] writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('/')?;
        let (namespace, name) = rest.split_once('/')?;
        let name = ObjectName::new(namespace, name);
        match kind {
            "certificate" => Some(Self::Certificate(name)),
            "authority" => Some(Self::Authority(name)),
            "policies" => Some(Self::Policies(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(name) => write!(f, "certificate/{name}"),
            Self::Authority(name) => write!(f, "authority/{name}"),
            Self::Policies(name) => write!(f, "policies/{name}"),
        }
    }
}

/// The objects of the operator's kinds; of Secrets only the names.
#[derive(Debug, Default)]
pub(crate) struct Index {
    certificates: BTreeMap<ObjectName, Arc<CertificateObject>>,
    authorities: BTreeMap<ObjectName, Arc<AuthorityObject>>,
    policies: BTreeMap<ObjectName, Arc<PolicyObject>>,
    configs: BTreeMap<ObjectName, ConfigObject>,
    servers: BTreeMap<ObjectName, ServerObject>,
    pools: BTreeMap<ObjectName, PoolObject>,
    secrets: BTreeSet<ObjectName>,
    /// How many Certificates there are in each phase.
    phases: BTreeMap<String, i64>,
    /// The namespaces that are followed; `None`: all of them at once.
    scopes: Vec<Option<String>>,
    read: BTreeSet<(Kind, Option<String>)>,
}

impl Index {
    pub(crate) fn new(scopes: Vec<Option<String>>) -> Self {
        Self {
            scopes,
            ..Self::default()
        }
    }

    pub(crate) fn scopes(&self) -> &[Option<String>] {
        &self.scopes
    }

    /// Takes in a change of a namespace (`None`: of all), and says who has to look again.
    pub(crate) fn apply(
        &mut self,
        kind: Kind,
        scope: Option<&str>,
        change: Change,
    ) -> BTreeSet<Key> {
        let mut woken = BTreeSet::new();
        match change {
            Change::All(objects) => {
                let listed: BTreeSet<ObjectName> = objects.iter().filter_map(name_of).collect();
                let gone: Vec<ObjectName> = self
                    .names(kind)
                    .into_iter()
                    .filter(|name| scope.is_none_or(|scope| name.namespace == scope))
                    .filter(|name| !listed.contains(name))
                    .collect();
                for name in &gone {
                    self.take(kind, name, None, &mut woken);
                }
                for object in &objects {
                    self.put(kind, object, &mut woken);
                }
                self.read.insert((kind, scope.map(str::to_owned)));
            }
            Change::Set(object) => self.put(kind, &object, &mut woken),
            Change::Gone(object) => {
                if let Some(name) = name_of(&object) {
                    self.take(kind, &name, None, &mut woken);
                }
            }
            Change::Unreadable(_) => {}
        }
        woken
    }

    /// A kind that the cluster does not have: there are none of it.
    pub(crate) fn not_served(&mut self, kind: Kind, scope: Option<&str>) -> BTreeSet<Key> {
        self.apply(kind, scope, Change::All(Vec::new()))
    }

    /// Whether all objects of these kinds are known.
    pub(crate) fn has_read(&self, kinds: &[Kind]) -> bool {
        let is_read =
            |kind: &Kind, scope: &Option<String>| self.read.contains(&(*kind, scope.clone()));
        let mut kinds = kinds.iter();
        kinds.all(|kind| self.scopes.iter().all(|scope| is_read(kind, scope)))
    }

    /// Takes in an object that we have just written, before the watch brings it.
    pub(crate) fn written(&mut self, kind: Kind, object: &Value) {
        self.put(kind, object, &mut BTreeSet::new());
    }

    /// A Secret that we have just deleted.
    pub(crate) fn forget_secret(&mut self, name: &ObjectName) {
        self.secrets.remove(name);
    }

    pub(crate) fn certificate(&self, name: &ObjectName) -> Option<Arc<CertificateObject>> {
        self.certificates.get(name).cloned()
    }

    pub(crate) fn authority(&self, name: &ObjectName) -> Option<Arc<AuthorityObject>> {
        self.authorities.get(name).cloned()
    }

    pub(crate) fn has_secret(&self, name: &ObjectName) -> bool {
        self.secrets.contains(name)
    }

    /// The Certificates of a CA, by name.
    pub(crate) fn certificates_of(&self, authority: &ObjectName) -> Vec<Arc<CertificateObject>> {
        let of = |it: &&Arc<CertificateObject>| {
            it.spec.authority == authority.name && it.meta.name.namespace == authority.namespace
        };
        self.certificates.values().filter(of).cloned().collect()
    }

    /// The SigningPolicies of a CA, by name.
    pub(crate) fn policies_of(&self, authority: &ObjectName) -> Vec<Arc<PolicyObject>> {
        let of = |it: &&Arc<PolicyObject>| it.authority() == *authority;
        self.policies.values().filter(of).cloned().collect()
    }

    /// Another Certificate that had the same certname at the same CA first, and is still there.
    pub(crate) fn rival(&self, certificate: &CertificateObject) -> Option<ObjectName> {
        let certname = certificate.spec.certname.as_str();
        let age = |it: &CertificateObject| {
            let has_none = it.obtained_name() != Some(certname);
            (has_none, it.meta.created, it.meta.name.name.clone())
        };
        let mut rivals = self.others(certificate, certname);
        let rival = rivals.find(|it| age(it) < age(certificate));
        rival.map(|rival| rival.meta.name.clone())
    }

    /// Whether another Certificate is for this name at the same CA.
    pub(crate) fn is_wanted(&self, certificate: &CertificateObject, certname: &str) -> bool {
        self.others(certificate, certname).next().is_some()
    }

    /// The other Certificates that are for a name at the same CA.
    fn others<'a>(
        &'a self,
        certificate: &'a CertificateObject,
        certname: &'a str,
    ) -> impl Iterator<Item = &'a Arc<CertificateObject>> {
        let is_other = move |it: &&Arc<CertificateObject>| {
            it.spec.certname == certname
                && it.spec.authority == certificate.spec.authority
                && it.meta.name.namespace == certificate.meta.name.namespace
                && it.meta.name != certificate.meta.name
        };
        self.certificates.values().filter(is_other)
    }

    /// The Certificate of the CA's own server: the one that a Server which runs the CA names, else the first.
    pub(crate) fn server_certificate(&self, authority: &ObjectName) -> Option<ObjectName> {
        let neighbours = self.neighbours(&authority.namespace);
        if let Some(name) = neighbours.server_certificate(&authority.name) {
            return Some(authority.beside(name));
        }
        let own = format!("{}-operator-signing", authority.name);
        let others = self.certificates_of(authority).into_iter();
        let mut others = others.filter(|it| it.meta.name.name != own);
        others.next().map(|it| it.meta.name.clone())
    }

    /// The certname of the operator at a CA, where one authority is behind all internal ones: names are unique there. Of
    /// several CAs of one name the first has the usual one. Whatever it has obtained it keeps.
    pub(crate) fn operator_certname(&self, authority: &AuthorityObject) -> String {
        let [usual, further] = authority.operator_certnames();
        match self.obtained_by_operator(authority) {
            Some(name) if name == usual => return usual,
            Some(name) if name == further => return further,
            Some(_) | None => {}
        }
        let age = |it: &AuthorityObject| (it.meta.created, it.meta.name.namespace.clone());
        let is_first = |other: &AuthorityObject| match self.obtained_by_operator(other) {
            Some(name) => name == usual,
            None => age(other) < age(authority),
        };
        let mut others = self.authorities.values().filter(|other| {
            other.meta.name.name == authority.meta.name.name
                && other.meta.name.namespace != authority.meta.name.namespace
                && other.external.is_none()
        });
        match others.any(|other| is_first(other)) {
            true => further,
            false => usual,
        }
    }

    /// The name of the certificate that the operator has obtained at a CA.
    pub(crate) fn obtained_by_operator(&self, authority: &AuthorityObject) -> Option<String> {
        let own = self.certificates.get(&authority.own("operator-signing"))?;
        let own = Some(own).filter(|own| is_operators(own, authority))?;
        own.obtained_name().map(str::to_owned)
    }

    pub(crate) fn neighbours(&self, namespace: &str) -> Neighbours {
        fn of<T: Clone>(all: &BTreeMap<ObjectName, T>, namespace: &str) -> Vec<T> {
            let here = all.iter().filter(|(name, _)| name.namespace == namespace);
            here.map(|(_, it)| it.clone()).collect()
        }
        Neighbours {
            configs: of(&self.configs, namespace),
            servers: of(&self.servers, namespace),
            pools: of(&self.pools, namespace),
        }
    }

    /// How many Certificates there are in each phase.
    pub(crate) fn phases(&self) -> &BTreeMap<String, i64> {
        &self.phases
    }

    fn count_phase(&mut self, certificate: Option<&CertificateObject>, by: i64) {
        if let Some(certificate) = certificate {
            let count = self
                .phases
                .entry(certificate.phase().to_owned())
                .or_default();
            *count = count.saturating_add(by);
            if *count == 0 {
                self.phases.remove(certificate.phase());
            }
        }
    }

    fn names(&self, kind: Kind) -> Vec<ObjectName> {
        match kind {
            Kind::Certificate => self.certificates.keys().cloned().collect(),
            Kind::CertificateAuthority => self.authorities.keys().cloned().collect(),
            Kind::SigningPolicy => self.policies.keys().cloned().collect(),
            Kind::Config => self.configs.keys().cloned().collect(),
            Kind::Server => self.servers.keys().cloned().collect(),
            Kind::Pool => self.pools.keys().cloned().collect(),
            Kind::Secret => self.secrets.iter().cloned().collect(),
            Kind::Service | Kind::EndpointSlice => Vec::new(),
        }
    }

    fn put(&mut self, kind: Kind, object: &Value, woken: &mut BTreeSet<Key>) {
        if let Some(name) = name_of(object) {
            self.take(kind, &name, Some(object), woken);
        }
    }

    /// An object is as it is now, or gone.
    fn take(
        &mut self,
        kind: Kind,
        name: &ObjectName,
        object: Option<&Value>,
        woken: &mut BTreeSet<Key>,
    ) {
        match kind {
            Kind::Certificate => {
                let after = object.and_then(CertificateObject::read).map(Arc::new);
                let before = replace(&mut self.certificates, name, after.clone());
                self.count_phase(before.as_deref(), -1);
                self.count_phase(after.as_deref(), 1);
                self.wake_for_certificate(name, before.as_deref(), after.as_deref(), woken);
            }
            Kind::CertificateAuthority => {
                let after = object.and_then(AuthorityObject::read).map(Arc::new);
                replace(&mut self.authorities, name, after);
                self.wake_authority(name, woken);
            }
            Kind::SigningPolicy => {
                let after = object.and_then(PolicyObject::read).map(Arc::new);
                let before = replace(&mut self.policies, name, after.clone());
                for policy in [before, after].into_iter().flatten() {
                    woken.insert(Key::Policies(policy.authority()));
                }
            }
            Kind::Config => {
                replace(&mut self.configs, name, object.and_then(ConfigObject::read));
                self.wake_namespace(&name.namespace, woken);
            }
            Kind::Server => {
                replace(&mut self.servers, name, object.and_then(ServerObject::read));
                self.wake_namespace(&name.namespace, woken);
            }
            Kind::Pool => {
                replace(&mut self.pools, name, object.and_then(PoolObject::read));
                self.wake_namespace(&name.namespace, woken);
            }
            Kind::Secret => {
                match object {
                    Some(_) => self.secrets.insert(name.clone()),
                    None => self.secrets.remove(name),
                };
                self.wake_for_secret(name, woken);
            }
            Kind::Service | Kind::EndpointSlice => {}
        }
    }

    fn wake_for_certificate(
        &self,
        name: &ObjectName,
        before: Option<&CertificateObject>,
        after: Option<&CertificateObject>,
        woken: &mut BTreeSet<Key>,
    ) {
        woken.insert(Key::Certificate(name.clone()));
        let certname = |it: Option<&CertificateObject>| it.map(|it| it.spec.certname.clone());
        let is_same_name = certname(before) == certname(after);
        for certificate in [before, after].into_iter().flatten() {
            let authority = certificate.authority();
            let is_own = name.name == format!("{}-operator-signing", authority.name);
            if is_own || before.is_none() || after.is_none() {
                woken.insert(Key::Authority(authority.clone()));
            }
            if is_own {
                woken.insert(Key::Policies(authority.clone()));
            }
            if is_same_name {
                continue;
            }
            let rivals = self.certificates_of(&authority).into_iter();
            let rivals = rivals.filter(|it| it.spec.certname == certificate.spec.certname);
            woken.extend(rivals.map(|it| Key::Certificate(it.meta.name.clone())));
        }
    }

    /// A CA has changed: it, its Certificates and its policies are concerned.
    fn wake_authority(&self, name: &ObjectName, woken: &mut BTreeSet<Key>) {
        woken.insert(Key::Authority(name.clone()));
        woken.insert(Key::Policies(name.clone()));
        let certificates = self.certificates_of(name).into_iter();
        woken.extend(certificates.map(|it| Key::Certificate(it.meta.name.clone())));
    }

    fn wake_namespace(&self, namespace: &str, woken: &mut BTreeSet<Key>) {
        let here = self
            .authorities
            .keys()
            .filter(|it| it.namespace == namespace);
        woken.extend(here.cloned().map(Key::Authority));
    }

    fn wake_for_secret(&self, name: &ObjectName, woken: &mut BTreeSet<Key>) {
        for suffix in ["-tls", "-tls-pending"] {
            let owner = name.name.strip_suffix(suffix).map(|it| name.beside(it));
            if let Some(owner) = owner.filter(|it| self.certificates.contains_key(it)) {
                woken.insert(Key::Certificate(owner));
            }
        }
        for (authority, object) in &self.authorities {
            if authority.namespace != name.namespace {
                continue;
            }
            let external = object.external.as_ref();
            let is_named = [
                external.and_then(|it| it.ca_secret.as_deref()),
                external.and_then(|it| it.tls_secret.as_deref()),
            ]
            .contains(&Some(name.name.as_str()));
            if is_named || name.name == format!("{}-ca", authority.name) {
                self.wake_authority(authority, woken);
            } else if ["ca-crl", "operator-signing-tls", "autosign-policy"]
                .iter()
                .any(|suffix| name.name == format!("{}-{suffix}", authority.name))
            {
                woken.insert(Key::Authority(authority.clone()));
                woken.insert(Key::Policies(authority.clone()));
            }
        }
        for policy in self.policies.values() {
            let is_here = policy.meta.name.namespace == name.namespace;
            if is_here && secrets_of(policy).any(|it| it == name.name) {
                woken.insert(Key::Policies(policy.authority()));
            }
        }
    }
}

/// The Secrets that a SigningPolicy takes values from.
fn secrets_of(policy: &PolicyObject) -> impl Iterator<Item = String> {
    let attributes = items(policy.spec.get("csrAttributes"));
    attributes.filter_map(|it| named(part(part(it, "valueFrom"), "secretKeyRef"), "name"))
}

fn replace<T>(all: &mut BTreeMap<ObjectName, T>, name: &ObjectName, after: Option<T>) -> Option<T> {
    match after {
        Some(after) => all.insert(name.clone(), after),
        None => all.remove(name),
    }
}

fn name_of(object: &Value) -> Option<ObjectName> {
    Meta::read(object).map(|meta| meta.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, spec: Value) -> Value {
        json!({"metadata": {"namespace": "ns", "name": name, "uid": name,
               "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec})
    }

    fn certificate(name: &str, certname: &str) -> Value {
        object(name, json!({"authorityRef": "ca", "certname": certname}))
    }

    fn filled() -> Index {
        let mut index = Index::default();
        index.apply(
            Kind::CertificateAuthority,
            None,
            Change::All(vec![
                object("ca", json!({})),
                object(
                    "far",
                    json!({"external": {"url": "https://x", "caSecretRef": "far-trust"}}),
                ),
            ]),
        );
        index.apply(
            Kind::Certificate,
            None,
            Change::All(vec![
                certificate("a", "web"),
                certificate("b", "db"),
                object("c", json!({"authorityRef": "far", "certname": "web"})),
            ]),
        );
        index.apply(Kind::SigningPolicy, None, Change::All(vec![object("p", json!({
            "certificateAuthorityRef": "ca",
            "csrAttributes": [{"name": "pp_preshared_key", "valueFrom": {"secretKeyRef": {"name": "psk", "key": "k"}}}],
        }))]));
        index
    }

    #[test]
    fn whoever_a_change_concerns_looks_again() {
        let secret = |name: &str| Change::Set(object(name, json!({})));
        for (case, kind, change, expected) in [
            (
                "a Certificate's Secret",
                Kind::Secret,
                secret("a-tls"),
                "certificate/ns/a",
            ),
            (
                "its pending one",
                Kind::Secret,
                secret("a-tls-pending"),
                "certificate/ns/a",
            ),
            ("somebody's Secret", Kind::Secret, secret("x-tls"), ""),
            (
                "a Secret of a policy",
                Kind::Secret,
                secret("psk"),
                "policies/ns/ca",
            ),
            (
                "what a CA is known by",
                Kind::Secret,
                secret("far-trust"),
                "certificate/ns/c authority/ns/far policies/ns/far",
            ),
            (
                "the CA's certificate",
                Kind::Secret,
                secret("ca-ca"),
                "certificate/ns/a certificate/ns/b authority/ns/ca policies/ns/ca",
            ),
            (
                "its list",
                Kind::Secret,
                secret("ca-ca-crl"),
                "authority/ns/ca policies/ns/ca",
            ),
            (
                "a CA",
                Kind::CertificateAuthority,
                Change::Set(object("ca", json!({"ttl": "1y"}))),
                "certificate/ns/a certificate/ns/b authority/ns/ca policies/ns/ca",
            ),
            (
                "a new Certificate of a name that is taken",
                Kind::Certificate,
                Change::Set(certificate("z", "web")),
                "certificate/ns/a certificate/ns/z authority/ns/ca",
            ),
            (
                "a name that is free again",
                Kind::Certificate,
                Change::Gone(certificate("b", "db")),
                "certificate/ns/b authority/ns/ca",
            ),
            (
                "a Config",
                Kind::Config,
                Change::Set(object("x", json!({}))),
                "authority/ns/ca authority/ns/far",
            ),
            (
                "a policy that moves",
                Kind::SigningPolicy,
                Change::Set(object("p", json!({"certificateAuthorityRef": "far"}))),
                "policies/ns/ca policies/ns/far",
            ),
        ] {
            let woken = filled().apply(kind, None, change);
            let woken: Vec<String> = woken.iter().map(Key::to_string).collect();
            assert_eq!(woken.join(" "), expected, "{case}");
            for key in woken {
                assert_eq!(Key::parse(&key).unwrap().to_string(), key);
            }
        }
    }

    #[test]
    fn the_first_certificate_of_a_name_has_it() {
        let mut index = filled();
        let mut later = certificate("aa", "web");
        later["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
        index.apply(Kind::Certificate, None, Change::Set(later));
        let rival = |index: &Index, name: &str| {
            let certificate = index.certificate(&ObjectName::new("ns", name)).unwrap();
            index.rival(&certificate).map(|it| it.name)
        };
        assert_eq!(rival(&index, "a"), None);
        assert_eq!(rival(&index, "aa").as_deref(), Some("a"));
        assert_eq!(rival(&index, "c"), None, "it is another CA's");
        index.apply(
            Kind::Certificate,
            None,
            Change::Gone(certificate("a", "web")),
        );
        assert_eq!(rival(&index, "aa"), None);
    }

    #[test]
    fn of_two_cas_of_one_name_one_has_the_usual_name_of_the_operator() {
        let ca = |namespace: &str, created: &str, spec: Value| {
            json!({"metadata": {"namespace": namespace, "name": "ca", "uid": namespace,
                   "creationTimestamp": format!("2026-01-0{created}T00:00:00Z")}, "spec": spec})
        };
        let own = |namespace: &str, obtained: &str| {
            json!({
                "metadata": {
                    "namespace": namespace, "name": "ca-operator-signing",
                    "annotations": {"countersign.dev/obtained": format!("{obtained}/abc")},
                    "ownerReferences": [{"kind": "CertificateAuthority", "name": "ca",
                                         "uid": namespace, "controller": true}],
                },
                "spec": {"authorityRef": "ca", "certname": obtained},
            })
        };
        let internal = || json!({});
        let external = || json!({"external": {"url": "https://x"}});
        for (case, objects, certificates, expected) in [
            (
                "alone",
                vec![ca("b", "2", internal())],
                vec![],
                "ca-operator",
            ),
            (
                "the first",
                vec![ca("b", "1", internal()), ca("a", "2", internal())],
                vec![],
                "ca-operator",
            ),
            (
                "the second",
                vec![ca("b", "2", internal()), ca("a", "1", internal())],
                vec![],
                "ca-operator.b",
            ),
            (
                "of the same second",
                vec![ca("b", "1", internal()), ca("a", "1", internal())],
                vec![],
                "ca-operator.b",
            ),
            (
                "the other one is external",
                vec![ca("b", "2", internal()), ca("a", "1", external())],
                vec![],
                "ca-operator",
            ),
            (
                "the second, which has obtained the usual name",
                vec![ca("b", "2", internal()), ca("a", "1", internal())],
                vec![own("b", "ca-operator")],
                "ca-operator",
            ),
            (
                "the first, and the second has it",
                vec![ca("b", "1", internal()), ca("a", "2", internal())],
                vec![own("a", "ca-operator")],
                "ca-operator.b",
            ),
            (
                "the second, and the first has gone meanwhile",
                vec![ca("b", "2", internal())],
                vec![own("b", "ca-operator.b")],
                "ca-operator.b",
            ),
            (
                "a new one, and the other has its own",
                vec![ca("b", "2", internal()), ca("a", "1", internal())],
                vec![own("a", "ca-operator.a")],
                "ca-operator",
            ),
        ] {
            let mut index = Index::default();
            let kind = Kind::CertificateAuthority;
            index.apply(kind, None, Change::All(objects));
            index.apply(Kind::Certificate, None, Change::All(certificates));
            let authority = index.authority(&ObjectName::new("b", "ca")).unwrap();
            assert_eq!(index.operator_certname(&authority), expected, "{case}");
        }
    }

    #[test]
    fn phases_are_counted() {
        let in_phase = |name: &str, phase: &str| {
            let mut object = certificate(name, name);
            object["status"] = json!({"phase": phase});
            object
        };
        let mut index = Index::default();
        let mut counted = |change: Change| {
            index.apply(Kind::Certificate, None, change);
            let phases = index.phases().iter();
            let phases: Vec<String> = phases.map(|(phase, it)| format!("{phase} {it}")).collect();
            phases.join(" ")
        };
        let all = vec![
            in_phase("a", "Signed"),
            in_phase("b", "Signed"),
            in_phase("c", "Error"),
        ];
        assert_eq!(counted(Change::All(all)), "Error 1 Signed 2");
        let changed = in_phase("a", "Renewing");
        assert_eq!(counted(Change::Set(changed)), "Error 1 Renewing 1 Signed 1");
        assert_eq!(
            counted(Change::Gone(in_phase("b", "Signed"))),
            "Error 1 Renewing 1"
        );
        let all = vec![in_phase("c", "Signed")];
        assert_eq!(counted(Change::All(all)), "Signed 1");
    }

    #[test]
    fn what_a_new_list_lacks_is_gone() {
        let mut index = filled();
        let woken = index.apply(
            Kind::Certificate,
            None,
            Change::All(vec![certificate("b", "db")]),
        );
        assert!(index.certificate(&ObjectName::new("ns", "a")).is_none());
        assert!(woken.contains(&Key::Certificate(ObjectName::new("ns", "a"))));
    }
}

//! The names that expressions may use, and what kind of value is behind each.

use countersign_pki::oid;

use crate::nearest;

/// One name: a dotted path from one of the roots.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// As it is written.
    pub(super) path: &'static str,
    /// What is behind it.
    pub(super) kind: Kind,
    /// Which fact it is.
    pub(super) fact: Fact,
}

/// The kinds of values behind names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something that has fields and is never null.
    Object,
    /// Something that has fields, or null.
    MaybeObject,
    /// True or false.
    Bool,
    /// A whole number.
    Int,
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// Texts by name.
    TextMap,
    /// Lists of texts by name.
    TextsMap,
    /// A time.
    Time,
    /// A time, or null.
    MaybeTime,
}

/// The facts behind the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Request,
    Door,
    Signer,
    CommonName,
    Subject,
    Organization,
    OrganizationalUnit,
    DnsNames,
    IpAddresses,
    Emails,
    Uris,
    Usages,
    ExpirationSeconds,
    Extensions,
    KeyType,
    KeySize,
    SourceAddress,
    Created,
    Renewal,
    Requester,
    Username,
    Groups,
    Uid,
    Extra,
    Certname,
    Anonymous,
    Machine,
    MachineName,
    MachineAddresses,
    MachineSerial,
    MachineUuid,
    MachineInstanceId,
    MachineProvider,
    MachineRole,
    MachineNotBefore,
    MachineNotAfter,
    MachineEnrolled,
    Ledger,
    Certificate,
    CertificateSerial,
    CertificateNotAfter,
    CertificateSameKey,
    Revoked,
    RevokedSerial,
    RevokedTime,
    RevokedReason,
    Pod,
    PodNamespace,
    PodName,
    PodUid,
    PodServiceAccount,
    PodNode,
    PodLabels,
    PodAnnotations,
    Now,
}

impl Name {
    /// The name with this path.
    pub(super) fn find(path: &str) -> Option<&'static Self> {
        NAMES.iter().find(|name| name.path == path)
    }

    /// The name of one of its fields.
    pub(super) fn field(&self, field: &str) -> Option<&'static Self> {
        NAMES
            .iter()
            .find(|name| self.field_part(name) == Some(field))
    }

    /// The names of its fields, without the path.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().filter_map(|name| self.field_part(name))
    }

    /// The names that stand alone.
    pub(super) fn roots() -> impl Iterator<Item = &'static str> {
        let paths = NAMES.iter().map(|name| name.path);
        paths.filter(|path| !path.contains('.'))
    }

    fn field_part(&self, name: &'static Name) -> Option<&'static str> {
        let field = name.path.strip_prefix(self.path)?.strip_prefix('.')?;
        (!field.contains('.')).then_some(field)
    }

    /// Whether the inventory must be asked for it.
    pub(super) fn needs_machine(&self) -> bool {
        self.path == "machine" || self.path.starts_with("machine.")
    }

    /// Whether the ledger must be asked for it.
    pub(super) fn needs_ledger(&self) -> bool {
        self.path == "ledger" || self.path.starts_with("ledger.")
    }
}

/// Why `request.extensions` never has this key, and what to write instead; `None` where it may have it.
pub(super) fn impossible_extension(key: &str) -> Option<String> {
    let by_oid = oid::Oid::parse(key).ok();
    let by_name = oid::registered_oid(key);
    if by_oid.or(by_name) == Some(oid::PP_PRESHARED_KEY) {
        return Some("pp_preshared_key holds a secret, which expressions never see".to_owned());
    }
    if let Some(short) = by_oid.as_ref().and_then(oid::registered_name) {
        return Some(format!(
            "the extension {key} goes by its short name here: {short:?}"
        ));
    }
    if by_oid.is_some() || by_name.is_some() {
        return None;
    }
    let hint = match nearest(key, oid::registered_names()) {
        Some(near) => format!("did you mean {near}?"),
        None => "use a short name such as pp_role, or a dotted OID in brackets".to_owned(),
    };
    Some(format!("no extension is called {key:?}; {hint}"))
}

const fn name(path: &'static str, kind: Kind, fact: Fact) -> Name {
    Name { path, kind, fact }
}

static NAMES: [Name; 55] = [
    name("request", Kind::Object, Fact::Request),
    name("request.door", Kind::Text, Fact::Door),
    name("request.signer", Kind::Text, Fact::Signer),
    name("request.commonName", Kind::Text, Fact::CommonName),
    name("request.subject", Kind::Text, Fact::Subject),
    name("request.organization", Kind::Texts, Fact::Organization),
    name(
        "request.organizationalUnit",
        Kind::Texts,
        Fact::OrganizationalUnit,
    ),
    name("request.dnsNames", Kind::Texts, Fact::DnsNames),
    name("request.ipAddresses", Kind::Texts, Fact::IpAddresses),
    name("request.emails", Kind::Texts, Fact::Emails),
    name("request.uris", Kind::Texts, Fact::Uris),
    name("request.usages", Kind::Texts, Fact::Usages),
    name(
        "request.expirationSeconds",
        Kind::Int,
        Fact::ExpirationSeconds,
    ),
    name("request.extensions", Kind::TextMap, Fact::Extensions),
    name("request.keyType", Kind::Text, Fact::KeyType),
    name("request.keySize", Kind::Int, Fact::KeySize),
    name("request.sourceAddress", Kind::Text, Fact::SourceAddress),
    name("request.created", Kind::Time, Fact::Created),
    name("request.renewal", Kind::Bool, Fact::Renewal),
    name("requester", Kind::Object, Fact::Requester),
    name("requester.username", Kind::Text, Fact::Username),
    name("requester.groups", Kind::Texts, Fact::Groups),
    name("requester.uid", Kind::Text, Fact::Uid),
    name("requester.extra", Kind::TextsMap, Fact::Extra),
    name("requester.certname", Kind::Text, Fact::Certname),
    name("requester.anonymous", Kind::Bool, Fact::Anonymous),
    name("machine", Kind::MaybeObject, Fact::Machine),
    name("machine.name", Kind::Text, Fact::MachineName),
    name("machine.addresses", Kind::Texts, Fact::MachineAddresses),
    name("machine.serial", Kind::Text, Fact::MachineSerial),
    name("machine.uuid", Kind::Text, Fact::MachineUuid),
    name("machine.instanceId", Kind::Text, Fact::MachineInstanceId),
    name("machine.provider", Kind::Text, Fact::MachineProvider),
    name("machine.role", Kind::Text, Fact::MachineRole),
    name("machine.notBefore", Kind::MaybeTime, Fact::MachineNotBefore),
    name("machine.notAfter", Kind::MaybeTime, Fact::MachineNotAfter),
    name("machine.enrolled", Kind::Bool, Fact::MachineEnrolled),
    name("ledger", Kind::Object, Fact::Ledger),
    name("ledger.certificate", Kind::MaybeObject, Fact::Certificate),
    name(
        "ledger.certificate.serial",
        Kind::Text,
        Fact::CertificateSerial,
    ),
    name(
        "ledger.certificate.notAfter",
        Kind::Time,
        Fact::CertificateNotAfter,
    ),
    name(
        "ledger.certificate.sameKey",
        Kind::Bool,
        Fact::CertificateSameKey,
    ),
    name("ledger.revoked", Kind::MaybeObject, Fact::Revoked),
    name("ledger.revoked.serial", Kind::Text, Fact::RevokedSerial),
    name("ledger.revoked.time", Kind::Time, Fact::RevokedTime),
    name("ledger.revoked.reason", Kind::Text, Fact::RevokedReason),
    name("pod", Kind::MaybeObject, Fact::Pod),
    name("pod.namespace", Kind::Text, Fact::PodNamespace),
    name("pod.name", Kind::Text, Fact::PodName),
    name("pod.uid", Kind::Text, Fact::PodUid),
    name("pod.serviceAccount", Kind::Text, Fact::PodServiceAccount),
    name("pod.node", Kind::Text, Fact::PodNode),
    name("pod.labels", Kind::TextMap, Fact::PodLabels),
    name("pod.annotations", Kind::TextMap, Fact::PodAnnotations),
    name("now", Kind::Time, Fact::Now),
];

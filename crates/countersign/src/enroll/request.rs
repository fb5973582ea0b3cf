//! The PKCS#10 request: name, further names, attributes, extensions and, where the door wants it there, the token.

use anyhow::{Context as _, Result, ensure};
use countersign_keys::{LeafKey, RequestFault};
use countersign_pki::{
    AltName, Attribute, CheckedCsr, CsrLimits, StringKind, SubjectBuilder, ext, oid, pem,
};
use zeroize::Zeroizing;

use super::attributes::Extras;
use super::token::Token;

/// What is asked for.
pub(super) struct Wishes {
    pub(super) name: String,
    pub(super) organizations: Vec<String>,
    pub(super) alt_names: Vec<AltName>,
    pub(super) extras: Extras,
    /// Whether the authority is told that we will renew.
    pub(super) will_renew: bool,
}

impl Wishes {
    /// The request, PEM, checked by the parser that judges everybody's.
    pub(super) fn request(
        &self,
        key: &LeafKey,
        token: Option<&Token>,
    ) -> Result<Zeroizing<String>> {
        let subject = self
            .organizations
            .iter()
            .fold(SubjectBuilder::new(), |subject, organization| {
                subject.push(oid::ORGANIZATION, organization, StringKind::Utf8)
            });
        let subject = subject
            .push(oid::COMMON_NAME, &self.name, StringKind::Utf8)
            .build();
        let mut extensions = self.extras.extensions();
        if !self.alt_names.is_empty() {
            extensions.push(ext::subject_alt_name(&self.names(), false));
        }
        let mut attributes = self.extras.attributes();
        if let Some(token) = token {
            ensure!(
                !self.extras.has_password(),
                "there are two passwords: one in --csr-attributes and the enrolment token; leave one out"
            );
            let password = Attribute::of_text(oid::CHALLENGE_PASSWORD, token.expose());
            attributes.push(password);
        }
        let says_so = |one: &Attribute| one.oid == oid::PP_AUTH_AUTO_RENEW;
        if self.will_renew && !attributes.iter().any(says_so) {
            attributes.push(Attribute::of_text(oid::PP_AUTH_AUTO_RENEW, "true"));
        }
        let der = key.signed_request(&subject, &extensions, &attributes)?;
        let der = Zeroizing::new(der);
        CheckedCsr::check(&der, &CsrLimits::STANDARD)
            .map_err(|source| RequestFault::Refused { source })
            .with_context(|| format!("no certificate can be asked for {}", self.name))?;
        Ok(Zeroizing::new(pem::encode("CERTIFICATE REQUEST", &der)))
    }

    /// The name itself is among them: clients that find any look at nothing else (RFC 6125 6.4.4).
    fn names(&self) -> Vec<AltName> {
        let own = AltName::Dns(self.name.clone());
        let mut names = self.alt_names.clone();
        if !names.contains(&own) {
            names.push(own);
        }
        names
    }
}

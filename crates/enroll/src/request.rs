//! The PKCS#10 request: name, further names, attributes, extensions and, where the door wants it there, the token.

use countersign_pki::{
    AltName, Attribute, CheckedCsr, CsrLimits, StringKind, SubjectBuilder, ext, oid, pem,
};
use countersign_private_keys::{LeafKey, RequestFault};
use zeroize::Zeroizing;

use crate::attributes::Extras;
use crate::error::{EnrolError, Result, internal};
use crate::token::Token;

/// What is asked for.
pub struct Wishes {
    /// The name to enrol under.
    pub name: String,
    /// Organizations in the subject.
    pub organizations: Vec<String>,
    /// Further names.
    pub alt_names: Vec<AltName>,
    /// Attributes and extensions.
    pub extras: Extras,
    /// Whether the authority is told that we will renew.
    pub will_renew: bool,
}

impl Wishes {
    /// The request, PEM, checked by the parser that judges everybody's.
    pub(crate) fn request(
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
            if self.extras.has_password() {
                let what = "there are two passwords: one in --csr-attributes and the enrolment token; leave one out";
                return Err(EnrolError::Arguments(what.to_owned(), None));
            }
            let password = Attribute::of_text(oid::CHALLENGE_PASSWORD, token.expose());
            attributes.push(password);
        }
        let says_so = |one: &Attribute| one.oid == oid::PP_AUTH_AUTO_RENEW;
        if self.will_renew && !attributes.iter().any(says_so) {
            attributes.push(Attribute::of_text(oid::PP_AUTH_AUTO_RENEW, "true"));
        }
        let der = key.signed_request(&subject, &extensions, &attributes);
        let der = Zeroizing::new(der.map_err(internal)?);
        CheckedCsr::check(&der, &CsrLimits::STANDARD).map_err(|source| {
            let what = format!("no certificate can be asked for {}", self.name);
            EnrolError::Arguments(what, Some(RequestFault::Refused { source }.into()))
        })?;
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

//! What profiles are made from: two kinds of certificates, of which a signer changes what it wants otherwise.

use super::{
    AltNameRule, AuthorityKeyId, ExtensionRule, Lifetime, NameBounds, NameKinds, NameSettings,
    OtherNames, Profile, SubjectBounds, SubjectRule, UsageRule,
};

impl Profile {
    /// A certificate for the request's name at its door and no other, to be a TLS server and client with.
    pub fn for_names(lifetime: Lifetime) -> Self {
        Self {
            subject: SubjectRule::KeyAsCommonName,
            alt_names: AltNameRule::OwnName {
                others: OtherNames::Refused,
            },
            usages: UsageRule::ServerAndClient,
            subject_key_id: true,
            authority_key_id: AuthorityKeyId::Always,
            ..Self::for_subjects(lifetime)
        }
    }

    /// A certificate for the subject and the alternative names that are asked for. No usage is permitted yet.
    pub fn for_subjects(lifetime: Lifetime) -> Self {
        Self {
            subject: SubjectRule::Rebuilt,
            subjects: SubjectBounds::default(),
            refused_organizations: &[],
            alt_names: AltNameRule::Kinds(NameKinds::ALL),
            names: NameBounds::default(),
            name_settings: NameSettings::default(),
            extensions: ExtensionRule::Dropped,
            usages: UsageRule::Asked {
                required: Vec::new(),
                permitted: Vec::new(),
            },
            lifetime,
            subject_key_id: false,
            authority_key_id: AuthorityKeyId::FromIssuer,
            comment: None,
            added: Vec::new(),
            withheld: Vec::new(),
            order: &[],
        }
    }

    /// The same with certificates that live so many seconds, unless a request asks for less.
    #[must_use]
    pub fn with_longest_life(mut self, seconds: u64) -> Self {
        self.lifetime.default = seconds;
        self.lifetime.maximum = seconds;
        self
    }
}

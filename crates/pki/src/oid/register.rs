//! The identifiers we know, and the short names Puppet gave to some of them.

use super::Oid;

/// The short name Puppet registered for an identifier, if it did.
#[must_use]
pub fn registered_name(oid: &Oid) -> Option<&'static str> {
    REGISTERED_NAMES
        .iter()
        .find(|(_, known)| known == oid)
        .map(|(name, _)| *name)
}

/// The identifier behind one of Puppet's registered short names.
#[must_use]
pub fn registered_oid(name: &str) -> Option<Oid> {
    REGISTERED_NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, oid)| *oid)
}

/// The short names Puppet registered.
pub fn registered_names() -> impl Iterator<Item = &'static str> {
    REGISTERED_NAMES.into_iter().map(|(name, _)| name)
}

macro_rules! oids {
    ($($(#[$doc:meta])* $name:ident = [$($arc:literal),+];)+) => {
        $($(#[$doc])* pub const $name: Oid = Oid::from_arcs(&[$($arc),+]);)+
    };
}

// Puppet, registered under Puppet Labs' enterprise number.
oids! {
    /// Registered extensions, copied into certificates.
    PP_REG = [1, 3, 6, 1, 4, 1, 34380, 1, 1];
    /// A site's private extensions, copied into certificates.
    PP_PRIV = [1, 3, 6, 1, 4, 1, 34380, 1, 2];
    /// Extensions that grant rights.
    PP_AUTH = [1, 3, 6, 1, 4, 1, 34380, 1, 3];
    /// A secret known before enrolment, carried as an extension.
    PP_PRESHARED_KEY = [1, 3, 6, 1, 4, 1, 34380, 1, 1, 4];
    /// The attribute by which an agent says that it can renew.
    PP_AUTH_AUTO_RENEW = [1, 3, 6, 1, 4, 1, 34380, 1, 3, 2];
    /// Marks an administrator of the authority.
    PP_CLI_AUTH = [1, 3, 6, 1, 4, 1, 34380, 1, 3, 39];
}

// PKCS#9 attributes (RFC 2985) and their Microsoft relative.
oids! {
    /// Requested extensions.
    EXTENSION_REQUEST = [1, 2, 840, 113549, 1, 9, 14];
    /// Microsoft's variant of the same, which nobody but Microsoft reads.
    MICROSOFT_EXTENSION_REQUEST = [1, 3, 6, 1, 4, 1, 311, 2, 1, 14];
    /// A password for the authority.
    CHALLENGE_PASSWORD = [1, 2, 840, 113549, 1, 9, 7];
    /// An informal name.
    UNSTRUCTURED_NAME = [1, 2, 840, 113549, 1, 9, 2];
}

// Attributes of names (X.520, RFC 4519, RFC 2985).
oids! {
    /// CN
    COMMON_NAME = [2, 5, 4, 3];
    /// SN, the family name
    SURNAME = [2, 5, 4, 4];
    /// serialNumber of a device
    SERIAL_NUMBER = [2, 5, 4, 5];
    /// C
    COUNTRY = [2, 5, 4, 6];
    /// L
    LOCALITY = [2, 5, 4, 7];
    /// ST
    STATE = [2, 5, 4, 8];
    /// street
    STREET = [2, 5, 4, 9];
    /// O
    ORGANIZATION = [2, 5, 4, 10];
    /// OU
    ORGANIZATIONAL_UNIT = [2, 5, 4, 11];
    /// title
    TITLE = [2, 5, 4, 12];
    /// postalCode
    POSTAL_CODE = [2, 5, 4, 17];
    /// givenName
    GIVEN_NAME = [2, 5, 4, 42];
    /// DC
    DOMAIN_COMPONENT = [0, 9, 2342, 19200300, 100, 1, 25];
    /// UID
    USER_ID = [0, 9, 2342, 19200300, 100, 1, 1];
    /// emailAddress
    EMAIL_ADDRESS = [1, 2, 840, 113549, 1, 9, 1];
}

// Extensions (RFC 5280 4.2 and 5.2, Netscape).
oids! {
    /// The arc of the standard's own extensions, id-ce.
    CERTIFICATE_EXTENSIONS = [2, 5, 29];
    /// The arc of the internet's private extensions, id-pe: access to the authority's information and the like.
    PRIVATE_EXTENSIONS = [1, 3, 6, 1, 5, 5, 7, 1];
    /// subjectKeyIdentifier
    SUBJECT_KEY_IDENTIFIER = [2, 5, 29, 14];
    /// keyUsage
    KEY_USAGE = [2, 5, 29, 15];
    /// subjectAltName
    SUBJECT_ALT_NAME = [2, 5, 29, 17];
    /// basicConstraints
    BASIC_CONSTRAINTS = [2, 5, 29, 19];
    /// cRLNumber
    CRL_NUMBER = [2, 5, 29, 20];
    /// reasonCode of a revoked entry
    REASON_CODE = [2, 5, 29, 21];
    /// deltaCRLIndicator
    DELTA_CRL_INDICATOR = [2, 5, 29, 27];
    /// issuingDistributionPoint
    ISSUING_DISTRIBUTION_POINT = [2, 5, 29, 28];
    /// nameConstraints
    NAME_CONSTRAINTS = [2, 5, 29, 30];
    /// authorityKeyIdentifier
    AUTHORITY_KEY_IDENTIFIER = [2, 5, 29, 35];
    /// extKeyUsage
    EXTENDED_KEY_USAGE = [2, 5, 29, 37];
    /// nsComment
    NS_COMMENT = [2, 16, 840, 1, 113730, 1, 13];
}

// Extended key usages (RFC 5280 4.2.1.12 and vendors).
oids! {
    /// any purpose
    EKU_ANY = [2, 5, 29, 37, 0];
    /// TLS server
    EKU_SERVER_AUTH = [1, 3, 6, 1, 5, 5, 7, 3, 1];
    /// TLS client
    EKU_CLIENT_AUTH = [1, 3, 6, 1, 5, 5, 7, 3, 2];
    /// code signing
    EKU_CODE_SIGNING = [1, 3, 6, 1, 5, 5, 7, 3, 3];
    /// e-mail protection
    EKU_EMAIL_PROTECTION = [1, 3, 6, 1, 5, 5, 7, 3, 4];
    /// IPsec end system
    EKU_IPSEC_END_SYSTEM = [1, 3, 6, 1, 5, 5, 7, 3, 5];
    /// IPsec tunnel
    EKU_IPSEC_TUNNEL = [1, 3, 6, 1, 5, 5, 7, 3, 6];
    /// IPsec user
    EKU_IPSEC_USER = [1, 3, 6, 1, 5, 5, 7, 3, 7];
    /// time stamping
    EKU_TIME_STAMPING = [1, 3, 6, 1, 5, 5, 7, 3, 8];
    /// OCSP signing
    EKU_OCSP_SIGNING = [1, 3, 6, 1, 5, 5, 7, 3, 9];
    /// Microsoft server gated crypto
    EKU_MICROSOFT_SGC = [1, 3, 6, 1, 4, 1, 311, 10, 3, 3];
    /// Netscape server gated crypto
    EKU_NETSCAPE_SGC = [2, 16, 840, 1, 113730, 4, 1];
}

// Algorithms (RFC 4055, RFC 5480, RFC 5758, RFC 8410) and the ones refused by name.
oids! {
    /// RSA keys
    RSA_ENCRYPTION = [1, 2, 840, 113549, 1, 1, 1];
    /// RSASSA-PSS
    RSASSA_PSS = [1, 2, 840, 113549, 1, 1, 10];
    /// mask generation function 1
    MGF1 = [1, 2, 840, 113549, 1, 1, 8];
    /// RSA PKCS#1 v1.5 with MD2
    MD2_WITH_RSA = [1, 2, 840, 113549, 1, 1, 2];
    /// RSA PKCS#1 v1.5 with MD5
    MD5_WITH_RSA = [1, 2, 840, 113549, 1, 1, 4];
    /// RSA PKCS#1 v1.5 with SHA-1
    SHA1_WITH_RSA = [1, 2, 840, 113549, 1, 1, 5];
    /// RSA PKCS#1 v1.5 with SHA-256
    SHA256_WITH_RSA = [1, 2, 840, 113549, 1, 1, 11];
    /// RSA PKCS#1 v1.5 with SHA-384
    SHA384_WITH_RSA = [1, 2, 840, 113549, 1, 1, 12];
    /// RSA PKCS#1 v1.5 with SHA-512
    SHA512_WITH_RSA = [1, 2, 840, 113549, 1, 1, 13];
    /// SHA-1 with RSA, the OIW name
    OIW_SHA1_WITH_RSA = [1, 3, 14, 3, 2, 29];
    /// SHA-1
    SHA1 = [1, 3, 14, 3, 2, 26];
    /// SHA-256
    SHA256 = [2, 16, 840, 1, 101, 3, 4, 2, 1];
    /// SHA-384
    SHA384 = [2, 16, 840, 1, 101, 3, 4, 2, 2];
    /// SHA-512
    SHA512 = [2, 16, 840, 1, 101, 3, 4, 2, 3];
    /// elliptic curve keys
    EC_PUBLIC_KEY = [1, 2, 840, 10045, 2, 1];
    /// NIST P-256
    P256 = [1, 2, 840, 10045, 3, 1, 7];
    /// NIST P-384
    P384 = [1, 3, 132, 0, 34];
    /// NIST P-521
    P521 = [1, 3, 132, 0, 35];
    /// ECDSA with SHA-1
    ECDSA_WITH_SHA1 = [1, 2, 840, 10045, 4, 1];
    /// ECDSA with SHA-224
    ECDSA_WITH_SHA224 = [1, 2, 840, 10045, 4, 3, 1];
    /// ECDSA with SHA-256
    ECDSA_WITH_SHA256 = [1, 2, 840, 10045, 4, 3, 2];
    /// ECDSA with SHA-384
    ECDSA_WITH_SHA384 = [1, 2, 840, 10045, 4, 3, 3];
    /// ECDSA with SHA-512
    ECDSA_WITH_SHA512 = [1, 2, 840, 10045, 4, 3, 4];
    /// Ed25519
    ED25519 = [1, 3, 101, 112];
    /// Ed448
    ED448 = [1, 3, 101, 113];
    /// DSA keys
    DSA = [1, 2, 840, 10040, 4, 1];
    /// DSA with SHA-1
    DSA_WITH_SHA1 = [1, 2, 840, 10040, 4, 3];
    /// DSA with SHA-256
    DSA_WITH_SHA256 = [2, 16, 840, 1, 101, 3, 4, 3, 2];
}

/// Puppet's registered names (`lib/puppet/ssl/oids.rb`), extensions and attributes alike.
const REGISTERED_NAMES: [(&str, Oid); 30] = [
    ("pp_uuid", pp_reg(1)),
    ("pp_instance_id", pp_reg(2)),
    ("pp_image_name", pp_reg(3)),
    ("pp_preshared_key", pp_reg(4)),
    ("pp_cost_center", pp_reg(5)),
    ("pp_product", pp_reg(6)),
    ("pp_project", pp_reg(7)),
    ("pp_application", pp_reg(8)),
    ("pp_service", pp_reg(9)),
    ("pp_employee", pp_reg(10)),
    ("pp_created_by", pp_reg(11)),
    ("pp_environment", pp_reg(12)),
    ("pp_role", pp_reg(13)),
    ("pp_software_version", pp_reg(14)),
    ("pp_department", pp_reg(15)),
    ("pp_cluster", pp_reg(16)),
    ("pp_provisioner", pp_reg(17)),
    ("pp_region", pp_reg(18)),
    ("pp_datacenter", pp_reg(19)),
    ("pp_zone", pp_reg(20)),
    ("pp_network", pp_reg(21)),
    ("pp_securitypolicy", pp_reg(22)),
    ("pp_cloudplatform", pp_reg(23)),
    ("pp_apptier", pp_reg(24)),
    ("pp_hostname", pp_reg(25)),
    ("pp_owner", pp_reg(26)),
    ("pp_authorization", pp_auth(1)),
    ("pp_auth_auto_renew", PP_AUTH_AUTO_RENEW),
    ("pp_auth_role", pp_auth(13)),
    ("pp_cli_auth", PP_CLI_AUTH),
];

const fn pp_reg(number: u32) -> Oid {
    Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, number])
}

const fn pp_auth(number: u32) -> Oid {
    Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 3, number])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_names_go_both_ways() {
        for (name, oid) in REGISTERED_NAMES {
            assert_eq!(registered_name(&oid), Some(name));
            assert_eq!(registered_oid(name), Some(oid));
        }
        assert_eq!(registered_name(&PP_REG), None);
    }
}

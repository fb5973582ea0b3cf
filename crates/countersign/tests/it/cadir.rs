//! CA directories as a Puppet Server leaves them, made by the test: whole ones, large ones and damaged ones.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use countersign_pki::{
    AltName, CertificateTemplate, CrlTemplate, Extension, KeyUsage, RevocationReason, RevokedEntry,
    Serial, SubjectBuilder, UnixTime, ext, oid, pem, seal,
};
use countersign_testkit::keys::{self, Key};

use crate::site::puppet_request;

/// A self-signed authority, as a server makes it at its first start.
pub(crate) struct Cadir {
    pub(crate) folder: PathBuf,
    key: &'static Key,
    inventory: String,
    next: u64,
}

impl Cadir {
    pub(crate) fn new(folder: &Path) -> Self {
        Self::with_key(folder, keys::rsa2048_a())
    }

    pub(crate) fn with_key(folder: &Path, key: &'static Key) -> Self {
        for name in ["signed", "requests"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let mut cadir = Self {
            folder: folder.to_owned(),
            key,
            inventory: String::new(),
            next: 1,
        };
        let extensions = [
            ext::basic_constraints_ca(),
            ext::key_usage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN),
            ext::subject_key_id(key.spki_der()).unwrap(),
        ];
        let ca = cadir.certificate(CA_NAME, key.spki_der(), &extensions, YEARS);
        cadir.write("ca_crt.pem", &pem::encode("CERTIFICATE", &ca));
        cadir.write("ca_key.pem", key.pkcs8_pem());
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(folder.join("ca_key.pem"), mode).unwrap();
        cadir
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::write(self.folder.join(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }

    /// Issues a certificate: a line of the inventory, and a file in place of the one before.
    pub(crate) fn issue(&mut self, name: &str) -> u64 {
        self.issue_with(name, &[])
    }

    /// The same for an administrator.
    pub(crate) fn issue_admin(&mut self, name: &str) -> u64 {
        self.issue_with(
            name,
            &[ext::utf8_extension(oid::PP_CLI_AUTH, "true", false)],
        )
    }

    fn issue_with(&mut self, name: &str, more: &[Extension]) -> u64 {
        let serial = self.next;
        let mut extensions = vec![
            ext::basic_constraints_leaf(),
            ext::extended_key_usage(&[oid::EKU_SERVER_AUTH, oid::EKU_CLIENT_AUTH]),
            ext::subject_alt_name(&[AltName::Dns(name.to_owned())], false),
        ];
        extensions.extend_from_slice(more);
        let key = keys::p256_a().spki_der();
        let der = self.certificate(name, key, &extensions, YEARS);
        self.write(
            &format!("signed/{name}.pem"),
            &pem::encode("CERTIFICATE", &der),
        );
        serial
    }

    /// A line of a certificate that left no file, ended long ago or not.
    pub(crate) fn line(&mut self, name: &str, end: UnixTime) -> u64 {
        let serial = self.next;
        let text = |time: UnixTime| time.to_string().replace('Z', "UTC");
        let (begin, end) = (text(BEGIN), text(end));
        writeln!(self.inventory, "0x{serial:04X} {begin} {end} /CN={name}").unwrap();
        self.next += 1;
        serial
    }

    /// A serial of which nothing is left.
    pub(crate) fn skip(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// A line as it is.
    pub(crate) fn raw_line(&mut self, line: &str) {
        writeln!(self.inventory, "{line}").unwrap();
    }

    pub(crate) fn request(&self, name: &str) {
        self.write(&format!("requests/{name}.pem"), &puppet_request(name));
    }

    /// Writes what remains: the inventory, the next serial and a CRL.
    pub(crate) fn finish(&self, revoked: &[u64], number: u64) {
        self.write("inventory.txt", &self.inventory);
        self.write("serial", &format!("{:04X}", self.next));
        let entries: Vec<RevokedEntry> = revoked
            .iter()
            .map(|serial| RevokedEntry {
                serial: Serial::try_from(*serial).unwrap(),
                at: REVOKED_AT,
                reason: RevocationReason::KeyCompromise,
            })
            .collect();
        let algorithm = self.key.issuer_algorithm().unwrap();
        let template = CrlTemplate {
            algorithm,
            issuer_name_der: &SubjectBuilder::utf8_common_name(CA_NAME),
            this_update: REVOKED_AT,
            next_update: YEARS,
            number,
            authority_key_id: &ext::key_id(self.key.spki_der()).unwrap(),
            entries: &entries,
        };
        let text = template.to_be_signed().unwrap();
        let der = seal(&text, algorithm, &self.key.sign(&text)).unwrap();
        self.write("ca_crl.pem", &pem::encode("X509 CRL", &der));
    }

    fn certificate(
        &mut self,
        name: &str,
        spki_der: &[u8],
        extensions: &[Extension],
        end: UnixTime,
    ) -> Vec<u8> {
        let algorithm = self.key.issuer_algorithm().unwrap();
        let serial = self.line(name, end);
        let template = CertificateTemplate {
            serial: Serial::try_from(serial).unwrap(),
            algorithm,
            issuer_name_der: &SubjectBuilder::utf8_common_name(CA_NAME),
            not_before: BEGIN,
            not_after: end,
            subject_der: &SubjectBuilder::utf8_common_name(name),
            spki_der,
            extensions,
        };
        let text = template.to_be_signed().unwrap();
        seal(&text, algorithm, &self.key.sign(&text)).unwrap()
    }
}

pub(crate) const CA_NAME: &str = "Puppet CA: ca.example.com";
const BEGIN: UnixTime = UnixTime(1_700_000_000);
const REVOKED_AT: UnixTime = UnixTime(1_750_000_000);
/// Long before anybody runs the tests.
pub(crate) const PAST: UnixTime = UnixTime(1_710_000_000);
/// Long after.
pub(crate) const YEARS: UnixTime = UnixTime(4_000_000_000);

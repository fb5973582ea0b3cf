//! The real `puppetserver ca` of Debian 12, unmodified, with the administrator's credentials.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use countersign_testkit::counterparts::Counterpart;
use countersign_testkit::deadline::{Finished, run_with_deadline};

use crate::site::{Site, TEXT, puppet_request};

/// The command on the authority's own machine, as its administrator has it.
pub(crate) struct Administrator<'a> {
    site: &'a Site,
    config: PathBuf,
}

impl<'a> Administrator<'a> {
    pub(crate) fn of(site: &'a Site) -> Self {
        let folder = site.folder("puppetserver-ca");
        let config = folder.join("puppet.conf");
        let (data, port) = (site.data(), site.puppet().port());
        let (data, folder) = (data.display(), folder.display());
        let text = format!(
            "[main]\nssldir = {folder}/ssl\ncertname = countersign-admin\nca_server = localhost\nca_port = {port}\n\
             hostcert = {data}/admin/admin.pem\nhostprivkey = {data}/admin/admin-key.pem\n\
             localcacert = {data}/issuers/puppet/ca_crt.pem\nhostcrl = {data}/issuers/puppet/ca_crl.pem\n"
        );
        std::fs::write(&config, text).unwrap();
        Self { site, config }
    }

    fn run(&self, action: &str, arguments: &[&str]) -> Finished {
        let mut command = Command::new(Counterpart::PuppetserverCa.find().unwrap());
        command
            .arg(action)
            .arg("--config")
            .arg(&self.config)
            .args(arguments);
        command
            .env("HOME", self.site.folder("home"))
            .env("LC_ALL", "C.UTF-8");
        run_with_deadline(command, Duration::from_secs(60)).unwrap()
    }

    #[track_caller]
    pub(crate) fn expect(&self, action: &str, arguments: &[&str], code: i32, says: &str) {
        let finished = self.run(action, arguments);
        assert_eq!(
            finished.code,
            Some(code),
            "{action} {arguments:?}: {finished}"
        );
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(said.contains(says), "{action} {arguments:?}: {finished}");
    }
}

fn ask(site: &Site, name: &str) -> u16 {
    let path = format!("/puppet-ca/v1/certificate_request/{name}");
    site.anonymous()
        .call("PUT", &path, &[TEXT], puppet_request(name).as_bytes())
        .unwrap()
        .status
}

#[test]
fn list_sign_revoke_and_clean_work_as_against_puppet_server() {
    let site = Site::start(&[]);
    let admin = Administrator::of(&site);
    admin.expect("list", &[], 0, "No certificates to list");
    for name in ["web01", "web02", "web03"] {
        assert_eq!(ask(&site, name), 200);
    }
    admin.expect("list", &[], 0, "Requested Certificates:");
    admin.expect(
        "list",
        &["--certname", "web01,nobody"],
        1,
        "Missing Certificates:",
    );
    admin.expect(
        "sign",
        &["--certname", "web01"],
        0,
        "Successfully signed certificate request for web01",
    );
    admin.expect(
        "sign",
        &["--certname", "web01"],
        1,
        "without a certificate request",
    );
    admin.expect("sign", &["--all"], 0, "web03");
    admin.expect("sign", &["--all"], 24, "No waiting certificate requests");
    admin.expect("list", &["--all"], 0, "Signed Certificates:");

    admin.expect(
        "revoke",
        &["--certname", "web01"],
        0,
        "web01 has been revoked",
    );
    admin.expect("list", &["--all"], 0, "Revoked Certificates:");
    admin.expect(
        "revoke",
        &["--certname", "nobody"],
        1,
        "Could not find certificate for nobody",
    );
    assert_eq!(ask(&site, "web01"), 400, "a revoked name is taken");
    admin.expect(
        "clean",
        &["--certname", "web01,web02"],
        0,
        "Cleaned files related to web02",
    );
    assert_eq!(ask(&site, "web01"), 200, "a clean one is free");
    admin.expect(
        "clean",
        &["--certname", "nobody"],
        1,
        "Could not find files to clean for nobody",
    );
}

/// Its guard against working on a running server's files asks without a certificate.
#[test]
fn offline_actions_see_that_the_server_is_running() {
    let site = Site::start(&[]);
    Administrator::of(&site).expect("prune", &[], 1, "running");
}

//! The real `puppetserver ca` of Debian 12, unmodified, with the administrator's credentials.

use countersign_testkit::counterparts::Release;
use countersign_testkit::puppetserver_ca::PuppetserverCa;

use crate::site::Site;

/// The command on the authority's own machine, as its administrator has it.
pub(crate) struct Administrator(PuppetserverCa);

impl Administrator {
    pub(crate) fn of(release: Release, site: &Site) -> Self {
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
        Self(PuppetserverCa::of(release, &config, &site.folder("home")).unwrap())
    }

    #[track_caller]
    pub(crate) fn expect(&self, action: &str, arguments: &[&str], code: i32, says: &str) {
        let finished = self.0.run(action, arguments).unwrap();
        assert_eq!(
            finished.code,
            Some(code),
            "{action} {arguments:?}: {finished}"
        );
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(said.contains(says), "{action} {arguments:?}: {finished}");
    }
}

#[test]
fn list_sign_revoke_and_clean_work_as_against_puppet_server() {
    let site = Site::start(&[]);
    let admin = Administrator::of(Release::Debian12, &site);
    admin.expect("list", &[], 0, "No certificates to list");
    for name in ["web01", "web02", "web03"] {
        assert_eq!(site.ask(name).status, 200);
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
    assert_eq!(site.ask("web01").status, 400, "a revoked name is taken");
    admin.expect(
        "clean",
        &["--certname", "web01,web02"],
        0,
        "Cleaned files related to web02",
    );
    assert_eq!(site.ask("web01").status, 200, "a clean one is free");
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
    Administrator::of(Release::Debian12, &site).expect("prune", &[], 1, "running");
}

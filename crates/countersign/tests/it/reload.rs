//! SIGHUP: a good configuration is put in force without ending a connection, a bad one changes nothing.

use std::path::PathBuf;

use countersign_pki::{AltName, Certificate, pem};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;

use crate::site::{Site, puppet_request, put_request};

/// A server with a configuration file that changes.
struct Reloading {
    _folder: tempfile::TempDir,
    config: PathBuf,
    site: Site,
}

impl Reloading {
    fn start(text: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("countersign.yaml");
        std::fs::write(&config, text).unwrap();
        let flags = ["--config", config.to_str().unwrap()];
        let site = Site::start(&[&flags[..], arguments].concat());
        Self {
            _folder: folder,
            config,
            site,
        }
    }

    /// Writes another file, sends the signal and waits for what the log says about it. The rest of the log is the answer.
    fn reload(&mut self, text: &str) -> String {
        std::fs::write(&self.config, text).unwrap();
        let before = self.site.server.log().len();
        self.site.server.hang_up();
        let over = |log: &str| {
            let log = log.get(before..).unwrap_or_default();
            log.contains("was reloaded") || log.contains("was not reloaded")
        };
        assert!(self.site.server.wait_for_log(over), "{}", self.site.server);
        self.site.server.log().split_off(before)
    }

    fn put(&self, name: &str, request: &str) -> u16 {
        put_request(&self.site.anonymous(), name, request).status
    }

    fn is_signed(&self, name: &str) -> bool {
        self.site.certificate(name).status == 200
    }
}

#[test]
fn autosigning_and_names_change_without_a_restart() {
    let mut server = Reloading::start("puppet: {autosign: false}\n", &[]);
    assert_eq!(server.put("a", &puppet_request("a")), 200);
    assert!(!server.is_signed("a"));

    let said = server.reload("puppet: {autosign: true}\n");
    assert!(said.contains("autosign is true"), "{said}");
    assert_eq!(server.put("b", &puppet_request("b")), 200);
    assert!(server.is_signed("b"));
    // What waits is not decided by what came after it.
    assert!(!server.is_signed("a"));

    let with_names = |name: &str| {
        CsrBuilder::new(name)
            .dns("other.example")
            .sign_pem(keys::p256_b())
    };
    assert_eq!(server.put("c", &with_names("c")), 400);
    server.reload("puppet: {autosign: true, allow_subject_alt_names: true, ca_ttl: 30d}\n");
    assert_eq!(server.put("d", &with_names("d")), 200);
    assert!(server.is_signed("d"));
    server.reload("puppet: {autosign: false}\n");
    assert_eq!(server.put("e", &puppet_request("e")), 200);
    assert!(!server.is_signed("e"));
}

#[test]
fn load_balancers_are_trusted_and_no_longer_without_a_restart() {
    let mut server = Reloading::start("{}\n", &[]);
    let header = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    let plain = server.site.anonymous().at([127, 0, 0, 2].into());
    let proxied = plain.clone().after(header);
    let get = |client: &HttpsClient| client.call("GET", "/puppet-ca/v1/certificate/ca", &[], b"");
    let mut open = plain.connect().unwrap();
    let path = "/puppet-ca/v1/certificate/ca";
    assert_eq!(open.call("GET", path, &[], b"").unwrap().status, 200);
    get(&proxied).unwrap_err();

    let said = server.reload("limits: {trusted_proxies: [127.0.0.2]}\n");
    assert!(!said.contains("at the next start"), "{said}");
    assert_eq!(get(&proxied).unwrap().status, 200);
    get(&plain).unwrap_err();
    assert_eq!(open.call("GET", path, &[], b"").unwrap().status, 200);

    let said = server.reload("limits: {trusted_proxies: ['::1']}\n");
    assert!(said.contains("has a loopback address"), "{said}");
    get(&proxied).unwrap_err();
    assert_eq!(get(&plain).unwrap().status, 200);
}

#[test]
fn a_bad_file_changes_nothing_and_says_so() {
    let mut server = Reloading::start("puppet: {autosign: true}\n", &[]);
    for (bad, part) in [
        ("puppet: {autosign: maybe}\n", "absolute path"),
        ("puppet: {autosing: false}\n", "did you mean"),
        (
            "gc: {interval: 1s}\npuppet: {autosign: false}\n",
            "gc.interval",
        ),
        (
            "log: {level: 'a=b=c'}\npuppet: {autosign: false}\n",
            "log.level",
        ),
        (
            "signers: [{name: nowhere}]\npuppet: {autosign: false}\n",
            "signers[0]",
        ),
        ("[", "countersign.yaml"),
    ] {
        let said = server.reload(bad);
        assert!(said.contains("was not reloaded"), "{bad}: {said}");
        assert!(said.contains(part), "{bad}: {said}");
    }
    std::fs::remove_file(&server.config).unwrap();
    let before = server.site.server.log().len();
    server.site.server.hang_up();
    let told = |log: &str| {
        log.get(before..)
            .is_some_and(|log| log.contains("cannot read"))
    };
    assert!(
        server.site.server.wait_for_log(told),
        "{}",
        server.site.server
    );
    assert_eq!(server.put("a", &puppet_request("a")), 200);
    assert!(server.is_signed("a"));
}

#[test]
fn the_log_level_changes_and_what_cannot_is_named() {
    let mut server = Reloading::start("", &[]);
    let handshake = |server: &Reloading| {
        // Somebody who does not trust the server ends the handshake, which is told at level debug alone.
        let other = server.site.kubernetes_ca();
        let client = HttpsClient::new(server.site.puppet(), &other, None).unwrap();
        client.call("GET", "/", &[], b"").unwrap_err();
    };
    handshake(&server);
    let said = server.reload(
        "log: {level: debug, format: json}\nlisten: 127.0.0.1:1\ndata: /nowhere\nissuers: {puppet: {key: p384}}\n\
         signers: [{name: example.com/vpn}, {name: example.com/mail, issuer: kubernetes}]\n",
    );
    // Flags win over the file, so `listen` and `data` did not change.
    let later = "takes effect at the next start: issuers.puppet.key, issuers.puppet.verify_signatures, log.format, \
                 signer example.com/vpn, whose issuer example.com.vpn is new";
    let is_told = |log: &str| log.contains(later);
    assert!(server.site.server.wait_for_log(is_told), "{said}");
    assert!(!server.site.server.log().contains("handshake failed"));
    handshake(&server);
    let failed = |log: &str| log.contains("handshake failed");
    assert!(
        server.site.server.wait_for_log(failed),
        "{}",
        server.site.server
    );
}

#[test]
fn a_connection_stays_open_and_new_ones_see_the_new_certificate() {
    // Names come from the file here, not from a flag.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("countersign.yaml");
    std::fs::write(&config, "hostnames: [localhost]\n").unwrap();
    let data = folder.path().join("data");
    let process = countersign_testkit::server_process::ServerProcess::start(
        std::path::Path::new(crate::site::COUNTERSIGN),
        &[
            "--config",
            config.to_str().unwrap(),
            "--data",
            data.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
            "--kubernetes-listen",
            "127.0.0.1:0",
        ],
    );
    let mut server = Reloading {
        _folder: folder,
        config,
        site: Site::around(data, process.unwrap()),
    };
    let names = |server: &Reloading, file: &str| {
        let text = server.site.read(file);
        let block = pem::decode_first(&text, &pem::PemLimits::BUNDLE).unwrap();
        let certificate = Certificate::parse(&block.unwrap().der).unwrap();
        let names = certificate.alt_names().iter().map(ToString::to_string);
        names.collect::<Vec<_>>().join(" ")
    };
    let mut open = server.site.admin().connect().unwrap();
    // TLS is only spoken with the first request.
    open.call("GET", "/status/v1/simple", &[], b"").unwrap();
    let before = open.peer_certificate().unwrap();
    let admin = server.site.read("admin/admin.pem");
    server.reload("hostnames: [localhost, new.example]\n");

    // The open connection goes on, with the identity it began with.
    let answer = open.call("GET", "/puppet-ca/v1/certificate_statuses/any", &[], b"");
    assert_eq!(answer.unwrap().status, 200);
    let connections = [
        (server.site.admin().connect().unwrap(), "tls/puppet.pem"),
        (
            server.site.kubernetes_admin().connect().unwrap(),
            "tls/kubernetes.pem",
        ),
    ];
    for (mut fresh, file) in connections {
        fresh.call("GET", "/healthz", &[], b"").unwrap();
        let after = fresh.peer_certificate().unwrap();
        assert_ne!(before, after);
        let shown = Certificate::parse(&after).unwrap();
        let dns = AltName::Dns("new.example".to_owned());
        assert!(shown.alt_names().contains(&dns), "{file}");
        assert!(names(&server, file).contains("new.example"), "{file}");
    }
    assert_eq!(server.site.read("admin/admin.pem"), admin, "it still fits");
    // The new name is the authority's own from now on.
    server.reload("hostnames: [localhost, new.example]\npuppet: {autosign: true}\n");
    assert_eq!(
        server.put("new.example", &puppet_request("new.example")),
        200
    );
    assert!(!server.is_signed("new.example"));

    // A new certname is found in server.json.
    server.reload("hostnames: [first.example, localhost]\n");
    let told: serde_json::Value = serde_json::from_slice(&server.site.read("server.json")).unwrap();
    assert_eq!(told["certname"], "first.example");
}

#[test]
fn roles_change_for_connections_that_are_open() {
    let with = |access: &str| format!("puppet: {{autosign: true}}\naccess: [{access}]\n");
    let mut server = Reloading::start(&with(""), &[]);
    for name in ["ops01", "web.lab"] {
        assert_eq!(server.put(name, &puppet_request(name)), 200);
    }
    let certificate = server.site.certificate("ops01").body;
    let key = keys::p256_a().pkcs8_pem();
    let holder = server.site.holder(&certificate, key.as_bytes());
    let mut open = holder.connect().unwrap();
    let mut call = |method: &str, path: &str| {
        let answer = open.call(method, path, &[], b"").unwrap();
        (answer.status, answer.text().to_string())
    };
    let (read, revoke) = (
        "/enrol/v1/requests",
        "/puppet-ca/v1/certificate_status/web.lab",
    );
    let needs = |role: &str| {
        let message = format!("this call needs the role {role}");
        let error = serde_json::json!({"error": {"code": "forbidden", "message": message}});
        (403, error.to_string())
    };
    assert_eq!(call("GET", read), needs("read"));

    let said = server.reload(&with("{certname: ops01, role: read}"));
    assert!(!said.contains("next start"), "{said}");
    assert_eq!(call("GET", read).0, 200);
    let (status, text) = call("DELETE", revoke);
    assert_eq!(status, 403);
    assert!(
        text.ends_with("This call needs the role sign for web.lab."),
        "{text}"
    );

    server.reload(&with("{certname: ops01, role: sign, suffixes: [.prod]}"));
    assert_eq!(call("DELETE", revoke).0, 403);
    // A bad list changes nothing.
    let said = server.reload(&with("{certname: ops01, role: sign}, {role: admin}"));
    assert!(
        said.contains("was not reloaded") && said.contains("access[1]"),
        "{said}"
    );
    assert_eq!(call("DELETE", revoke).0, 403);
    server.reload(&with(
        "{certname: ops01, role: sign, suffixes: [.prod, .lab]}",
    ));
    assert_eq!(call("DELETE", revoke).0, 204);
    server.reload(&with(""));
    assert_eq!(call("GET", read), needs("read"));

    // Whoever could have a rule sign such a name would have its role.
    server.reload(&with(
        "{certname: ops02, role: mint}, {suffix: .ops, role: sign}, {suffix: .lab, role: read}",
    ));
    for (name, is_signed) in [
        ("ops02", false),
        ("a.ops", false),
        ("a.lab", true),
        ("ops", true),
    ] {
        assert_eq!(server.put(name, &puppet_request(name)), 200);
        assert_eq!(server.is_signed(name), is_signed, "{name}");
    }
}

/// Whoever signs a name that is trusted at the Foreman listener gets all that it may do there.
#[test]
fn a_signer_signs_no_trusted_host_of_the_smart_proxy() {
    let with = |foreman: &str| {
        format!("access: [{{certname: ops01, role: sign}}]\nforeman: {{{foreman}}}\n")
    };
    let mut server = Reloading::start(&with("trusted_hosts: [Foreman.lab]"), &[]);
    for name in ["ops01", "foreman.lab", "proxy.lab"] {
        assert_eq!(server.put(name, &puppet_request(name)), 200);
    }
    assert_eq!(server.site.put_state("ops01", "signed").status, 204);
    let certificate = server.site.certificate("ops01").body;
    let key = keys::p256_a().pkcs8_pem();
    let signer = server.site.holder(&certificate, key.as_bytes());
    let sign = |name: &str| {
        let path = format!("/puppet-ca/v1/certificate_status/{name}");
        let head = [("Content-Type", "application/json")];
        let body = br#"{"desired_state":"signed"}"#;
        signer.call("PUT", &path, &head, body).unwrap().status
    };
    assert_eq!(sign("foreman.lab"), 403);
    server.reload(&with("trusted_hosts: [proxy.lab]"));
    assert_eq!(sign("proxy.lab"), 403);
    assert_eq!(sign("foreman.lab"), 204);
    server.reload(&with(""));
    assert_eq!(sign("proxy.lab"), 204);
}

#[test]
fn old_requests_are_forgotten_by_new_rules() {
    let mut server = Reloading::start("", &[]);
    assert_eq!(server.put("old", &puppet_request("old")), 200);
    let kept = "gc: {puppet: {pending: 1d}}\n";
    server.reload(kept);
    assert!(!server.site.server.log().contains("old requests forgotten"));
    // Times are whole seconds: it is old when the second in which it came is over.
    let forgotten = |log: &str| log.contains("old requests forgotten");
    for _ in 0..1000 {
        server.reload("gc: {puppet: {pending: 0s}}\n");
        if forgotten(&server.site.server.log()) {
            break;
        }
    }
    assert!(
        server.site.server.wait_for_log(forgotten),
        "{}",
        server.site.server
    );
    let path = "/puppet-ca/v1/certificate_request/old";
    let answer = server.site.admin().call("GET", path, &[], b"").unwrap();
    assert_eq!(answer.status, 404);
}

/// Whoever revokes the server's own certificate does not find it shown afterwards, and not in the next process either.
#[test]
fn a_revoked_certificate_of_the_server_is_replaced_at_once() {
    let site = Site::start(&[]);
    let shown = |client: HttpsClient| {
        let mut connection = client.connect().unwrap();
        connection.call("GET", "/healthz", &[], b"").unwrap();
        Certificate::parse(&connection.peer_certificate().unwrap()).unwrap()
    };
    let files = |issuer: &str| [".pem", "-key.pem"].map(|end| format!("tls/{issuer}{end}"));
    let mut kept = Vec::new();
    for (issuer, client) in [
        ("puppet", Site::admin as fn(&Site) -> HttpsClient),
        ("kubernetes", Site::kubernetes_admin),
    ] {
        let before = shown(client(&site));
        kept.extend(files(issuer).map(|file| (site.read(&file), file)));
        let mut open = client(&site).connect().unwrap();
        open.call("GET", "/healthz", &[], b"").unwrap();
        let path = format!("/enrol/v1/certificates/{issuer}/{}/revoke", before.serial());
        let answer = site.admin().call("POST", &path, &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let is_told = |log: &str| {
            let mut lines = log.lines();
            lines.any(|line| line.contains("in place of the revoked one") && line.contains(issuer))
        };
        assert!(site.server.wait_for_log(is_told), "{}", site.server);
        let after = shown(client(&site));
        assert_ne!(after.serial(), before.serial(), "{issuer}");
        // With another key, under the same names, and in the files.
        assert_ne!(after.spki_der(), before.spki_der(), "{issuer}");
        assert_eq!(after.alt_names(), before.alt_names(), "{issuer}");
        let written = crate::site::read_certificate(site.read(&format!("tls/{issuer}.pem")));
        assert_eq!(written.serial(), after.serial(), "{issuer}");
        // Who is connected stays so.
        open.call("GET", "/healthz", &[], b"").unwrap();
    }

    // The revoked ones, put back while nobody looks.
    let data = site.data();
    let folder = site.into_folder();
    let mut revoked = Vec::new();
    for (text, file) in kept {
        if !file.ends_with("-key.pem") {
            revoked.push(crate::site::read_certificate(&text).serial());
        }
        std::fs::write(data.join(&file), text).unwrap();
    }
    let site = Site::around(data.clone(), crate::site::serve(&data, &[]));
    for certificate in [shown(site.admin()), shown(site.kubernetes_admin())] {
        assert!(!revoked.contains(&certificate.serial()));
    }
    drop(folder);
}

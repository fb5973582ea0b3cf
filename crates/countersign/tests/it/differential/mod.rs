//! The same calls, in the same order, to a real Puppet Server 8.7 and to Countersign: status, content type and body are
//! the same, but for the differences that `differences` lists, each with its reason. A difference that is not listed
//! fails the test; so does a listed one that no longer occurs.

mod calls;
mod differences;
mod shape;

use std::collections::BTreeSet;
use std::fs;

use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use countersign_testkit::puppet_server::{PuppetServer, PuppetServerSettings};

use crate::site::{Site, TEXT};
use calls::{Call, Who};
use shape::Shape;

/// One authority as its three kinds of callers see it.
struct World {
    anonymous: HttpsClient,
    agent: HttpsClient,
    admin: HttpsClient,
}

impl World {
    /// An agent enrols by autosigning first.
    fn new(
        anonymous: HttpsClient,
        admin: HttpsClient,
        with: impl Fn((&[u8], &[u8])) -> HttpsClient,
    ) -> Self {
        let key = keys::rsa2048_a();
        let csr = CsrBuilder::new(AGENT).sign_pem(key);
        let call = |method, path: String, body: &[u8]| {
            let answer = anonymous.call(method, &path, &[TEXT], body).unwrap();
            assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
            answer.body
        };
        call(
            "PUT",
            format!("/puppet-ca/v1/certificate_request/{AGENT}"),
            csr.as_bytes(),
        );
        let certificate = call("GET", format!("/puppet-ca/v1/certificate/{AGENT}"), b"");
        let agent = with((&certificate, key.pkcs8_pem().as_bytes()));
        Self {
            anonymous,
            agent,
            admin,
        }
    }

    fn answer(&self, call: &Call) -> Shape {
        let client = match call.who {
            Who::Anonymous => &self.anonymous,
            Who::Agent => &self.agent,
            Who::Admin => &self.admin,
        };
        let body = match call.own_crl {
            true => {
                let path = "/puppet-ca/v1/certificate_revocation_list/ca";
                self.anonymous.call("GET", path, &[], b"").unwrap().body
            }
            false => call.body.clone(),
        };
        let now = || {
            let path = "/puppet-ca/v1/certificate/ca";
            let answer = self.anonymous.call("GET", path, &[], b"").unwrap();
            answer.header("date").unwrap().to_owned()
        };
        let headers: Vec<(&str, String)> = call
            .headers
            .iter()
            .map(|(name, value)| match *value {
                calls::NOW => (*name, now()),
                fixed => (*name, fixed.to_owned()),
            })
            .collect();
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        match client.call(call.method, &call.path, &headers, &body) {
            Ok(answer) => Shape::of(&answer),
            Err(error) => panic!("{}: {error}", call.name),
        }
    }
}

#[test]
fn answers_are_those_of_puppet_server() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("autosign.conf");
    fs::write(&list, "*.auto.test\n").unwrap();
    let autosign = list.to_str().unwrap();
    let config = folder.path().join("countersign.yaml");
    fs::write(
        &config,
        "puppet: {auto_renewal: true}\nlimits: {csr_per_minute_per_certname: 0}\n",
    )
    .unwrap();

    let site = Site::start(&["--autosign", autosign, "--config", config.to_str().unwrap()]);
    let ours = World::new(site.anonymous(), site.admin(), |pair| {
        HttpsClient::new(site.puppet(), &site.puppet_ca(), Some(pair)).unwrap()
    });
    let settings = PuppetServerSettings {
        autosign: autosign.to_owned(),
        ca_conf: "allow-auto-renewal: true".to_owned(),
        ..PuppetServerSettings::below(folder.path())
    };
    let mut server =
        PuppetServer::start(folder.path(), settings).unwrap_or_else(|fault| panic!("{fault}"));
    let bundle = server.ca_bundle().unwrap();
    let reference = World::new(
        server.anonymous().unwrap(),
        server.admin().unwrap(),
        |pair| HttpsClient::new(server.address(), &bundle, Some(pair)).unwrap(),
    );

    let mut findings = Findings::default();
    let calls = calls::all();
    for call in &calls {
        let (reference, ours) = (reference.answer(call), ours.answer(call));
        if call.compared {
            findings.compare(call, &reference, &ours);
        }
    }
    // It ends by itself when asked, and its own command of the same release works on it until then.
    let listed = server.command().unwrap().run("list", &["--all"]).unwrap();
    assert!(listed.success(), "{listed}");
    assert!(server.stop().is_some(), "{server}");

    findings.finish(&calls);
}

/// What was seen, against what is listed.
#[derive(Default)]
struct Findings {
    unexpected: Vec<String>,
    occurred: BTreeSet<(usize, &'static str)>,
}

impl Findings {
    fn compare(&mut self, call: &Call, reference: &Shape, ours: &Shape) {
        let differing = reference.differing(ours);
        let mut explained = Vec::new();
        for (index, difference) in differences::ALL.iter().enumerate() {
            if difference.explains(call, reference, ours) {
                self.occurred.insert((index, call.name));
                explained.extend(difference.fields);
            }
        }
        let unexplained: Vec<_> = differing
            .iter()
            .filter(|field| !explained.contains(field))
            .collect();
        if !unexplained.is_empty() {
            self.unexpected.push(format!(
                "{} ({} {}): {unexplained:?}\n  reference: {reference}\n  ours:      {ours}",
                call.name, call.method, call.path
            ));
        }
    }

    fn finish(self, calls: &[Call]) {
        let names: BTreeSet<&str> = calls.iter().map(|call| call.name).collect();
        assert_eq!(names.len(), calls.len(), "two calls have one name");
        let mut vanished = Vec::new();
        for (index, difference) in differences::ALL.iter().enumerate() {
            let seen: Vec<&str> = self
                .occurred
                .iter()
                .filter_map(|(of, name)| (*of == index).then_some(*name))
                .collect();
            vanished.extend(difference.not_among(&seen));
        }
        assert!(
            self.unexpected.is_empty() && vanished.is_empty(),
            "{} calls\nnot listed:\n{}\nlisted, but not seen: {vanished:#?}",
            calls.len(),
            self.unexpected.join("\n")
        );
    }
}

const AGENT: &str = "agent.auto.test";

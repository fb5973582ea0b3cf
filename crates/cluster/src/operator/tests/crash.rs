//! The program ends after any single write, at the API server or at a CA, and is started again: it comes to the same end as if
//! nothing had happened, and no Secret ever holds a certificate and a key that do not belong together.

use countersign_testkit::keys;
use serde_json::{Value, json};

use super::super::Next;
use super::super::calls::Kind;
use super::super::duration::DAY;
use super::super::index::Key;
use super::played_api::named;
use super::world::{World, condition, is_pair};

/// What happens to a Certificate, or to its CA, while the program may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    FirstIssue,
    FirstIssueSignedByTheOperator,
    /// An external CA, where somebody signs after the first poll.
    ManualSigning,
    Renewal,
    ReissueAfterAChange,
    /// Another name of the spec, which is taken back in the middle.
    ChangeTakenBack,
    /// The same of the certname.
    RenamingTakenBack,
    ReissueOfALostSecret,
    /// A stranger's request waits at the CA under the name.
    StaleRequest,
    TakingOver,
    Deletion,
    /// Of a Certificate whose request nobody has signed.
    DeletionBeforeSigning,
    CaBecomesReady,
    /// The same with the Certificate of its server.
    CaBecomesReadyWithItsServer,
}

impl Story {
    /// How many writes there are at least. If there were fewer, the test would try nothing.
    fn least_writes(self) -> i64 {
        match self {
            // Finalizer, phase, key, request, pair, pending key, annotation, status.
            Self::FirstIssue => 8,
            // The signature besides.
            Self::FirstIssueSignedByTheOperator => 9,
            // The count of polls besides.
            Self::ManualSigning => 9,
            // Phase, renewal, pair, annotations, status.
            Self::Renewal => 5,
            // Phase, key, clean, request, signature, pair, pending key, annotation, status.
            Self::ReissueOfALostSecret => 9,
            // That the former pair is given up besides.
            Self::ReissueAfterAChange | Self::ChangeTakenBack => 10,
            // Phase, key, request, signature, pair, pending key, clean, annotation, status.
            Self::RenamingTakenBack => 9,
            // The removal besides.
            Self::StaleRequest => 10,
            // Finalizer, Secret, annotation, status.
            Self::TakingOver => 4,
            // At the CA, and the finalizer.
            Self::Deletion | Self::DeletionBeforeSigning => 2,
            // Secrets of the CA, Service, status, identity and its status, and its Certificate's own writes.
            Self::CaBecomesReady => 14,
            // A status of the CA that waits, and what a first issue writes.
            Self::CaBecomesReadyWithItsServer => 24,
        }
    }

    /// What there is before the program may end.
    async fn prepare(self) -> World {
        let world = match self {
            Self::ManualSigning => World::new().with_external_ca(),
            Self::CaBecomesReady | Self::CaBecomesReadyWithItsServer => World::told(),
            _ => World::new().with_internal_ca(),
        };
        world.ca.state().signs_at_once = self == Self::FirstIssue;
        match self {
            Self::FirstIssue | Self::FirstIssueSignedByTheOperator | Self::ManualSigning => {
                world.web(json!({"dnsAltNames": ["www"]}));
            }
            Self::StaleRequest => {
                world.web(json!({}));
                let stranger =
                    countersign_enroll::ca::Key::read(keys::rsa3072().pkcs8_pem().as_bytes())
                        .unwrap();
                let request = stranger.request("web", &[], &[]).unwrap();
                world
                    .ca
                    .state()
                    .requests
                    .insert("web".to_owned(), request.to_string());
            }
            Self::TakingOver => world.web_signed(json!({}), 300),
            Self::CaBecomesReady | Self::CaBecomesReadyWithItsServer => {
                if self == Self::CaBecomesReadyWithItsServer {
                    world.web(json!({}));
                }
                world.api.put(
                    Kind::CertificateAuthority,
                    json!({"metadata": {"name": "ca"}, "spec": {}}),
                );
            }
            Self::DeletionBeforeSigning => {
                world.web(json!({}));
                world.ca.answers("sign", 403);
                world.look("web").await.unwrap();
                world.api.delete(Kind::Certificate, "web");
            }
            Self::Renewal
            | Self::ReissueAfterAChange
            | Self::ChangeTakenBack
            | Self::RenamingTakenBack
            | Self::ReissueOfALostSecret
            | Self::Deletion => {
                world.web(json!({}));
                world.settle("web").await;
                match self {
                    Self::Renewal => world.wind(330 * DAY),
                    Self::RenamingTakenBack => {
                        let renamed = json!({"spec": {"certname": "db"}});
                        world.api.edit(Kind::Certificate, "web", &renamed);
                    }
                    Self::ReissueAfterAChange | Self::ChangeTakenBack => {
                        world.api.edit(
                            Kind::Certificate,
                            "web",
                            &json!({"spec": {"dnsAltNames": ["www"]}}),
                        );
                    }
                    Self::ReissueOfALostSecret => world.api.delete(Kind::Secret, "web-tls"),
                    _ => world.api.delete(Kind::Certificate, "web"),
                }
            }
        }
        world.api.history();
        world
    }

    /// What else happens meanwhile.
    fn go_on(self, world: &World) {
        let waits = world.ca.state().requests.contains_key("web");
        let is_counted = world
            .api
            .get(Kind::Secret, "web-tls-pending")
            .is_some_and(|it| {
                !it["metadata"]["annotations"]["openvox.voxpupuli.org/csr-poll-attempts"].is_null()
            });
        if self == Self::ManualSigning && waits && is_counted {
            world.ca.sign("web");
        }
    }

    fn keys(self) -> Vec<Key> {
        match self {
            Self::CaBecomesReady => vec![
                Key::Authority(named("ca")),
                Key::Certificate(named("ca-operator-signing")),
                Key::Policies(named("ca")),
            ],
            Self::CaBecomesReadyWithItsServer => vec![
                Key::Authority(named("ca")),
                Key::Certificate(named("web")),
                Key::Certificate(named("ca-operator-signing")),
                Key::Policies(named("ca")),
            ],
            _ => vec![Key::Certificate(named("web"))],
        }
    }

    /// How everything has to be in the end.
    fn check(self, world: &World, case: &str) {
        let certificate = match self {
            Self::CaBecomesReady => "ca-operator-signing",
            _ => "web",
        };
        let certname = if certificate == "web" {
            "web"
        } else {
            "ca-operator"
        };
        let tls = format!("{certificate}-tls");
        assert_eq!(
            world.api.get(Kind::Secret, &format!("{tls}-pending")),
            None,
            "{case}"
        );
        if matches!(self, Self::Deletion | Self::DeletionBeforeSigning) {
            assert_eq!(
                world.api.get(Kind::Certificate, certificate),
                None,
                "{case}"
            );
            assert_eq!(world.api.get(Kind::Secret, &tls), None, "{case}");
            let state = world.ca.state();
            assert!(!state.certificates.contains_key(certname), "{case}");
            assert!(!state.requests.contains_key(certname), "{case}");
            return;
        }
        assert_eq!(world.phase(certificate), "Signed", "{case}");
        let signed = world.signed(certificate);
        assert!(signed.starts_with("True "), "{case}: {signed}");
        assert!(
            is_pair(&world.api.get(Kind::Secret, &tls).unwrap()),
            "{case}"
        );
        let leaf = world.leaf(certificate);
        assert_eq!(
            world.object(certificate)["status"]["notAfter"],
            json!(leaf.not_after().to_string()),
            "{case}"
        );
        // The one certificate of the name that the CA has is this one, and no request waits.
        let at_ca = world.ca.state().certificates.get(certname).cloned();
        assert_eq!(at_ca, world.secret_value(&tls, "cert.pem"), "{case}");
        assert!(!world.ca.state().requests.contains_key(certname), "{case}");
        let obtained = world.annotation(certificate, "countersign.dev/obtained");
        let digest = leaf.key_fingerprint().to_hex().to_ascii_lowercase();
        assert_eq!(obtained, Some(format!("{certname}/{digest}")), "{case}");
        let names: Vec<String> = leaf
            .alt_names()
            .iter()
            .map(|it| it.to_puppet_text())
            .collect();
        let wanted: &[&str] = match self {
            Self::FirstIssue
            | Self::FirstIssueSignedByTheOperator
            | Self::ManualSigning
            | Self::ReissueAfterAChange => &["DNS:www"],
            _ => &[],
        };
        assert_eq!(names, wanted, "{case}");
        match self {
            Self::Renewal => {
                let left = leaf.not_after().seconds_since(world.now());
                assert!(left > 300 * DAY, "{case}: {left}");
            }
            Self::TakingOver => assert_eq!(world.ca.calls(), [""; 0], "{case}"),
            // A request may be left, which the program has not heard that the CA took; nobody has its key.
            Self::RenamingTakenBack => {
                assert!(!world.ca.state().certificates.contains_key("db"), "{case}");
            }
            Self::CaBecomesReady | Self::CaBecomesReadyWithItsServer => {
                let ca = world.api.get(Kind::CertificateAuthority, "ca").unwrap();
                assert_eq!(ca["status"]["phase"], "Ready", "{case}");
                assert_eq!(
                    ca["status"]["signingSecretName"], "ca-operator-signing-tls",
                    "{case}"
                );
                assert_eq!(condition(&ca, "CAReady"), "True CAInitialized", "{case}");
                assert_eq!(
                    condition(&ca, "OperatorSigningReady"),
                    "True OperatorSigningReady",
                    "{case}"
                );
                for secret in ["ca-ca", "ca-ca-crl"] {
                    let secret = world.api.get(Kind::Secret, secret).unwrap();
                    assert_eq!(
                        secret["metadata"]["ownerReferences"][0]["uid"], ca["metadata"]["uid"],
                        "{case}"
                    );
                }
                assert!(
                    world.api.get(Kind::Service, "ca-internal").is_some(),
                    "{case}"
                );
                assert_eq!(world.ca.state().published.len(), 1, "{case}");
            }
            _ => {}
        }
    }

    /// Looks at everything in turn until nothing changes any more, starting the program again whenever it has ended.
    async fn play(self, world: &mut World) {
        let mut quiet = 0;
        for _ in 0..400 {
            let before = self.shown(world);
            let mut pause = 1;
            for key in self.keys() {
                match world.look_at(&key).await {
                    Ok(Next::After(wait)) => pause = pause.max(wait.as_secs().min(60)),
                    Ok(Next::Done) => {}
                    Err(_) if world.fuse.is_burnt() => world.restart(),
                    // Another pass has written to the same object.
                    Err(_) => {}
                }
                // It may also end after the last write of a pass, which then looks as if it had gone well.
                if world.fuse.is_burnt() {
                    world.restart();
                }
            }
            self.go_on(world);
            quiet = if self.shown(world) == before {
                quiet + 1
            } else {
                0
            };
            if quiet == 3 {
                return;
            }
            world.wind(i64::try_from(pause).unwrap());
        }
        panic!("{self:?} does not come to rest");
    }

    /// What can still change.
    fn shown(self, world: &World) -> Vec<Value> {
        let kinds = [
            Kind::Certificate,
            Kind::CertificateAuthority,
            Kind::Secret,
            Kind::Service,
        ];
        kinds
            .into_iter()
            .flat_map(|kind| world.api.list(kind))
            .collect()
    }

    async fn run(self) {
        let mut world = self.prepare().await;
        world.fuse.light(MANY);
        self.play(&mut world).await;
        let writes = world.fuse.writes_since(MANY);
        self.check(&world, &format!("{self:?}, undisturbed"));
        assert!(
            writes >= self.least_writes(),
            "{self:?}: only {writes} writes"
        );
        for last in 1..=writes {
            let case = format!("{self:?}, ended after write {last} of {writes}");
            let mut world = self.prepare().await;
            world.fuse.light(last);
            self.play(&mut world).await;
            assert_eq!(world.restarts, 1, "{case}");
            self.check(&world, &case);
            let mut is_exported = self != Self::CaBecomesReadyWithItsServer;
            for (kind, object) in world.api.history() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                if kind == "certificateauthorities" && object["status"]["phase"] == "Ready" {
                    assert!(is_exported, "{case}: ready before the Secret of its server");
                }
                is_exported |= kind == "secrets" && name == "web-tls";
                if kind == "secrets" && name.ends_with("-tls") {
                    assert!(is_pair(&object), "{case}: {name} at some moment");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_first_issue_survives_any_end() {
    Story::FirstIssue.run().await;
    Story::FirstIssueSignedByTheOperator.run().await;
}

#[tokio::test]
async fn manual_signing_survives_any_end() {
    Story::ManualSigning.run().await;
}

#[tokio::test]
async fn a_renewal_survives_any_end() {
    Story::Renewal.run().await;
}

#[tokio::test]
async fn issuing_again_survives_any_end() {
    Story::ReissueAfterAChange.run().await;
    Story::ReissueOfALostSecret.run().await;
}

#[tokio::test]
async fn replacing_a_strangers_request_survives_any_end() {
    Story::StaleRequest.run().await;
}

#[tokio::test]
async fn taking_over_survives_any_end() {
    Story::TakingOver.run().await;
}

#[tokio::test]
async fn a_deletion_survives_any_end() {
    Story::Deletion.run().await;
    Story::DeletionBeforeSigning.run().await;
}

/// What the program had done by then is undone, and does not hold up whoever asks for the name next.
#[tokio::test]
async fn a_deletion_in_the_middle_of_an_issue_leaves_no_certificate() {
    for story in [Story::FirstIssue, Story::FirstIssueSignedByTheOperator] {
        let writes = story.least_writes();
        for last in 1..=writes {
            let case = format!("{story:?}, ended after write {last} of {writes}");
            let mut world = story.prepare().await;
            world.fuse.light(last);
            while !world.fuse.is_burnt() {
                let _ended = world.look("web").await;
            }
            world.api.delete(Kind::Certificate, "web");
            world.restart();
            story.play(&mut world).await;
            assert_eq!(world.api.get(Kind::Certificate, "web"), None, "{case}");
            assert!(world.ca.state().certificates.is_empty(), "{case}");
            world.web(json!({"dnsAltNames": ["www"]}));
            story.play(&mut world).await;
            story.check(&world, &case);
        }
    }
}

/// N6: the certificate that the CA has, not the one that it has cleaned.
#[tokio::test]
async fn a_change_that_is_taken_back_in_the_middle_leaves_the_certificate_that_the_ca_has() {
    for (story, back) in [
        (Story::ChangeTakenBack, json!({"dnsAltNames": null})),
        (Story::RenamingTakenBack, json!({"certname": "web"})),
    ] {
        for last in 1..=story.least_writes() {
            let case = format!("{story:?}, after write {last}");
            let mut world = story.prepare().await;
            world.fuse.light(last);
            while !world.fuse.is_burnt() {
                let _ended = world.look("web").await;
            }
            let back = json!({"spec": back});
            world.api.edit(Kind::Certificate, "web", &back);
            world.restart();
            story.play(&mut world).await;
            story.check(&world, &case);
        }
    }
}

#[tokio::test]
async fn a_ca_that_becomes_ready_survives_any_end() {
    Story::CaBecomesReady.run().await;
    Story::CaBecomesReadyWithItsServer.run().await;
}

/// More writes than anything makes.
const MANY: i64 = 1_000_000;

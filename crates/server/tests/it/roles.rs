//! Roles: every call of both interfaces, by everybody who may or may not make it.

mod own_names;
mod reach;

use axum::Router;
use countersign_authority::Actor;
use countersign_authority::RequestState;
use countersign_authority::profile::OtherNames;
use countersign_authority::store::Past;
use countersign_pki::RevocationReason;
use countersign_pki::pem::{self, PemLimits};
use countersign_server::Peer;
use countersign_server::access::{Access, Entry, Holder, Needs, Role, Suffix};
use countersign_server::enrol::{self, EnrolDoor};
use countersign_server::kubernetes::{self, KubernetesDoor};
use countersign_server::puppet::{self, PuppetDoor};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use http::Method;

use crate::exchange::{Answer, Call, filled};
use crate::world::{KUBE_CLIENT, PUPPET_ADMIN, PUPPET_AGENT, START, Setup, World, signer_name};

/// An authority where several people have roles, with both its listeners.
struct Site {
    world: World,
    access: Access,
    /// The Puppet and the native interface, as the program serves them.
    puppet: Router,
    /// The Kubernetes and the native interface.
    kubernetes: Router,
}

impl Site {
    async fn open() -> Self {
        let world = World::start(Setup {
            alt_names: OtherNames::DnsAndIp,
            ..Setup::STRICT
        })
        .await;
        let access = Access::new(entries());
        let (authority, issuer) = (&world.authority, world.puppet_issuer());
        let native = EnrolDoor::new(authority.clone(), issuer.clone())
            .with_access(access.clone())
            .with_administrators(signer_name(PUPPET_ADMIN));
        let agents = signer_name(PUPPET_AGENT);
        let door = PuppetDoor::new(authority.clone(), issuer, agents, START).unwrap();
        let puppet = puppet::router(door.with_access(access.clone())).merge(enrol::router(native));
        let issuer = world.kubernetes_issuer();
        let native =
            EnrolDoor::for_users(authority.clone(), issuer.clone()).with_access(access.clone());
        let door = KubernetesDoor::open(authority.clone(), issuer)
            .await
            .unwrap();
        let kubernetes = kubernetes::router(door).merge(enrol::router(native));
        Self {
            world,
            access,
            puppet,
            kubernetes,
        }
    }

    async fn callers(&self) -> Vec<(&'static str, Peer)> {
        let mut callers = vec![
            ("nobody", self.world.anonymous()),
            ("a foreign certificate", self.world.kubernetes_admin().await),
        ];
        for name in [
            "agent", "reader", "minter", "builder", "signer", "limited", "boss",
        ] {
            callers.push((name, self.world.puppet_agent(name).await));
        }
        callers.push(("an administrator", self.world.puppet_admin().await));
        callers
    }

    /// Has somebody ask for a certificate at the Puppet door, which waits.
    async fn ask(&self, csr: &CsrBuilder, name: &str) {
        let line = format!("PUT {V1}/certificate_request/{name}");
        let answer = Call::new(&self.world.anonymous(), &line)
            .body(csr.sign_pem(keys::p256_a()))
            .send(&self.puppet)
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    async fn wait(&self, name: &str) {
        self.ask(&CsrBuilder::new(name), name).await;
    }

    async fn state(&self, name: &str) -> Option<RequestState> {
        let authority = &self.world.authority;
        let found = authority
            .requests
            .at(&PuppetDoor::DOOR, name, Past::Include)
            .await;
        found.unwrap().map(|record| record.state)
    }

    async fn at_puppet(&self, peer: &Peer, line: &str, body: &str) -> Answer {
        Call::new(peer, line)
            .header("content-type", "application/json")
            .body(body)
            .send(&self.puppet)
            .await
    }

    async fn at_kubernetes(&self, peer: &Peer, line: &str) -> Answer {
        Call::new(peer, line).send(&self.kubernetes).await
    }

    /// A Kubernetes user in a group.
    async fn user(&self, name: &str, group: &str) -> Peer {
        let request = CsrBuilder::new(name).organization(group);
        self.world.client(KUBE_CLIENT, name, &request).await
    }
}

fn suffix(text: &str) -> Suffix {
    Suffix::parse(text).unwrap()
}

fn entries() -> Vec<Entry> {
    let certname = |name: &str| Holder::Certname(name.to_owned());
    let group = |name: &str| Holder::Group(name.to_owned());
    let all = [
        (certname("reader"), Role::Read, None),
        (certname("minter"), Role::Mint, None),
        (certname("builder"), Role::Mint, Some(".lab")),
        (certname("signer"), Role::Sign, None),
        (certname("limited"), Role::Sign, Some(".lab")),
        (certname("boss"), Role::Admin, None),
        (Holder::Below(suffix(".admins")), Role::Admin, None),
        (Holder::Below(suffix(".signers")), Role::Sign, None),
        (group("auditors"), Role::Read, None),
        (group("deciders"), Role::Sign, None),
        (group("builders"), Role::Mint, Some(".lab")),
        (group("owners"), Role::Admin, None),
    ];
    all.into_iter()
        .map(|(holder, role, limit)| Entry {
            holder,
            role,
            suffixes: limit.map(suffix).into_iter().collect(),
        })
        .collect()
}

/// A call as the tables of the doors have it, what follows its path, a body, who is let through (a letter for each of
/// [`Site::callers`]), and what the others are told that they need.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const LAB: &str = r#"{"certnames":["absent.lab"]}"#;
const BOTH: &str = r#"{"certnames":["absent.lab","absent.prod"]}"#;
const IN_LAB: &str = r#"{"name":"absent.lab"}"#;
const IN_PROD: &str = r#"{"name":"absent.prod"}"#;
const BATCH_IN_LAB: &str = r#"{"machines":[{"name":"a.lab"},{"name":"B.LAB."}],"dry_run":true}"#;
const BATCH_IN_PROD: &str =
    r#"{"machines":[{"name":"a.lab"},{"name":"absent.prod"}],"dry_run":true}"#;

const TOKEN_IN_LAB: &str = r#"{"certname":"absent.lab"}"#;
const TOKEN_IN_PROD: &str = r#"{"certname":"Absent.prod"}"#;
const TOKEN: &str = "aaaqeayeaudaocaj";

#[rustfmt::skip]
const PUPPET: [Row; 28] = [
    ("GET", "/puppet-ca/v1/certificate/", "absent.lab", "", "yyyyyyyyyy", ""),
    ("GET", "/puppet-ca/v1/certificate_revocation_list/ca", "", "", "yyyyyyyyyy", ""),
    ("GET", "/puppet-ca/v1/certificate_revocation_list/full", "", "", "yyyyyyyyyy", ""),
    ("PUT", "/puppet-ca/v1/certificate_request", "/absent.lab", "", "yyyyyyyyyy", ""),
    ("GET", "/puppet-ca/v1/certificate_request", "/absent.lab", "", "........yy", "admin"),
    ("GET", "/puppet-ca/v1/certificate_request/", "agent", "", "..y.....yy", "admin"),
    ("DELETE", "/puppet-ca/v1/certificate_request", "/absent.lab", "", "......yyyy", "sign for absent.lab"),
    ("DELETE", "/puppet-ca/v1/certificate_request", "/absent.prod", "", "......y.yy", "sign for absent.prod"),
    ("POST", "/puppet-ca/v1/certificate_renewal", "", "", "..yyyyyyyy", ""),
    ("GET", "/puppet-ca/v1/expirations", "", "", "..yyyyyyyy", ""),
    ("GET", "/puppet-ca/v1/certificate_status", "/absent.lab", "", "...y..yyyy", "read"),
    ("PUT", "/puppet-ca/v1/certificate_status", "/absent.lab", "", "......yyyy", "sign for absent.lab"),
    ("PUT", "/puppet-ca/v1/certificate_status", "/absent.prod", "", "......y.yy", "sign for absent.prod"),
    ("PUT", "/puppet-ca/v1/certificate_status", "/lab", "", "......y.yy", "sign for lab"),
    ("DELETE", "/puppet-ca/v1/certificate_status", "/absent.lab", "", "......yyyy", "sign for absent.lab"),
    ("DELETE", "/puppet-ca/v1/certificate_status", "/absent.prod", "", "......y.yy", "sign for absent.prod"),
    ("GET", "/puppet-ca/v1/certificate_statuses", "/any", "", "...y..yyyy", "read"),
    ("PUT", "/puppet-ca/v1/certificate_revocation_list", "", "", "........yy", "admin"),
    ("PUT", "/puppet-ca/v1/clean", "", LAB, "......yyyy", "sign"),
    ("PUT", "/puppet-ca/v1/clean", "", BOTH, "......y.yy", "sign"),
    ("POST", "/puppet-ca/v1/sign", "", LAB, "......yyyy", "sign"),
    ("POST", "/puppet-ca/v1/sign", "", BOTH, "......y.yy", "sign"),
    ("POST", "/puppet-ca/v1/sign/all", "", "", "......y.yy", "sign"),
    ("POST", "/puppet-ca/v1/sign/all", "/more", "", "......y.yy", "sign"),
    ("GET", "/status/v1/services", "", "", "yyyyyyyyyy", ""),
    ("GET", "/status/v1/simple", "", "", "yyyyyyyyyy", ""),
    ("PATCH", "/puppet-ca/v1/certificate_status", "/absent.lab", "", "..........", ""),
    ("GET", "/puppet-ca/v1/nothing", "", "", "..........", ""),
];

#[rustfmt::skip]
const NATIVE: [Row; 56] = [
    ("GET", "/requests", "", "", "...y..yyyy", "read"),
    ("POST", "/requests", "", "", "........yy", "admin"),
    ("POST", "/kubernetes-users", "", "", "........yy", "admin"),
    ("GET", "/requests/{door}/{name}", "puppet/absent.lab", "", "...y..yyyy", "read"),
    ("DELETE", "/requests/{door}/{name}", "puppet/absent.lab", "", "......yyyy", "sign for absent.lab"),
    ("DELETE", "/requests/{door}/{name}", "puppet/absent.prod", "", "......y.yy", "sign for absent.prod"),
    // The name of a Kubernetes object says nothing about its certificate.
    ("DELETE", "/requests/{door}/{name}", "kubernetes/absent.lab", "", "......y.yy", "sign"),
    ("POST", "/requests/{door}/{name}/approve", "puppet/absent.lab", "", "......yyyy", "sign for absent.lab"),
    ("POST", "/requests/{door}/{name}/approve", "puppet/absent.prod", "", "......y.yy", "sign for absent.prod"),
    ("POST", "/requests/{door}/{name}/approve", "kubernetes/absent.lab", "", "......y.yy", "sign"),
    ("POST", "/requests/{door}/{name}/approve", "local/absent.lab", "", "......y.yy", "sign"),
    ("POST", "/requests/{door}/{name}/deny", "puppet/absent.lab", "", "......yyyy", "sign for absent.lab"),
    ("POST", "/requests/{door}/{name}/deny", "puppet/absent.prod", "", "......y.yy", "sign for absent.prod"),
    ("GET", "/certificates", "", "", "...y..yyyy", "read"),
    ("GET", "/certificates/{issuer}/{serial}", "puppet/7F", "", "...y..yyyy", "read"),
    ("POST", "/certificates/{issuer}/{serial}/revoke", "puppet/7F", "", "......yyyy", "sign"),
    ("GET", "/policy", "", "", "...y..yyyy", "read"),
    ("GET", "/policy/{generation}", "7", "", "...y..yyyy", "read"),
    ("GET", "/signing-policies", "", "", "...y..yyyy", "read"),
    ("PUT", "/signing-policies/{namespace}/{authority}", "absent/ca", "", "........yy", "admin"),
    ("DELETE", "/signing-policies/{namespace}/{authority}", "absent/ca", "", "........yy", "admin"),
    ("GET", "/rejections", "", "", "...y..yyyy", "read"),
    ("GET", "/decisions", "", "", "...y..yyyy", "read"),
    ("GET", "/machines", "", "", "...yyyyyyy", "mint or read"),
    ("POST", "/machines", "", IN_LAB, "....yy..yy", "mint"),
    ("POST", "/machines", "", IN_PROD, "....y...yy", "mint"),
    ("GET", "/machines/{name}", "absent.lab", "", "...yyyyyyy", "mint or read"),
    ("GET", "/machines/{name}", "absent.prod", "", "...yyyyyyy", "mint or read"),
    ("PUT", "/machines/{name}", "absent.lab", "", "....yy..yy", "mint for absent.lab"),
    ("PUT", "/machines/{name}", "absent.prod", "", "....y...yy", "mint for absent.prod"),
    ("DELETE", "/machines/{name}", "absent.lab", "", "....yy..yy", "mint for absent.lab"),
    ("DELETE", "/machines/{name}", "absent.prod", "", "....y...yy", "mint for absent.prod"),
    ("POST", "/machine-imports", "", BATCH_IN_LAB, "....yy..yy", "mint"),
    // One name too many.
    ("POST", "/machine-imports", "", BATCH_IN_PROD, "....y...yy", "mint"),
    ("GET", "/windows", "", "", "...yyyyyyy", "mint or read"),
    ("GET", "/windows/{certname}", "absent.lab", "", "...yyyyyyy", "mint or read"),
    ("PUT", "/windows/{certname}", "absent.lab", "", "....yy..yy", "mint for absent.lab"),
    ("PUT", "/windows/{certname}", "absent.prod", "", "....y...yy", "mint for absent.prod"),
    ("DELETE", "/windows/{certname}", "absent.lab", "", "....yy..yy", "mint for absent.lab"),
    ("DELETE", "/windows/{certname}", "absent.prod", "", "....y...yy", "mint for absent.prod"),
    ("GET", "/tokens", "", "", "...yyyyyyy", "mint or read"),
    ("POST", "/tokens", "", TOKEN_IN_LAB, "....yy..yy", "mint"),
    ("POST", "/tokens", "", TOKEN_IN_PROD, "....y...yy", "mint"),
    ("GET", "/tokens/{id}", TOKEN, "", "...yyyyyyy", "mint or read"),
    ("DELETE", "/tokens/{id}", TOKEN, "", "....yy..yy", "mint"),
    ("POST", "/tokens/{id}/release", TOKEN, "", "....yy..yy", "mint"),
    ("GET", "/bootstrap-tokens", "", "", "...yyyyyyy", "mint or read"),
    ("POST", "/bootstrap-tokens", "", "", "....y...yy", "mint"),
    ("GET", "/bootstrap-tokens/{bootstrap_id}", "nobody", "", "...yyyyyyy", "mint or read"),
    ("DELETE", "/bootstrap-tokens/{bootstrap_id}", "nobody", "", "....y...yy", "mint"),
    ("POST", "/check", "", "", "........yy", "admin"),
    ("GET", "/audit", "", "", "...y..yyyy", "read"),
    ("GET", "/audit/seals", "", "", "...y..yyyy", "read"),
    ("GET", "/audit/reconciliation", "", "", "...y..yyyy", "read"),
    ("GET", "/audit/checkpoint", "", "", "...y..yyyy", "read"),
    ("GET", "/nothing", "", "", "...yyyyyyy", "a role"),
];

/// Every call of a door stands in the table, and no other needs a role.
fn assert_complete(rows: &[Row], calls: &[(Method, &'static str, Option<Needs>)]) {
    for (method, path, needs) in calls {
        let of_call = |row: &&Row| row.0 == method.as_str() && row.1 == *path;
        let row = rows.iter().find(of_call);
        let row = row.unwrap_or_else(|| panic!("{method} {path} is not in the table"));
        let word = match needs {
            None => continue,
            Some(Needs::Any) => "a role",
            Some(Needs::Read) => "read",
            Some(Needs::MintOrRead) => "mint or read",
            Some(Needs::Mint(_)) => "mint",
            Some(Needs::Sign(_)) => "sign",
            Some(Needs::Admin) => "admin",
        };
        assert!(row.5.starts_with(word), "{method} {path} needs {word}");
    }
}

#[tokio::test]
async fn every_role_makes_exactly_its_calls_at_the_puppet_door() {
    assert_complete(&PUPPET, &puppet::calls());
    let site = Site::open().await;
    let callers = site.callers().await;
    for (method, path, rest, body, expected, needed) in PUPPET {
        let line = format!("{method} {path}{rest}");
        let mut admitted = String::new();
        for (who, peer) in &callers {
            let answer = site.at_puppet(peer, &line, body).await;
            admitted.push(if answer.status == 403 { '.' } else { 'y' });
            if answer.status != 403 {
                continue;
            }
            let told = match (needed, *who, body) {
                ("", _, _) => String::new(),
                // Has the role, and not for all of what the call is about.
                ("sign", "limited", BOTH) => {
                    " This call needs the role sign for absent.prod.".to_owned()
                }
                ("sign", "limited", _) => {
                    " This call needs the role sign for every name.".to_owned()
                }
                _ => format!(" This call needs the role {needed}."),
            };
            let method = method.to_ascii_lowercase();
            assert_eq!(
                answer.text(),
                format!(
                    "Forbidden request: {path}{rest} (method :{method}). Please see the server logs for details.{told}"
                ),
                "{who}: {line}"
            );
        }
        assert_eq!(admitted, expected, "{line}");
    }
}

#[tokio::test]
async fn every_role_makes_exactly_its_calls_of_the_native_interface() {
    let calls = enrol::calls().into_iter();
    let calls: Vec<_> = calls
        .map(|(m, path, needs)| (m, path, Some(needs)))
        .collect();
    assert_complete(&NATIVE, &calls);
    let site = Site::open().await;
    let callers = site.callers().await;
    for (method, pattern, values, body, expected, needed) in NATIVE {
        let line = format!("{method} /enrol/v1{}", filled(pattern, values));
        let mut admitted = String::new();
        for (who, peer) in &callers {
            let answer = site.at_puppet(peer, &line, body).await;
            let refused = matches!(answer.status, 401 | 403);
            admitted.push(if refused { '.' } else { 'y' });
            if !refused {
                continue;
            }
            let (status, code, before) = match *who {
                "nobody" => (401, "unauthenticated", "show a client certificate: "),
                _ => (403, "forbidden", ""),
            };
            let needed = match (needed, *who) {
                ("a role", _) => "a role: admin, sign, mint or read".to_owned(),
                ("sign", "limited") => "the role sign for every name".to_owned(),
                // Has the role, and not for all of what the call is about.
                ("mint", "builder") if pattern.starts_with("/bootstrap-tokens") => {
                    "the role mint for every name".to_owned()
                }
                // Has the role, and not for the name in the body.
                ("mint", "builder") => "the role mint for absent.prod".to_owned(),
                _ => format!("the role {needed}"),
            };
            let error = &answer.json()["error"];
            assert_eq!(
                (
                    answer.status,
                    error["code"].as_str(),
                    error["message"].as_str()
                ),
                (
                    status,
                    Some(code),
                    Some(&*format!("{before}this call needs {needed}"))
                ),
                "{who}: {line}"
            );
        }
        assert_eq!(admitted, expected, "{line}");
    }
}

#[test]
fn the_document_names_the_role_of_every_call() {
    let document = include_str!("../../../../docs/http-api.md");
    for (method, path, needs) in enrol::calls() {
        let role = match needs {
            Needs::Any => unreachable!("{method} {path} needs one role or another"),
            Needs::Read => "`read`",
            Needs::MintOrRead => "`mint` or `read`",
            Needs::Mint(_) => "`mint`",
            Needs::Sign(_) => "`sign`",
            Needs::Admin => "`admin`",
        };
        let row = format!("| {method} `{path}` | {role} |");
        let found = document.lines().any(|line| line.starts_with(&row));
        assert!(found, "no line of docs/http-api.md begins with {row}");
    }
}

#[test]
fn the_document_names_the_role_of_every_call_of_the_puppet_door() {
    let document = include_str!("../../../../docs/http-api.md");
    let table = document.split("### Calls").nth(1).unwrap();
    let table = table.split("###").next().unwrap();
    for (method, path, needs) in puppet::calls() {
        let role = match needs {
            None => continue,
            Some(Needs::Read) => "`read`",
            Some(Needs::Sign(_)) => "`sign`",
            Some(Needs::Admin) => "`admin`",
            Some(other) => unreachable!("{method} {path} needs {other:?}"),
        };
        let path = path.trim_start_matches("/puppet-ca/v1");
        let is_about = |row: &&str| {
            let call = row.split(" | ").next().unwrap();
            call.contains(method.as_str()) && call.contains(path)
        };
        let named = table.lines().find(is_about);
        let named = named.is_some_and(|row| row.contains(role));
        assert!(
            named,
            "docs/http-api.md does not say that {method} {path} needs {role}"
        );
    }
}

/// Attributes may hold passwords, whatever interface shows them, and the manual says the same everywhere.
#[tokio::test]
async fn the_manual_and_the_code_agree_on_who_sees_a_whole_request() {
    let site = Site::open().await;
    let csr = CsrBuilder::new("agent.prod").challenge_password("correct-horse");
    site.ask(&csr, "agent.prod").await;
    let own = site.world.puppet_agent("agent.prod").await;
    let mut callers = site.callers().await;
    callers.push(("its own name", own));
    let see = |line: String| {
        let (site, callers) = (&site, &callers);
        async move {
            let mut whole = Vec::new();
            for (who, peer) in callers {
                let answer = site.at_puppet(peer, &line, "").await;
                let text = match answer.status {
                    200 if line.contains("enrol") => answer.json()["csr"].clone(),
                    200 => answer.text().into(),
                    _ => continue,
                };
                let text = text.as_str().unwrap().as_bytes().to_vec();
                let block = pem::decode_first(&text, &PemLimits::REQUEST)
                    .unwrap()
                    .unwrap();
                if block.der.windows(13).any(|part| part == b"correct-horse") {
                    whole.push(*who);
                }
            }
            whole
        }
    };
    let puppet = see(format!("GET {V1}/certificate_request/agent.prod")).await;
    assert_eq!(puppet, ["boss", "an administrator", "its own name"]);
    let native = see("GET /enrol/v1/requests/puppet/agent.prod".to_owned()).await;
    assert_eq!(native, ["boss", "an administrator"]);
    for (document, said) in [
        (
            include_str!("../../../../docs/configuration.md"),
            "only who has the role `admin` and the holder of the name's certificate",
        ),
        (
            include_str!("../../../../docs/http-api.md"),
            "so only who has `admin` and the holder of the name's certificate",
        ),
        (
            include_str!("../../../../docs/access.md"),
            "the whole message is for `admin`",
        ),
    ] {
        let words: Vec<&str> = document.split_whitespace().collect();
        assert!(
            words.join(" ").contains(said),
            "the manual does not say: {said}"
        );
    }
}

/// Who may not see or touch something gets the same answer whether it exists or not.
#[tokio::test]
async fn refusals_do_not_tell_what_exists() {
    let site = Site::open().await;
    site.wait("there.prod").await;
    let known = site.world.puppet_agent("known.prod").await;
    let known = known.identity(&site.world.authority);
    let countersign_server::PeerIdentity::Client(known) = known else {
        panic!("a certificate that counts");
    };
    let serial = known.certificate.serial().to_string();
    let callers = site.callers().await;
    // Who is refused, by what the call needs; for a certificate the limit is found on record, by who may read it.
    let list = ["nobody", "a foreign certificate", "agent"].as_slice();
    let read = [list, &["minter", "builder"]].concat();
    let read = read.as_slice();
    let sign = [read, &["reader", "limited"]].concat();
    let only_admins = [&sign[..], &["signer"]].concat();
    let only_admins = only_admins.as_slice();
    let revoke = [read, &["reader"]].concat();
    let mint = [list, &["reader", "builder", "signer", "limited"]].concat();
    let admin = site.world.puppet_admin().await;
    for line in [
        "PUT /enrol/v1/machines/there.prod",
        "PUT /enrol/v1/windows/there.prod",
    ] {
        assert_eq!(site.at_puppet(&admin, line, "{}").await.status, 201);
    }
    let (waiting, issued) = (["there.prod", "gone.prod"], ["known.prod", "gone.prod"]);
    let serials = [&*serial, "7F"];
    for (line, names, refused) in [
        (
            "GET /puppet-ca/v1/certificate_request/NAME",
            waiting,
            only_admins,
        ),
        (
            "DELETE /puppet-ca/v1/certificate_request/NAME",
            waiting,
            &sign,
        ),
        ("GET /puppet-ca/v1/certificate_status/NAME", issued, read),
        ("PUT /puppet-ca/v1/certificate_status/NAME", waiting, &sign),
        (
            "DELETE /puppet-ca/v1/certificate_status/NAME",
            issued,
            &sign,
        ),
        ("GET /enrol/v1/requests/puppet/NAME", waiting, read),
        ("DELETE /enrol/v1/requests/puppet/NAME", waiting, &sign),
        (
            "POST /enrol/v1/requests/puppet/NAME/approve",
            waiting,
            &sign,
        ),
        ("POST /enrol/v1/requests/puppet/NAME/deny", waiting, &sign),
        ("GET /enrol/v1/certificates/puppet/NAME", serials, read),
        (
            "POST /enrol/v1/certificates/puppet/NAME/revoke",
            serials,
            &revoke,
        ),
        ("GET /enrol/v1/machines/NAME", waiting, list),
        ("PUT /enrol/v1/machines/NAME", waiting, &mint),
        ("DELETE /enrol/v1/machines/NAME", waiting, &mint),
        ("GET /enrol/v1/windows/NAME", waiting, list),
        ("PUT /enrol/v1/windows/NAME", waiting, &mint),
        ("DELETE /enrol/v1/windows/NAME", waiting, &mint),
    ] {
        for (who, peer) in callers.iter().filter(|(who, _)| refused.contains(who)) {
            let mut told = Vec::new();
            for name in names {
                let answer = site.at_puppet(peer, &line.replace("NAME", name), "").await;
                assert!(matches!(answer.status, 401 | 403), "{who}: {line}");
                told.push((answer.status, answer.text().replace(name, "NAME")));
            }
            assert_eq!(told.first(), told.last(), "{who}: {line}");
        }
    }
    assert_eq!(site.state("there.prod").await, Some(RequestState::Pending));
}

/// Roles are looked up for each request: connections that are open when the table changes, or a certificate is revoked,
/// are no exception.
#[tokio::test]
async fn roles_end_on_open_connections() {
    let site = Site::open().await;
    let line = "GET /enrol/v1/requests";
    let reader = site.world.puppet_agent("reader").await;
    assert_eq!(site.at_puppet(&reader, line, "").await.status, 200);
    site.access.set(Vec::new());
    assert_eq!(site.at_puppet(&reader, line, "").await.status, 403);
    site.access.set(entries());
    assert_eq!(site.at_puppet(&reader, line, "").await.status, 200);
    let authority = &site.world.authority;
    let issuer = site.world.puppet_issuer();
    let reason = RevocationReason::Unspecified;
    let actor = Actor::authority();
    let revoked = authority
        .ledger
        .revoke_name(&issuer, "reader", reason, &actor);
    revoked.await.unwrap();
    assert_eq!(site.at_puppet(&reader, line, "").await.status, 403);
}

/// A short value can be found from its hash: who only reads does not see that either.
#[tokio::test]
async fn hashes_of_values_are_for_administrators() {
    let site = Site::open().await;
    let path = "/enrol/v1/signing-policies";
    let put = |body: String| {
        let line = format!("PUT {path}/puppet/production");
        let site = &site;
        async move {
            let admin = site.world.puppet_admin().await;
            site.at_puppet(&admin, &line, &body).await
        }
    };
    let set = r#"{"policies": [{"name": "p", "spec": {"certificateAuthorityRef": "production",
        "csrAttributes": [{"name": "pp_preshared_key", "value": "1234"}]}}]}"#;
    assert_eq!(put(set.to_owned()).await.status, 204);
    for (caller, is_shown) in [("reader", false), ("signer", false), ("boss", true)] {
        let peer = site.world.puppet_agent(caller).await;
        let answer = site.at_puppet(&peer, &format!("GET {path}"), "").await;
        assert_eq!(answer.status, 200, "{caller}");
        let shown = answer.json()["authorities"]["puppet/production"].clone();
        let attribute = &shown["policies"][0]["spec"]["csrAttributes"][0];
        assert_eq!(attribute["name"], "pp_preshared_key", "{caller}");
        let hash = &attribute["valueHash"];
        assert_eq!(hash["sha256"].is_string(), is_shown, "{caller}: {hash}");
        if !is_shown {
            assert_eq!(hash, "withheld", "{caller}");
            // As it is shown it says nothing, and cannot be put back by accident.
            let answer = put(shown.to_string()).await;
            assert_eq!(answer.status, 422, "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn kubernetes_groups_have_roles_at_their_own_listener_alone() {
    let site = Site::open().await;
    site.wait("web.prod").await;
    let read = "GET /enrol/v1/requests";
    let approve = "POST /enrol/v1/requests/puppet/web.prod/approve";
    let (window, other) = (
        "PUT /enrol/v1/windows/a.lab",
        "PUT /enrol/v1/windows/a.prod",
    );
    let callers = [
        (site.world.anonymous(), [401; 4]),
        // Certificates of the other trust domain, whatever they may do there.
        (site.world.puppet_admin().await, [401; 4]),
        (site.world.puppet_agent("boss").await, [401; 4]),
        // The Kubernetes door's own administrators have no role here unless they are given one.
        (site.world.kubernetes_admin().await, [403; 4]),
        (site.user("joe", "dev").await, [403; 4]),
        // A user's name is no certname.
        (site.user("signer", "dev").await, [403; 4]),
        (site.user("amy", "auditors").await, [200, 403, 403, 403]),
        (site.user("dan", "deciders").await, [200, 200, 403, 403]),
        (site.user("bea", "builders").await, [403, 403, 201, 403]),
    ];
    for (peer, expected) in &callers {
        let mut found = Vec::new();
        for line in [read, approve, window, other] {
            found.push(site.at_kubernetes(peer, line).await.status);
        }
        assert_eq!(found, expected, "{peer:?}");
    }
    let authority = &site.world.authority;
    let record = authority
        .requests
        .at(&PuppetDoor::DOOR, "web.prod", Past::Include)
        .await;
    let record = record.unwrap().unwrap();
    let by = record.explanation.by.unwrap();
    let actor = serde_json::to_value(&by).unwrap();
    assert_eq!(actor["actor"]["identity"]["username"], "dan", "{actor}");

    // And the reverse: groups mean nothing at the Puppet listener.
    let dan = site.user("dan2", "deciders").await;
    assert_eq!(site.at_puppet(&dan, read, "").await.status, 403);
    let grouped = CsrBuilder::new("grouped").organization("owners");
    let grouped = site.world.client(PUPPET_AGENT, "grouped", &grouped).await;
    assert_eq!(site.at_puppet(&grouped, read, "").await.status, 403);

    // Who asks to act as somebody else is refused, not recorded under its own name.
    let answer = Call::new(&dan, read)
        .header("impersonate-user", "root")
        .send(&site.kubernetes)
        .await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    // The rest of the listener is the Kubernetes door's, and administrators cannot be made here.
    let owner = site.user("eve", "owners").await;
    assert_eq!(site.at_kubernetes(&owner, "GET /apis").await.status, 200);
    let body = r#"{"name":"x","signer":"countersign.dev/puppet-admin","csr":""}"#;
    let answer = Call::new(&owner, "POST /enrol/v1/requests")
        .body(body)
        .send(&site.kubernetes)
        .await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    let (anybody, document) = (site.world.anonymous(), "GET /enrol/v1/openapi.json");
    assert_eq!(site.at_kubernetes(&anybody, document).await.status, 200);
}

const V1: &str = "/puppet-ca/v1";

/// Attributes of requests may hold one-time passwords: who may read sees the rest.
#[tokio::test]
async fn secrets_stay_secret_from_those_who_may_only_read_or_sign() {
    let site = Site::open().await;
    let csr = CsrBuilder::new("new.lab").challenge_password("s3cret-once");
    site.ask(&csr, "new.lab").await;
    for (name, peer) in site.callers().await {
        let sees_all = matches!(name, "boss" | "an administrator");
        let shown = site
            .at_puppet(&peer, "GET /enrol/v1/requests/puppet/new.lab", "")
            .await;
        if shown.status == 200 {
            let json = shown.json();
            let text = json["csr"].as_str().unwrap();
            let blocks = pem::decode_all(text.as_bytes(), &PemLimits::REQUEST).unwrap();
            let der = &blocks.first().unwrap().der;
            let secret = b"s3cret-once".as_slice();
            let has_it = der.windows(secret.len()).any(|window| window == secret);
            assert_eq!(has_it, sees_all, "{name}");
        }
        let line = format!("GET {V1}/certificate_request/new.lab");
        let shown = site.at_puppet(&peer, &line, "").await;
        assert_eq!(shown.status == 200, sees_all, "{name}: {}", shown.text());
    }
}

//! The listing of everything, byte for byte: it is written and read by a way of its own.

use countersign_authority::profile::{Authorization, OtherNames};
use countersign_authority::store::{Change, Write};
use countersign_authority::{LedgerEntry, Revoked, Store as _};
use countersign_pki::{
    AltName, Certificate, CheckedCsr, Extension, Oid, RevocationReason, Serial, UnixTime,
    fingerprint_sha256, oid, pem, sha1_colon, sha512_colon,
};
use countersign_testkit::keys;

use super::{Fleet, V1, agent};
use crate::exchange::Call;
use crate::world::{START, Setup};

#[tokio::test]
async fn a_listing_shows_every_kind_of_certificate_as_its_entry_says() {
    let setup = Setup {
        alt_names: OtherNames::DnsAndIp,
        authorization: Authorization::Copied,
        ..Setup::STRICT
    };
    let fleet = Fleet::of(setup).await;
    let waiting = agent("waiting").dns("w.example.com").sign(keys::p256_a());
    let several = [
        agent("plain"),
        agent("names")
            .dns("b.example.com")
            .dns("a.example.com")
            .ip("2001:db8::1".parse().unwrap())
            .ip("192.0.2.1".parse().unwrap()),
        agent("extended")
            .extension(&Oid::parse("1.3.6.1.4.1.34380.1.1.1").unwrap(), "an id")
            .extension(
                &Oid::parse("1.3.6.1.4.1.34380.1.3.13").unwrap(),
                "say \"x\"",
            )
            .extension(&Oid::parse("1.3.6.1.4.1.34380.1.3.99").unwrap(), "y"),
    ];
    for (csr, name) in several.iter().zip(["plain", "names", "extended"]) {
        assert_eq!(fleet.enrol(csr, name).await.status, 200);
        fleet.sign(name).await;
    }
    fleet.enrol(&agent("revoked"), "revoked").await;
    fleet.sign("revoked").await;
    fleet.revoke("revoked").await;
    fleet
        .put("waiting", pem::encode("CERTIFICATE REQUEST", &waiting))
        .await;
    import_others(&fleet).await;

    let entries = fleet
        .authority()
        .ledger
        .newest_of_each(&fleet.world.puppet_issuer(), None, 10_000)
        .await
        .unwrap();
    assert!(entries.len() > 1500, "{}", entries.len());
    let request = request_object(&waiting);
    for (query, wanted) in [
        ("", &["requested", "signed", "revoked"][..]),
        ("?state=requested", &["requested"]),
        ("?state=signed", &["signed"]),
        ("?state=revoked", &["revoked"]),
    ] {
        let mut expected: Vec<String> = Vec::new();
        if wanted.contains(&"requested") {
            expected.push(request.clone());
        }
        let listed = entries
            .iter()
            .filter(|entry| wanted.contains(&state(entry)));
        expected.extend(listed.filter_map(certificate_object));
        let line = format!("GET {V1}/certificate_statuses/all{query}");
        let answer = fleet.call(&fleet.admin, &line).await;
        assert_eq!(answer.status, 200);
        let expected = format!("[{}]", expected.join(","));
        let pairs = answer.text().bytes().zip(expected.bytes());
        let same = pairs.take_while(|(told, wanted)| told == wanted).count();
        let told = (answer.text().get(same..), answer.text().len());
        assert_eq!(told, (expected.get(same..), expected.len()), "{query}");
    }
}

/// What an authority before this one left, over several pages: ended, revoked, under odd names, with short and with
/// long serials, at the ends of time, and known by an inventory line only.
async fn import_others(fleet: &Fleet) {
    let issuer = fleet.world.puppet_issuer();
    let mut templates = Vec::new();
    for name in ["plain", "names", "extended"] {
        let entry = fleet.authority().ledger.newest(&issuer, name);
        templates.push(entry.await.unwrap().unwrap());
    }
    let mut change = Change::default();
    for (number, template) in (0..1600_u32).zip(templates.iter().cycle()) {
        let octets = fingerprint_sha256(&number.to_be_bytes());
        let length = 1 + usize::try_from(number % 20).unwrap();
        let mut entry = LedgerEntry {
            name: format!("old-{number:04}"),
            serial: Serial::from_be_bytes(octets.as_bytes().split_at(length).0).unwrap(),
            ..template.clone()
        };
        match number {
            0 => entry.name = "\"quoted\\\u{7f}\u{e9}\u{1}".to_owned(),
            1 => entry.der = Vec::new(),
            2 => entry.der.truncate(100),
            3 => entry.not_before = UnixTime(-1),
            4 => entry.not_after = UnixTime(253_402_300_800),
            5 => entry.retired = Some(START),
            6 => entry.not_after = UnixTime(1),
            _ => {}
        }
        // Of some serials there are only 255.
        if number > 100 && length < 6 {
            entry.serial = Serial::random_from(octets.as_bytes()[..16].try_into().unwrap());
        }
        if number % 7 == 3 {
            entry.revoked = Some(Revoked {
                at: START,
                reason: RevocationReason::Superseded,
            });
        }
        change.writes.push(Write::Import(entry));
    }
    fleet.world.store.commit(change).await.unwrap();
}

fn state(entry: &LedgerEntry) -> &'static str {
    match entry.revoked {
        Some(_) => "revoked",
        None => "signed",
    }
}

/// Nothing for one of which there is nothing but a line; one that cannot be read is shown without its content.
fn certificate_object(entry: &LedgerEntry) -> Option<String> {
    if entry.der.is_empty() {
        return None;
    }
    let date = |time: UnixTime| time.to_string().replace('Z', "UTC");
    let parsed = Certificate::parse(&entry.der);
    let read = parsed.as_ref().ok();
    let unreadable = parsed.as_ref().err().map_or_else(String::new, |fault| {
        let fault = serde_json::to_string(&fault.to_string()).unwrap();
        format!(r#","unreadable":{fault}"#)
    });
    Some(format!(
        r#"{{{},"serial_number":{},"not_before":"{}","not_after":"{}"{unreadable}}}"#,
        shared(
            (&entry.name, state(entry)),
            &entry.der,
            read.map_or(&[], |certificate| certificate.alt_names()),
            read.map_or(&[], |certificate| certificate.extensions()),
        ),
        entry.serial.to_decimal(),
        date(entry.not_before),
        date(entry.not_after),
    ))
}

#[tokio::test]
async fn a_request_that_was_taken_can_be_listed_signed_and_deleted_whatever_its_size() {
    let fleet = Fleet::of(Setup::STRICT).await;
    for octets in [32_000, 33_000, 48_000] {
        let name = format!("web-{octets}");
        let password = "x".repeat(octets);
        let csr = agent(&name).challenge_password(&password);
        assert_eq!(fleet.enrol(&csr, &name).await.status, 200, "{octets}");
        let line = format!("GET {V1}/certificate_status/{name}");
        let status = fleet.call(&fleet.admin, &line).await;
        assert_eq!(status.status, 200, "{octets}: {}", status.text());
        assert_eq!(status.json().get("unreadable"), None, "{octets}");
        assert_eq!(fleet.sign(&name).await.status, 204, "{octets}");
    }
    let longest = "x".repeat(49_152);
    let csr = agent("web01").challenge_password(&longest);
    assert_eq!(fleet.enrol(&csr, "web01").await.status, 413);
    assert_eq!(fleet.names("?state=requested").await, []);
}

#[tokio::test]
async fn a_request_on_record_that_cannot_be_read_is_listed_as_such_and_can_be_deleted() {
    let fleet = Fleet::of(Setup::STRICT).await;
    fleet.enrol(&agent("web00"), "web00").await;
    let damaged = ["web01", "web02"];
    for name in damaged {
        fleet.enrol(&agent(name), name).await;
        fleet.world.damage_request(name).await;
    }
    let line = format!("GET {V1}/certificate_statuses/x?state=requested");
    let listed = fleet.call(&fleet.admin, &line).await.json();
    let told: Vec<(&str, bool)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            let name = object["name"].as_str().unwrap();
            (name, object.get("unreadable").is_some())
        })
        .collect();
    assert_eq!(told, [("web00", false), ("web01", true), ("web02", true)]);
    let line = format!("GET {V1}/certificate_status/web01");
    let status = fleet.call(&fleet.admin, &line).await;
    assert_eq!(status.status, 200, "{}", status.text());
    assert!(status.json()["unreadable"].is_string(), "{}", status.text());
    let signed = fleet.sign("web01").await;
    assert_eq!(signed.status, 409, "{}", signed.text());
    assert!(signed.text().contains("delete it"), "{}", signed.text());
    let line = format!("POST {V1}/sign/all");
    let all = Call::new(&fleet.admin, &line).body("{}");
    let all = all.send(&fleet.door).await;
    assert_eq!(
        (all.status, all.text()),
        (
            200,
            r#"{"signed":["web00"],"no-csr":[],"signing-errors":["web01","web02"]}"#
        ),
        "one that cannot be read keeps no other from its certificate"
    );
    for (name, path) in damaged
        .iter()
        .zip(["certificate_status", "certificate_request"])
    {
        let line = format!("DELETE {V1}/{path}/{name}");
        let deleted = fleet.call(&fleet.admin, &line).await;
        assert_eq!(deleted.status, 204, "{line}: {}", deleted.text());
        assert_eq!(fleet.enrol(&agent(name), name).await.status, 200);
        assert_eq!(fleet.sign(name).await.status, 204);
    }
}

fn request_object(der: &[u8]) -> String {
    let csr = CheckedCsr::trusted_from_store(der).unwrap();
    let named = ("waiting", "requested");
    format!(
        "{{{}}}",
        shared(named, der, csr.alt_names(), csr.extensions())
    )
}

/// What both kinds of object have.
fn shared(
    (name, state): (&str, &str),
    der: &[u8],
    alt_names: &[AltName],
    extensions: &[Extension],
) -> String {
    let json = |value: &dyn ToString| serde_json::to_string(&value.to_string()).unwrap();
    let octets = fingerprint_sha256(der);
    let pairs: Vec<String> = octets
        .as_bytes()
        .iter()
        .map(|octet| format!("{octet:02X}"))
        .collect();
    let (sha256, sha1, sha512) = (pairs.join(":"), sha1_colon(der), sha512_colon(der));
    let of_kind = |is_wanted: fn(&AltName) -> bool| -> Vec<String> {
        let wanted = alt_names.iter().filter(|name| is_wanted(name));
        wanted.map(|name| json(&name.to_puppet_text())).collect()
    };
    let dns = of_kind(|name| matches!(name, AltName::Dns(_)));
    let every = [of_kind(|name| matches!(name, AltName::Ip(_))), dns.clone()].concat();
    let mut authorizations: Vec<(String, String)> = extensions
        .iter()
        .filter(|extension| extension.oid.is_under(&oid::PP_AUTH))
        .map(|extension| {
            let known = oid::registered_name(&extension.oid).map(str::to_owned);
            let name = known.unwrap_or_else(|| extension.oid.to_string());
            (name, extension.text_value().unwrap_or_default())
        })
        .collect();
    authorizations.sort();
    let authorizations: Vec<String> = authorizations
        .iter()
        .map(|(name, value)| format!("{}:{}", json(name), json(value)))
        .collect();
    format!(
        r#""name":{},"state":"{state}","fingerprint":"{sha256}","fingerprints":{{"SHA1":"{sha1}","SHA256":"{sha256}","SHA512":"{sha512}","default":"{sha256}"}},"dns_alt_names":[{}],"subject_alt_names":[{}],"authorization_extensions":{{{}}}"#,
        json(&name),
        dns.join(","),
        every.join(","),
        authorizations.join(",")
    )
}

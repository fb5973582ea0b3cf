//! Input from an enemy: whatever arrives, the answer is an object or a fault, soon and small.

use countersign_kapi::CertificateSigningRequest;
use countersign_kapi::decode;
use countersign_kapi::delete::DeleteOptions;
use countersign_kapi::negotiate::{self, BodyFormat, Offer};
use countersign_kapi::options::FieldValidation;
use countersign_kapi::patch::{self, PatchKind};
use countersign_kapi::protobuf::{Envelope, write};
use countersign_kapi::review::ReviewKind;
use countersign_kapi::selector::{FieldSelector, LabelSelector};
use countersign_kapi::{MAX_BODY_BYTES, validate};
use serde_json::json;

use crate::protobuf::full;
use crate::{accept, sample};

/// A small generator (xorshift) with a fixed seed: the same inputs on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    /// A copy with a few bytes changed, cut, repeated or swapped.
    fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = bytes.to_vec();
        for _ in 0..=self.roll(4) {
            if copy.is_empty() {
                break;
            }
            let at = self.roll(copy.len());
            match self.roll(5) {
                0 => copy[at] = u8::try_from(self.roll(256)).unwrap(),
                1 => copy.truncate(at),
                2 => copy.insert(at, u8::try_from(self.roll(256)).unwrap()),
                3 => copy[at] ^= 1 << self.roll(8),
                _ => {
                    let end = at + self.roll(copy.len() - at);
                    let piece = copy[at..end].to_vec();
                    copy.extend(piece);
                }
            }
        }
        copy
    }
}

fn feed(body: &[u8]) {
    for format in [BodyFormat::Json, BodyFormat::Protobuf] {
        if let Ok(decoded) =
            decode::object::<CertificateSigningRequest>(body, format, FieldValidation::Warn)
        {
            drop(validate::create(&decoded.object, &accept));
            drop(decoded.object.state_text());
            let again = write(&decoded.object);
            let read = decode::object::<CertificateSigningRequest>(
                &again,
                BodyFormat::Protobuf,
                FieldValidation::Strict,
            )
            .unwrap();
            assert_eq!(
                read.object, decoded.object,
                "what is read can be written and read again"
            );
        }
        drop(DeleteOptions::decode(body, format));
        drop(ReviewKind::Access.decode(body, format));
    }
    for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic] {
        drop(patch::apply(kind, &sample(), body, FieldValidation::Warn));
    }
    let text = String::from_utf8_lossy(body);
    drop(LabelSelector::parse(&text));
    drop(FieldSelector::parse::<CertificateSigningRequest>(&text));
    drop(negotiate::answer_form(Some(&text), Offer::All));
}

#[test]
fn mutated_bodies_never_panic() {
    let seeds = [
        write(&full()),
        serde_json::to_vec(&full()).unwrap(),
        br#"[{"op":"copy","from":"/metadata","path":"/metadata/labels"},{"op":"add","path":"/spec/usages/-","value":"any"}]"#.to_vec(),
        br#"{"metadata":{"$retainKeys":["name"],"ownerReferences":[{"uid":"u","$patch":"delete"}],"finalizers":["a"]}}"#.to_vec(),
        b"app in (a,b),!c,d notin (e),f!=g,h>1".to_vec(),
        br"metadata.name=a\,b,spec.signerName!=c".to_vec(),
        b"application/json;as=Table;v=v1;g=meta.k8s.io;q=0.5, */*".to_vec(),
    ];
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for seed in &seeds {
        feed(seed);
        for _ in 0..1_500 {
            feed(&dice.mutate(seed));
        }
    }
}

#[test]
fn every_truncation_is_a_fault_or_an_object() {
    let body = write(&full());
    (0..body.len()).for_each(|length| feed(&body[..length]));
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{\"metadata\":", "}")] {
        let body = format!("{}0{}", open.repeat(100_000), close.repeat(100_000));
        assert!(
            decode::object::<CertificateSigningRequest>(
                body.as_bytes(),
                BodyFormat::Json,
                FieldValidation::Ignore
            )
            .is_err()
        );
        feed(body.as_bytes());
    }
}

#[test]
fn bodies_of_empty_elements_do_not_swell() {
    let fill = |item: &str, tail: &str, head: &str| {
        format!(
            "{head}{}{tail}",
            item.repeat((MAX_BODY_BYTES - 100) / item.len())
        )
    };
    let json = [
        fill("{},", "{}]}}", "{\"status\":{\"conditions\":["),
        fill("\"\",", "\"\"]}}", "{\"spec\":{\"usages\":["),
        fill("0,", "0]", "["),
    ];
    for body in &json {
        let fault = decode::object::<CertificateSigningRequest>(
            body.as_bytes(),
            BodyFormat::Json,
            FieldValidation::Warn,
        )
        .unwrap_err();
        assert!(fault.to_string().contains("too many values"), "{fault}");
    }
    let mut status = Vec::new();
    (0..1_000_000).for_each(|_| status.extend([0x0a, 0x00]));
    let mut raw = vec![0x1a, 0x80, 0x89, 0x7a];
    raw.extend(&status);
    let body = Envelope {
        api_version: "",
        kind: "",
        raw: &raw,
    }
    .write();
    let fault = decode::object::<CertificateSigningRequest>(
        &body,
        BodyFormat::Protobuf,
        FieldValidation::Warn,
    )
    .unwrap_err();
    assert!(fault.to_string().contains("too many values"), "{fault}");
}

#[test]
fn many_errors_make_a_short_answer() {
    let mut object = sample();
    object.spec.usages = (0..50_000).map(|n| format!("usage {n}")).collect();
    object.spec.request = vec![0; 2 << 20];
    object.metadata.labels = (0..10_000)
        .map(|n| (format!("-{n}"), String::new()))
        .collect();
    let errors = validate::create(&object, &|_| Err("no".into()));
    let status = countersign_kapi::Resource::CSR.invalid("a", &errors);
    assert!(serde_json::to_vec(&status).unwrap().len() < 512 * 1024);
}

#[test]
fn costly_patches_are_stopped() {
    let zeros = vec![0; 90_000];
    let mut operations = vec![json!({"op": "add", "path": "/status/x", "value": zeros})];
    operations.extend((0..1_000).map(|_| json!({"op": "add", "path": "/status/x/0", "value": 1})));
    let body = serde_json::to_vec(&operations).unwrap();
    let fault =
        patch::apply(PatchKind::Json, &sample(), &body, FieldValidation::Ignore).unwrap_err();
    assert!(fault.to_string().contains("too much work"), "{fault}");
}

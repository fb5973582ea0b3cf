//! The pod of a request, as it is written.

use std::collections::BTreeMap;

use crate::facts::PodFacts;
use crate::fields::{Field, Fields, Reading};

/// Reads a pod; namespace, name and service account must be there.
pub(super) fn pod(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<PodFacts> {
    let fields = field.fields(&KEYS, reading)?;
    let text = |key: &str, reading: &mut Reading<'_>| fields.get(key)?.text(reading);
    let required =
        |key: &str, reading: &mut Reading<'_>| fields.required(key, reading)?.text(reading);
    let namespace = required("namespace", reading);
    let name = required("name", reading);
    let service_account = required("serviceAccount", reading);
    Some(PodFacts {
        uid: text("uid", reading).unwrap_or_default(),
        service_account_uid: text("serviceAccountUID", reading).unwrap_or_default(),
        node: text("node", reading).unwrap_or_default(),
        labels: texts(&fields, "labels", reading),
        annotations: texts(&fields, "annotations", reading),
        namespace: namespace?,
        name: name?,
        service_account: service_account?,
    })
}

/// Says what a request of a pod cannot have: its sender is the pod's service account.
pub(super) fn refuse_other_senders(fields: &Fields<'_>, reading: &mut Reading<'_>) {
    for key in SENDERS {
        if fields.get(key).is_some() {
            let what = "a pod's request is sent for its service account: leave this out";
            fields.complain(key, reading, what);
        }
    }
}

fn texts(fields: &Fields<'_>, key: &str, reading: &mut Reading<'_>) -> BTreeMap<String, String> {
    let fields = fields.get(key).and_then(|field| field.any_fields(reading));
    let pairs = fields.iter().flat_map(Fields::all);
    pairs
        .filter_map(|(key, field)| Some((key.to_owned(), field.text(reading)?)))
        .collect()
}

const KEYS: [&str; 8] = [
    "namespace",
    "name",
    "uid",
    "serviceAccount",
    "serviceAccountUID",
    "node",
    "labels",
    "annotations",
];
const SENDERS: [&str; 5] = ["username", "groups", "uid", "extra", "certname"];

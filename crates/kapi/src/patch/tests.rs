use super::*;
use crate::model::CertificateSigningRequest;
use rstest::rstest;
use serde_json::json;

fn stored() -> CertificateSigningRequest {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "labels": {"x": "1", "y": "2"}, "finalizers": ["example.com/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-1"}]},
        "spec": {"request": "aGk=", "signerName": "example.com/s", "usages": ["client auth"]},
        "status": {"conditions": [{"type": "Approved", "status": "True", "lastUpdateTime": null}]}
    }))
    .unwrap()
}

fn patched(kind: PatchKind, patch: &Value) -> Result<Value, PatchFault> {
    let decoded = apply(
        kind,
        &stored(),
        patch.to_string().as_bytes(),
        FieldValidation::Warn,
    )?;
    Ok(serde_json::to_value(decoded.object).unwrap())
}

#[test]
fn merge_patch_sets_and_removes_labels() {
    let object = patched(
        PatchKind::Merge,
        &json!({"metadata": {"labels": {"x": null, "z": "3"}}}),
    )
    .unwrap();
    assert_eq!(object["metadata"]["labels"], json!({"y": "2", "z": "3"}));
    assert_eq!(object["metadata"]["name"], "a");
    let object = patched(
        PatchKind::Merge,
        &json!({"metadata": {"finalizers": ["example.com/g"]}}),
    )
    .unwrap();
    assert_eq!(
        object["metadata"]["finalizers"],
        json!(["example.com/g"]),
        "lists are replaced"
    );
}

#[test]
fn strategic_merge_follows_the_schema() {
    let rows = [
        (
            "labels merge",
            json!({"metadata": {"labels": {"z": "3"}}}),
            "/metadata/labels",
            json!({"x": "1", "y": "2", "z": "3"}),
        ),
        (
            "labels replace",
            json!({"metadata": {"labels": {"$patch": "replace", "z": "3"}}}),
            "/metadata/labels",
            json!({"z": "3"}),
        ),
        (
            "null removes",
            json!({"metadata": {"labels": {"x": null}}}),
            "/metadata/labels",
            json!({"y": "2"}),
        ),
        (
            "kept keys",
            json!({"metadata": {"labels": {"$retainKeys": ["y"]}}}),
            "/metadata/labels",
            json!({"y": "2"}),
        ),
        (
            "finalizers unite",
            json!({"metadata": {"finalizers": ["example.com/g", "example.com/f"]}}),
            "/metadata/finalizers",
            json!(["example.com/g", "example.com/f"]),
        ),
        (
            "finalizer removed",
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/f"],
            "finalizers": ["example.com/g"], "$setElementOrder/finalizers": ["example.com/g"]}}),
            "/metadata/finalizers",
            json!(["example.com/g"]),
        ),
        (
            "owner merges by uid",
            json!({"metadata": {"ownerReferences": [{"uid": "u-1", "controller": true}]}}),
            "/metadata/ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-1", "controller": true}]),
        ),
        (
            "conditions replace",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            "/status/conditions",
            json!([{"type": "Ready", "status": "True", "lastUpdateTime": null, "lastTransitionTime": null}]),
        ),
        (
            "usages replace",
            json!({"spec": {"usages": ["server auth"]}}),
            "/spec/usages",
            json!(["server auth"]),
        ),
    ];
    for (name, patch, path, expected) in rows {
        let object =
            patched(PatchKind::Strategic, &patch).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(object.pointer(path), Some(&expected), "{name}");
    }
    let gone = patched(
        PatchKind::Strategic,
        &json!({"metadata": {"ownerReferences": [{"uid": "u-1", "$patch": "delete"}]}}),
    );
    assert_eq!(gone.unwrap()["metadata"].get("ownerReferences"), None);
}

#[test]
fn kubectl_apply_of_an_existing_object_lands() {
    let patch = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}\n"}, "labels": {"team": "a"}}});
    let decoded = apply(
        PatchKind::Strategic,
        &stored(),
        patch.to_string().as_bytes(),
        FieldValidation::Strict,
    )
    .unwrap();
    assert_eq!(decoded.warnings, Vec::<String>::new());
    assert_eq!(decoded.object.metadata.labels["team"], "a");
    assert_eq!(decoded.object.spec, stored().spec);
}

#[rstest]
#[case("add", json!([{"op": "add", "path": "/metadata/labels/z~1q", "value": "3"}]), "/metadata/labels/z~1q", json!("3"))]
#[case("add at end", json!([{"op": "add", "path": "/spec/usages/-", "value": "any"}]), "/spec/usages", json!(["client auth", "any"]))]
#[case("insert", json!([{"op": "add", "path": "/spec/usages/0", "value": "any"}]), "/spec/usages", json!(["any", "client auth"]))]
#[case("remove", json!([{"op": "remove", "path": "/metadata/labels/x"}]), "/metadata/labels", json!({"y": "2"}))]
#[case("replace", json!([{"op": "replace", "path": "/metadata/labels/x", "value": "9"}]), "/metadata/labels/x", json!("9"))]
#[case("move", json!([{"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/w"}]), "/metadata/labels", json!({"w": "1", "y": "2"}))]
#[case("copy", json!([{"op": "copy", "from": "/metadata/labels/x", "path": "/metadata/labels/y"}]), "/metadata/labels/y", json!("1"))]
#[case("test", json!([{"op": "test", "path": "/metadata/labels/x", "value": "1"}]), "/metadata/name", json!("a"))]
fn json_patch_operation(
    #[case] name: &str,
    #[case] patch: Value,
    #[case] path: &str,
    #[case] expected: Value,
) {
    let object = patched(PatchKind::Json, &patch).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    assert_eq!(object.pointer(path), Some(&expected), "{name}");
}

#[rstest]
#[case(PatchKind::Json, json!([{"op": "test", "path": "/metadata/labels/x", "value": "2"}]), 422)]
#[case(PatchKind::Json, json!([{"op": "remove", "path": "/metadata/labels/none"}]), 422)]
#[case(PatchKind::Json, json!([{"op": "replace", "path": "/metadata/none", "value": 1}]), 422)]
#[case(PatchKind::Json, json!([{"op": "add", "path": "/spec/usages/9", "value": "any"}]), 422)]
#[case(PatchKind::Json, json!([{"op": "add", "path": "/spec/usages/01", "value": "any"}]), 422)]
#[case(PatchKind::Json, json!([{"op": "add", "path": "metadata", "value": {}}]), 422)]
#[case(PatchKind::Json, json!([{"op": "jump", "path": "/metadata"}]), 422)]
#[case(PatchKind::Json, json!([{"op": "move", "from": "/metadata", "path": "/metadata/labels"}]), 422)]
#[case(PatchKind::Json, json!({"op": "add"}), 400)]
#[case(PatchKind::Json, json!([{"op": "replace", "path": "/kind", "value": "Pod"}]), 400)]
#[case(PatchKind::Json, json!(vec![json!({"op": "test", "path": "/metadata/name", "value": "a"}); 10_001]), 413)]
#[case(PatchKind::Merge, json!([1]), 400)]
#[case(PatchKind::Merge, json!({"spec": {"usages": "any"}}), 400)]
#[case(PatchKind::Merge, json!({"apiVersion": "certificates.k8s.io/v1beta1"}), 400)]
#[case(PatchKind::Strategic, json!({"metadata": {"labels": {"$patch": "shuffle"}}}), 400)]
#[case(PatchKind::Strategic, json!({"metadata": {"$unknown": 1}}), 400)]
#[case(PatchKind::Strategic, json!({"metadata": {"ownerReferences": [{"name": "p"}]}}), 400)]
fn refused_patches_have_their_code(
    #[case] kind: PatchKind,
    #[case] patch: Value,
    #[case] code: u16,
) {
    assert_eq!(patched(kind, &patch).unwrap_err().code(), code);
}

#[test]
fn unknown_fields_in_a_patch_are_named() {
    let patch = br#"{"spec":{"colour":"red"}}"#;
    let fault = apply(PatchKind::Merge, &stored(), patch, FieldValidation::Strict).unwrap_err();
    assert!(
        fault
            .to_string()
            .ends_with("strict decoding error: unknown field \"spec.colour\""),
        "{fault}"
    );
    let warned = apply(PatchKind::Merge, &stored(), patch, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, ["unknown field \"spec.colour\""]);
}

#[test]
fn copying_cannot_grow_without_bound() {
    let doubling: Vec<Value> = (0..64)
        .map(|n| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/c{n}")}))
        .collect();
    let fault = patched(PatchKind::Json, &json!(doubling)).unwrap_err();
    assert_eq!(fault.code(), 422, "{fault}");
    let nesting: Vec<Value> = (0..200)
        .map(|_| json!({"op": "copy", "from": "/metadata", "path": "/metadata/c"}))
        .collect();
    assert_eq!(
        patched(PatchKind::Json, &json!(nesting))
            .unwrap_err()
            .code(),
        422
    );
}

use super::*;
use crate::model::CertificateSigningRequest;
use rstest::rstest;

#[rstest]
#[case("", true)]
#[case("app=web", true)]
#[case("app==web", true)]
#[case("app = web , tier", true)]
#[case("app!=web", false)]
#[case("gone!=x", true)]
#[case("gone=", false)]
#[case("empty=", true)]
#[case("app in (web, db)", true)]
#[case("app in(db)", false)]
#[case("app notin (db)", true)]
#[case("gone notin (db)", true)]
#[case("empty in (,x)", true)]
#[case("app", true)]
#[case("!app", false)]
#[case("!gone", true)]
#[case("count>6", true)]
#[case("count > 7", false)]
#[case("count<8", true)]
#[case("app<8", false)]
#[case("example.com/team=a,app=web", true)]
#[case("example.com/team=a,app=db", false)]
#[case("in in (in)", false)]
fn selects_by_labels(#[case] text: &str, #[case] selected: bool) {
    let labels = [
        ("app", "web"),
        ("tier", "1"),
        ("empty", ""),
        ("count", "7"),
        ("example.com/team", "a"),
    ];
    let labels = labels
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    assert_eq!(
        LabelSelector::parse(text).unwrap().matches(&labels),
        selected
    );
}

#[rstest]
#[case("app=web,")]
#[case(",app")]
#[case("app in web")]
#[case("app in (web")]
#[case("app in (web))")]
#[case("app=(web)")]
#[case("!app=web")]
#[case("app web")]
#[case("=web")]
#[case("-app")]
#[case("a/b/c")]
#[case("app=a b")]
#[case("app=-x")]
#[case("count>x")]
fn refuses_label_selector(#[case] text: &str) {
    assert!(LabelSelector::parse(text).is_err());
}

#[rstest]
#[case("", true)]
#[case("metadata.name=a", true)]
#[case("metadata.name==a,spec.signerName=example.com/s", true)]
#[case("metadata.name!=a", false)]
#[case("spec.signerName!=example.com/t", true)]
#[case("metadata.name=b", false)]
fn selects_by_fields(#[case] text: &str, #[case] selected: bool) {
    let mut object = CertificateSigningRequest::default();
    object.metadata.name = "a".into();
    object.spec.signer_name = "example.com/s".into();
    assert_eq!(
        FieldSelector::parse::<CertificateSigningRequest>(text)
            .unwrap()
            .matches(&object),
        selected
    );
}

#[test]
fn field_values_are_unescaped() {
    let mut object = CertificateSigningRequest::default();
    object.metadata.name = r"a,b=c\d".into();
    let selector =
        FieldSelector::parse::<CertificateSigningRequest>(r"metadata.name=a\,b\=c\\d").unwrap();
    assert!(selector.matches(&object));
    assert_eq!(selector.name(), Some(r"a,b=c\d"));
    assert_eq!(
        FieldSelector::parse::<CertificateSigningRequest>("metadata.name!=a")
            .unwrap()
            .name(),
        None
    );
}

#[rstest]
#[case("status.phase=x", "field label not supported: status.phase")]
#[case(
    "metadata.namespace=x",
    "field label not supported: metadata.namespace"
)]
#[case(
    "metadata.name",
    "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
)]
#[case(
    "metadata.name!a",
    "invalid selector: 'metadata.name!a'; can't understand 'metadata.name!a'"
)]
#[case(
    "metadata.name=a=b",
    "invalid selector: 'metadata.name=a=b'; can't understand 'metadata.name=a=b'"
)]
#[case(
    r"metadata.name=a\n",
    r"invalid field selector: invalid escape sequence: \n"
)]
fn refuses_field_selector(#[case] text: &str, #[case] fault: &str) {
    assert_eq!(
        FieldSelector::parse::<CertificateSigningRequest>(text)
            .unwrap_err()
            .to_string(),
        fault
    );
}

#[test]
fn long_selectors_are_refused() {
    let text = "a".repeat(MAX_SELECTOR_BYTES + 1);
    assert_eq!(LabelSelector::parse(&text), Err(SelectorFault::TooLong));
    assert_eq!(
        FieldSelector::parse::<CertificateSigningRequest>(&text),
        Err(SelectorFault::TooLong)
    );
}

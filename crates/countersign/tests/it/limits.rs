//! The limits of the configuration reach the doors.

use crate::site::{Site, TEXT, puppet_request};

#[test]
fn whoever_asks_too_often_is_told_when_to_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("countersign.yaml");
    std::fs::write(&config, "limits: {csr_per_minute_per_certname: 1}\n").unwrap();
    let site = Site::start(&["--config", config.to_str().unwrap()]);
    let (anonymous, admin) = (site.anonymous(), site.admin());
    let path = "/puppet-ca/v1/certificate_request/web01";
    let request = puppet_request("web01");
    let first = anonymous.call("PUT", path, &[TEXT], request.as_bytes());
    assert_eq!(first.unwrap().status, 200);

    // Long bodies too: the answer arrives, and the connection stays usable.
    let mut connection = anonymous.connect().unwrap();
    for body in [request.into_bytes(), vec![b'x'; 60_000]] {
        let answer = connection.call("PUT", path, &[TEXT], &body).unwrap();
        assert_eq!(answer.status, 429, "{}", answer.text());
        let wait: u32 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
    }
    let other = puppet_request("web02");
    let path_of_other = "/puppet-ca/v1/certificate_request/web02";
    let answer = connection.call("PUT", path_of_other, &[TEXT], other.as_bytes());
    assert_eq!(answer.unwrap().status, 200);
    for _ in 0..3 {
        let answer = admin.call("PUT", path, &[TEXT], b"garbage").unwrap();
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
}

//! What is sent. The order matters: later calls meet what earlier ones left.

mod administration;
mod enrolment;
mod fetching;

use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

/// One call.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) who: Who,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Vec<u8>,
    /// The body is the revocation list that the server itself has.
    pub(crate) own_crl: bool,
    /// Whether the answer matters; else the call only brings both servers to the same state.
    pub(crate) compared: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Anonymous,
    Agent,
    Admin,
}

use Who::{Admin, Anonymous};

/// A name too long for the names of files that Puppet Server makes of it.
const LONG: &str = match std::str::from_utf8(&[b'n'; 250]) {
    Ok(name) => name,
    Err(_) => "",
};

/// As the value of a header: the server's own time.
pub(crate) const NOW: &str = "<now>";

pub(crate) fn all() -> Vec<Call> {
    [
        fetching::certificates(),
        fetching::revocation_lists(),
        fetching::paths(),
        enrolment::submissions(),
        enrolment::names(),
        enrolment::bodies(),
        enrolment::keys_and_signatures(),
        enrolment::extensions(),
        administration::stored_requests(),
        administration::status_queries(),
        administration::status_changes(),
        tidying(),
        administration::listings(),
        administration::bulk_signing(),
        administration::cleaning(),
        administration::renewal_and_expirations(),
        fetching::service_status(),
        enrolment::hostile(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Paths are below `/puppet-ca/v1/` unless they begin with a slash.
fn call(name: &'static str, who: Who, method: &'static str, path: &str) -> Call {
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/puppet-ca/v1/{path}"),
    };
    Call {
        name,
        who,
        method,
        path,
        headers: Vec::new(),
        body: Vec::new(),
        own_crl: false,
        compared: true,
    }
}

fn get(name: &'static str, who: Who, path: &str) -> Call {
    call(name, who, "GET", path)
}

/// A request for `path`'s name as an agent sends it.
fn put_csr(name: &'static str, certname: &str, csr: &CsrBuilder) -> Call {
    put_text(name, certname, csr.sign_pem(keys::rsa2048_b()))
}

fn put_text(name: &'static str, certname: &str, text: impl Into<Vec<u8>>) -> Call {
    let path = format!("certificate_request/{certname}");
    call(name, Anonymous, "PUT", &path)
        .header("Content-Type", "text/plain")
        .body(text)
}

/// The common name is the certname.
fn ask(name: &'static str, certname: &str) -> Call {
    put_csr(name, certname, &CsrBuilder::new(certname))
}

/// What administrators send as JSON.
fn json(name: &'static str, method: &'static str, path: &str, body: &str) -> Call {
    call(name, Admin, method, path)
        .header("Content-Type", "application/json")
        .body(body)
}

fn put_status(name: &'static str, certname: &str, body: &str) -> Call {
    json(name, "PUT", &format!("certificate_status/{certname}"), body)
}

impl Call {
    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    fn with_own_crl(mut self) -> Self {
        self.own_crl = true;
        self
    }
}

/// Names of which the two do not have the same after the calls before: listings are compared without them.
fn tidying() -> Vec<Call> {
    [
        LONG,
        "ca",
        "...",
        "renew.auto.test",
        "trim1.test",
        "trim2.test",
        "company.test",
        "rsa1024.test",
        "badsig.test",
        "badsig.auto.test",
        "stolen.auto.test",
        "order.auto.test",
        "gone.test",
        "mail.auto.test",
        "uri.auto.test",
        "number.auto.test",
        "bare.auto.test",
        "digits.test",
    ]
    .map(tidy)
    .into()
}

/// Deletes what there is of a name, whatever the answer.
fn tidy(certname: &'static str) -> Call {
    let path = format!("certificate_status/{certname}");
    Call {
        compared: false,
        ..call(certname, Admin, "DELETE", &path)
    }
}

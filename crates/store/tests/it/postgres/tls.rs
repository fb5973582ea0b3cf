//! How the server is verified, and how a client shows who it is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use countersign_pki::AltName;
use countersign_store::PostgresStore;
use countersign_testkit::postgres::{Postgres, PostgresSettings, loopback_names};

async fn opened(url: &str) -> Result<(), String> {
    let address = url.parse().map_err(|fault| format!("{fault}"))?;
    let opened = PostgresStore::open(address, "a".to_owned()).await;
    opened.map(drop).map_err(|fault| fault.to_string())
}

fn server(names: Vec<AltName>) -> Postgres {
    let server = Postgres::start(PostgresSettings {
        tcp: true,
        tls_names: names,
        ..PostgresSettings::default()
    });
    let server = server.unwrap();
    let roles = "CREATE ROLE certified LOGIN SUPERUSER;
         CREATE ROLE secret LOGIN SUPERUSER PASSWORD 'pass:word'";
    server.sql("postgres", roles).unwrap();
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_verified_as_the_url_says() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(vec![AltName::Dns("localhost".to_owned())]);
    let passwords = folder.path().join("passwords");
    fs::write(&passwords, "*:*:postgres:secret:pass\\:word\n").unwrap();
    fs::set_permissions(&passwords, fs::Permissions::from_mode(0o600)).unwrap();
    let passwords = format!("passfile={}", passwords.display());
    let roots = format!("sslrootcert={}", server.ca_file().display());
    let (other, _) = server.client_pair("somebody");
    let other = format!("sslrootcert={}", other.display());

    for (host, settings, expected) in [
        ("localhost", roots.clone(), ""),
        ("localhost", format!("{roots}&sslmode=verify-full"), ""),
        (
            "127.0.0.1",
            format!("{roots}&sslmode=verify-full"),
            "no connection",
        ),
        ("127.0.0.1", format!("{roots}&sslmode=verify-ca"), ""),
        ("127.0.0.1", "sslmode=require".to_owned(), ""),
        (
            "127.0.0.1",
            format!("{other}&sslmode=require"),
            "no connection",
        ),
        ("localhost", other.clone(), "no connection"),
        // Whom the machine trusts has not certified it.
        (
            "localhost",
            "sslmode=verify-full".to_owned(),
            "no connection",
        ),
        ("127.0.0.1", "sslmode=disable".to_owned(), ""),
    ] {
        let url = server.tcp_url(host, "secret", "postgres");
        let said = opened(&format!("{url}?{passwords}&{settings}")).await;
        match said {
            Ok(()) => assert_eq!(expected, "", "{host} {settings}"),
            Err(said) => {
                assert!(
                    !expected.is_empty() && said.contains(expected),
                    "{host} {settings}: {said}"
                );
                assert!(!said.contains("pass:word"), "{said}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_can_show_a_certificate() {
    let server = server(loopback_names());
    let url = server.tcp_url("127.0.0.1", "certified", "postgres");
    let roots = format!("sslrootcert={}", server.ca_file().display());
    let pair = |name: &str| {
        let (certificate, key) = server.client_pair(name);
        format!("sslcert={}&sslkey={}", certificate.display(), key.display())
    };
    opened(&format!("{url}?{roots}&{}", pair("certified")))
        .await
        .unwrap();
    let said = opened(&format!("{url}?{roots}&{}", pair("somebody")))
        .await
        .unwrap_err();
    assert!(said.contains("certificate authentication failed"), "{said}");
    let said = opened(&format!("{url}?{roots}")).await.unwrap_err();
    assert!(said.contains("connection"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_not_spoken_to_in_clear() {
    let server = server(Vec::new());
    let url = server.tcp_url("127.0.0.1", "secret", "postgres");
    let said = opened(&format!("{url}?sslmode=require")).await.unwrap_err();
    assert!(said.contains("TLS") || said.contains("tls"), "{said}");
}

//! One role makes the tables, another only serves.

use countersign_authority::Revision;
use countersign_authority::store::{AuditReads as _, Store as _};
use countersign_store::PostgresStore;
use countersign_store_suite::Sample;
use countersign_testkit::postgres::{Postgres, PostgresSettings};

const ROLES: &str = include_str!("../../../../../deploy/postgresql/roles.sql");
const NARROW: &str = include_str!("../../../../../deploy/postgresql/narrow.sql");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_serves_needs_no_right_to_change_tables() {
    let server = Postgres::start(PostgresSettings::default()).unwrap();
    server.create_database("ca").unwrap();
    server.sql("ca", ROLES).unwrap();
    let open = async |role: &str| {
        let address = server.socket_url(role, "ca").parse().unwrap();
        PostgresStore::open(address, role.to_owned()).await
    };
    let refused = open("countersign").await.err().unwrap().to_string();
    assert!(
        refused.contains("role countersign may not make or change the tables"),
        "{refused}"
    );

    drop(open("countersign_owner").await.unwrap());
    server.sql("ca", NARROW).unwrap();
    let (store, sample) = (open("countersign").await.unwrap(), Sample::default());
    let enrolment = sample.enrolment("a");
    store.commit(enrolment.intend(&sample)).await.unwrap();
    store.commit(enrolment.record(&sample)).await.unwrap();
    assert!(
        !store
            .audit(Revision::default(), 10)
            .await
            .unwrap()
            .is_empty()
    );

    for forbidden in [
        "DELETE FROM audit",
        "UPDATE audit SET entry = ''",
        "DELETE FROM certificates",
        "DROP TABLE audit",
        "CREATE TABLE mine (x int)",
        "UPDATE schema_migrations SET number = 2",
    ] {
        let as_role = format!("SET ROLE countersign; SET search_path = countersign; {forbidden}");
        let refused = server.sql("ca", &as_role).unwrap_err().to_string();
        assert!(
            refused.contains("permission denied") || refused.contains("must be owner"),
            "{forbidden}: {refused}"
        );
    }
}

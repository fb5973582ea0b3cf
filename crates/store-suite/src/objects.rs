//! Objects of doors: kept under their name, changed only as they were read.

use countersign_authority::store::{Change, CommitFault, Precondition, Store, Write};
use countersign_authority::{ObjectKey, ObjectRecord, Revision};

use super::sample::write;
use super::{Ground, Sample};

/// What is kept comes back; a name is one of its kind and namespace.
pub async fn an_object_comes_back_field_by_field(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut expected = Vec::new();
    for key in [
        key("roles", "lab", "a"),
        key("clusterroles", "", "b"),
        key("roles", "", "a"),
        key("roles", "lab", "ä \"\""),
        key("clusterroles", "", "a"),
    ] {
        let mut record = sample.object(key);
        record.version = put(&*store, &record).await;
        expected.push(record);
    }
    expected.sort_by(|one, other| one.key.cmp(&other.key));
    let at = *store.revisions().borrow();
    assert_eq!(store.objects().await.unwrap(), (at, expected.clone()));
    for record in expected {
        let found = store.object(&record.key).await.unwrap();
        assert_eq!(found, Some(record));
    }
    let unknown = store.object(&key("roles", "other", "a")).await.unwrap();
    assert_eq!(unknown, None);
}

/// Another body under the same name is the same object.
pub async fn an_object_keeps_its_identity_and_age(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let first = sample.object(key("roles", "lab", "a"));
    let added = put(&*store, &first).await;
    let again = ObjectRecord {
        body: b"another".to_vec(),
        ..sample.object(first.key.clone())
    };
    let replaced = put(&*store, &again).await;
    assert!(replaced > added);
    let expected = ObjectRecord {
        version: replaced,
        body: again.body,
        ..first
    };
    let found = store.object(&expected.key).await.unwrap().unwrap();
    assert_eq!(found, expected);

    // Once it is gone, the name is another object's.
    delete(&*store, &expected.key).await;
    assert_eq!(store.object(&expected.key).await.unwrap(), None);
    let mut other = sample.object(expected.key.clone());
    other.version = put(&*store, &other).await;
    assert_ne!(other.id, expected.id);
    let found = store.object(&expected.key).await.unwrap();
    assert_eq!(found, Some(other));
}

/// Whoever read an object finds out that it is not what it was, or that there is one now.
pub async fn an_object_that_changed_since_it_was_read_is_a_conflict(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let record = sample.object(key("roles", "lab", "a"));
    assert!(holds(&*store, &record.key, None).await);
    assert!(!holds(&*store, &record.key, Some(Revision(0))).await);
    let added = put(&*store, &record).await;
    assert!(!holds(&*store, &record.key, None).await);
    assert!(holds(&*store, &record.key, Some(added)).await);
    assert!(holds(&*store, &key("roles", "", "a"), None).await);
    let replaced = put(&*store, &record).await;
    assert!(!holds(&*store, &record.key, Some(added)).await);
    assert!(holds(&*store, &record.key, Some(replaced)).await);
    delete(&*store, &record.key).await;
    assert!(holds(&*store, &record.key, None).await);
    assert!(!holds(&*store, &record.key, Some(replaced)).await);
}

/// Of many who make the same object, one does.
pub async fn one_of_many_makes_an_object(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let key = key("roles", "lab", "a");
    let tries = (0..16).map(|_| {
        store.commit(Change {
            preconditions: vec![Precondition::ObjectAt {
                key: key.clone(),
                version: None,
            }],
            writes: vec![Write::PutObject(sample.object(key.clone()))],
            audit: Vec::new(),
        })
    });
    let ended = futures_util::future::join_all(tries).await;
    let made: Vec<_> = ended.iter().flatten().collect();
    assert_eq!(made.len(), 1, "{ended:?}");
    let found = store.object(&key).await.unwrap().unwrap();
    assert_eq!(found.version, made[0].revision);
    let states = store.states(Revision::default(), 100).await.unwrap();
    assert_eq!(states.len(), 1);
}

async fn put(store: &dyn Store, record: &ObjectRecord) -> Revision {
    write(store, vec![Write::PutObject(record.clone())])
        .await
        .revision
}

async fn delete(store: &dyn Store, key: &ObjectKey) {
    let key = key.clone();
    write(store, vec![Write::DeleteObject { key }]).await;
}

async fn holds(store: &dyn Store, key: &ObjectKey, version: Option<Revision>) -> bool {
    let key = key.clone();
    let precondition = Precondition::ObjectAt { key, version };
    let change = Change {
        preconditions: vec![precondition.clone()],
        ..Change::default()
    };
    match store.commit(change).await {
        Ok(_) => true,
        Err(CommitFault::Conflict {
            precondition: failed,
        }) => {
            assert_eq!(failed, precondition);
            false
        }
        Err(other) => panic!("{other}"),
    }
}

fn key(kind: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        kind: format!("{kind}.rbac.authorization.k8s.io"),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

//! Objects of doors: made once, changed as they were seen, told in the audit log and in the history.

use countersign_authority::{
    Authority, ObjectFault, ObjectKey, ObjectOrder, Revision, State, StateChangeKind,
};
use countersign_policy::Requester;

use crate::world::World;

/// More than one commit forgets.
const MANY: usize = 1200;

fn order(name: &str, body: &str, expected: Option<Revision>) -> ObjectOrder {
    ObjectOrder {
        key: ObjectKey {
            kind: "clusterroles.rbac.authorization.k8s.io".to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
        },
        actor: Requester::authority(),
        expected,
        body: body.as_bytes().to_vec(),
        detail: Some(format!("now {body}")),
    }
}

async fn audited(authority: &Authority) -> Vec<(String, String, String)> {
    let entries = authority
        .audit
        .after(Revision::default(), 1000)
        .await
        .unwrap();
    let entries = entries.into_iter().map(|(_, entry)| entry);
    let of_objects = entries.filter(|entry| entry.subject.starts_with("clusterroles."));
    of_objects
        .map(|entry| (entry.action.into_owned(), entry.subject, entry.detail))
        .collect()
}

#[tokio::test]
async fn an_object_lives_under_its_name_and_every_change_is_told() {
    let world = World::new(false).await;
    let authority = &world.authority;
    let made = authority.objects.create(order("a", "1", None)).await;
    let made = made.unwrap();
    let again = authority.objects.create(order("a", "2", None)).await;
    assert!(
        matches!(again, Err(ObjectFault::Exists { .. })),
        "{again:?}"
    );

    let same = authority.objects.update(order("a", "1", None)).await;
    assert_eq!(same.unwrap(), made, "nothing changed");
    let seen = Some(made.version);
    let changed = authority
        .objects
        .update(order("a", "2", seen))
        .await
        .unwrap();
    assert_eq!((changed.id, changed.created), (made.id, made.created));
    assert!(changed.version > made.version);
    let late = authority.objects.update(order("a", "3", seen)).await;
    assert!(matches!(late, Err(ObjectFault::Changed { .. })), "{late:?}");
    let late = authority.objects.delete(order("a", "", seen)).await;
    assert!(matches!(late, Err(ObjectFault::Changed { .. })), "{late:?}");
    let found = authority.objects.get(&made.key).await.unwrap();
    assert_eq!(found, Some(changed.clone()));

    let gone = authority
        .objects
        .delete(order("a", "", None))
        .await
        .unwrap();
    assert_eq!((gone.id, &gone.body), (made.id, &changed.body));
    assert!(gone.version > changed.version);
    for missing in [
        authority.objects.update(order("a", "3", None)).await,
        authority.objects.delete(order("a", "", None)).await,
    ] {
        let missing = missing.unwrap_err();
        assert_eq!(
            missing.to_string(),
            "there is no clusterroles.rbac.authorization.k8s.io/a"
        );
    }

    let states = authority
        .objects
        .states(Revision::default(), 100)
        .await
        .unwrap();
    let objects = states.into_iter().map(|state| match state.state {
        State::Object(object) => (state.kind, *object),
        State::Request(request) => panic!("{request:?}"),
    });
    assert_eq!(
        objects.collect::<Vec<_>>(),
        [
            (StateChangeKind::Added, made),
            (StateChangeKind::Modified, changed),
            (StateChangeKind::Deleted, gone),
        ]
    );
    let subject = "clusterroles.rbac.authorization.k8s.io/a";
    let told = ["create", "update", "delete"].map(|verb| format!("{verb} clusterrole"));
    let details = ["now 1", "now 2", "now "];
    let expected = told.into_iter().zip(details);
    let expected: Vec<_> = expected
        .map(|(action, detail)| (action, subject.to_owned(), detail.to_owned()))
        .collect();
    assert_eq!(audited(authority).await, expected);
}

#[tokio::test]
async fn those_who_change_an_object_at_once_all_succeed_or_are_told() {
    let world = World::new(false).await;
    let authority = &world.authority;
    let made = authority
        .objects
        .create(order("a", "0", None))
        .await
        .unwrap();
    let blind = (1..=4).map(|number| {
        let body = number.to_string();
        async move { authority.objects.update(order("a", &body, None)).await }
    });
    let ended = futures_util::future::join_all(blind).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let at = authority
        .objects
        .get(&made.key)
        .await
        .unwrap()
        .unwrap()
        .version;
    let seen = (5..=8).map(|number| {
        let body = number.to_string();
        async move { authority.objects.update(order("a", &body, Some(at))).await }
    });
    let ended = futures_util::future::join_all(seen).await;
    assert_eq!(ended.iter().flatten().count(), 1, "{ended:?}");
    let late = ended.iter().flat_map(|ended| ended.as_ref().err());
    assert!(
        late.into_iter()
            .all(|fault| matches!(fault, ObjectFault::Changed { .. }))
    );
}

#[tokio::test]
async fn the_history_is_forgotten_up_to_what_is_asked_for() {
    let world = World::new(false).await;
    let authority = &world.authority;
    let made = (0..MANY).map(|number| {
        let name = number.to_string();
        async move { authority.objects.create(order(&name, "1", None)).await }
    });
    let made = futures_util::future::join_all(made).await;
    let versions = made.into_iter().map(|made| made.unwrap().version);
    let before = versions.max().unwrap();
    authority.objects.trim(before).await.unwrap();
    let left = authority
        .objects
        .states(Revision::default(), 10)
        .await
        .unwrap();
    assert_eq!(left.len(), 1);
    let horizon = authority.objects.horizon(usize::MAX).await.unwrap();
    assert_eq!(horizon.0 + 1, before.0);
    let (at, objects) = authority.objects.all().await.unwrap();
    assert_eq!((at, objects.len()), (authority.revision(), MANY));
    // Nothing is forgotten that is still to come.
    authority.objects.trim(Revision(u64::MAX)).await.unwrap();
    let revision = authority.revision();
    assert!(authority.objects.horizon(usize::MAX).await.unwrap() < revision);
    authority.objects.trim(before).await.unwrap();
    assert_eq!(authority.revision(), revision, "there was nothing to do");
}

//! CRLs of the CAs above an issuer: taken, kept, served with its own.

use countersign_authority::grant::{Grant, Needed, Role};
use countersign_authority::{Actor, AncestorCrlFault, Revision};
use countersign_pki::{Crl, RevocationReason, UnixTime, pem};
use countersign_testkit::chain::{Ca, CrlFacts};
use countersign_testkit::keys;

use crate::world::{START, World, act, issuer_id, submission};

const NOW: UnixTime = UnixTime(START);
const DAY: i64 = 86_400;

struct Site {
    world: World,
    root: Ca,
    middle: Ca,
}

impl Site {
    async fn new() -> Self {
        let root = Ca::root("Root CA", keys::p384(), NOW);
        let middle = root.below("Middle CA", keys::rsa2048_a(), 2, NOW);
        let own = middle.below("Own CA", keys::p256_a(), 3, NOW);
        let chain = [&own, &middle, &root].map(|ca| ca.certificate.to_pem());
        let world = World::with_chain(&chain.concat(), keys::p256_a()).await;
        Self {
            world,
            root,
            middle,
        }
    }

    async fn put(&self, lists: &[String]) -> Result<usize, AncestorCrlFault> {
        let actor = act("x").actor;
        let lists = lists.concat().into_bytes();
        let authority = &self.world.authority;
        authority
            .issuers
            .put_ancestor_crls(&issuer_id(), lists, &actor)
            .await
    }

    /// The common names and numbers of the served lists.
    fn served(&self) -> Vec<(String, u64)> {
        let state = self
            .world
            .authority
            .issuers
            .served_crl(&issuer_id())
            .unwrap();
        let blocks = pem::decode_all(state.pem.as_bytes(), &pem::PemLimits::BUNDLE).unwrap();
        let lists = blocks.iter().map(|block| Crl::parse(&block.der).unwrap());
        let named = lists.map(|list| {
            let name = list.issuer().first_common_name().unwrap().to_owned();
            (name, list.number().unwrap())
        });
        named.collect()
    }

    async fn audited(&self) -> Vec<String> {
        let all = self
            .world
            .authority
            .audit
            .after(Default::default(), 1000)
            .await;
        let entries = all.unwrap().into_iter().map(|(_, entry)| entry);
        entries
            .filter(|entry| entry.action == "crl" && entry.detail.contains("submitted"))
            .map(|entry| format!("{} {}: {}", entry.actor, entry.subject, entry.detail))
            .collect()
    }
}

fn named(lists: &[(&str, u64)]) -> Vec<(String, u64)> {
    let owned = lists.iter().map(|(name, n)| ((*name).to_owned(), *n));
    owned.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_the_cas_above_follow_the_issuers_own() {
    let site = Site::new().await;
    assert_eq!(site.served(), named(&[("Own CA", 0)]), "none is there yet");
    let facts = CrlFacts::good(7, NOW);
    // Order, repetition and lists of strangers do not matter.
    let stranger = Ca::root("Somebody else's CA", keys::p256_d(), NOW);
    let lists = [
        site.root.crl(&facts),
        stranger.crl(&facts),
        site.middle.crl(&CrlFacts::good(300, NOW)),
    ];
    let twice = [&lists[..], &lists[..]].concat();
    assert_eq!(site.put(&twice).await.unwrap(), 2);
    let all = named(&[("Own CA", 0), ("Middle CA", 300), ("Root CA", 7)]);
    assert_eq!(site.served(), all);
    let audited = site.audited().await;
    assert_eq!(audited.len(), 2, "{audited:?}");
    assert!(
        audited[0].ends_with("fleet/CN=Middle CA: number 0x012c was submitted"),
        "{audited:?}"
    );

    // The same again changes nothing, and neither does an older one.
    let older = [site.root.crl(&CrlFacts::good(6, NOW))];
    assert_eq!(site.put(&lists).await.unwrap(), 0);
    assert_eq!(site.put(&older).await.unwrap(), 0);
    assert_eq!(site.audited().await.len(), 2);

    // A revocation makes the issuer's own list anew and leaves the others.
    let authority = &site.world.authority;
    authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    let (reason, actor) = (RevocationReason::KeyCompromise, act("x").actor);
    let issuer = issuer_id();
    let revoked = authority
        .ledger
        .revoke_name(&issuer, "web01", reason, &actor);
    assert_eq!(revoked.await.unwrap(), 1);
    let all = named(&[("Own CA", 1), ("Middle CA", 300), ("Root CA", 7)]);
    assert_eq!(site.served(), all);

    let Site {
        world,
        root,
        middle,
    } = site;
    let world = world.restart(true).await;
    let site = Site {
        world,
        root,
        middle,
    };
    assert_eq!(site.served(), all, "after a restart");
    let newer = [site.root.crl(&CrlFacts::good(u64::MAX, NOW))];
    assert_eq!(site.put(&newer).await.unwrap(), 1);
    assert_eq!(site.served()[2], ("Root CA".to_owned(), u64::MAX));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_submission_changes_nothing() {
    let site = Site::new().await;
    let kept = CrlFacts::good(10, NOW);
    let both = [site.root.crl(&kept), site.middle.crl(&kept)];
    assert_eq!(site.put(&both).await.unwrap(), 2);
    let before = site.served();
    let newer = CrlFacts::good(11, NOW);
    let late = NOW.plus_seconds(400);
    let past = NOW.minus_seconds(1);
    let middle = [site.middle.certificate.serial()];
    let root = [site.root.certificate.serial()];
    let cases = [
        (
            "delta",
            CrlFacts {
                is_delta: true,
                ..newer
            },
        ),
        (
            "no number",
            CrlFacts {
                number: None,
                ..newer
            },
        ),
        (
            "no key identifier",
            CrlFacts {
                has_key_id: false,
                ..newer
            },
        ),
        (
            "the kept number",
            CrlFacts {
                next_update: late,
                ..kept
            },
        ),
        (
            "from the future",
            CrlFacts {
                this_update: late,
                ..newer
            },
        ),
        (
            "ended",
            CrlFacts {
                next_update: past,
                ..newer
            },
        ),
        (
            "revokes the CA below",
            CrlFacts {
                revoked: &middle,
                ..newer
            },
        ),
        (
            "revokes itself",
            CrlFacts {
                revoked: &root,
                ..newer
            },
        ),
    ];
    for (what, facts) in cases {
        // Its companion would be good, and is not taken either.
        let lists = [site.root.crl(&facts), site.middle.crl(&newer)];
        let refused = site.put(&lists).await;
        assert!(refused.is_err(), "{what}: {refused:?}");
        assert_eq!(site.served(), before, "{what}");
    }
    let forged = [site.root.crl_signed_by(keys::p256_d(), &newer)];
    let refused = site.put(&forged).await;
    assert!(
        matches!(refused, Err(AncestorCrlFault::Forged { .. })),
        "{refused:?}"
    );
    assert_eq!(site.served(), before);
    assert_eq!(site.audited().await.len(), 2);
}

/// Such a list comes with a directory that is taken over, from a CA that does not number its lists, or did not then.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_without_a_number_gives_way_to_a_later_or_a_numbered_one() {
    let site = Site::new().await;
    let made = |number, hours: u64| CrlFacts {
        number,
        this_update: NOW.minus_seconds((10 - hours) * 3600),
        ..CrlFacts::good(0, NOW)
    };
    let list = |number, hours| site.root.crl(&made(number, hours));
    let kept = made(None, 3);
    // Signed once: the same facts signed twice are two lists.
    let (first, later) = (site.root.crl(&kept), list(None, 4));
    let both = [first.clone(), site.middle.crl(&CrlFacts::good(1, NOW))];
    assert_eq!(site.put(&both).await.unwrap(), 2);
    let root = || {
        let state = site
            .world
            .authority
            .issuers
            .served_crl(&issuer_id())
            .unwrap();
        let blocks = pem::decode_all(state.pem.as_bytes(), &pem::PemLimits::BUNDLE).unwrap();
        let list = Crl::parse(&blocks[2].der).unwrap();
        (list.number(), list.this_update())
    };
    let tied = site.root.crl(&CrlFacts {
        next_update: NOW.plus_seconds(3600),
        ..kept
    });
    // What is submitted, how many are taken (none: refused), which one is served then.
    let steps = [
        ("earlier", vec![list(None, 2)], Some(0), (None, 3)),
        ("the same", vec![first], Some(0), (None, 3)),
        ("of the same time", vec![tied], None, (None, 3)),
        ("later", vec![later.clone()], Some(1), (None, 4)),
        (
            "with and without",
            vec![list(None, 5), list(Some(7), 5)],
            None,
            (None, 4),
        ),
        (
            "numbered, with the kept one",
            vec![later, list(Some(0), 1)],
            Some(1),
            (Some(0), 1),
        ),
        ("higher", vec![list(Some(9), 1)], Some(1), (Some(9), 1)),
        ("again without", vec![list(None, 9)], None, (Some(9), 1)),
    ];
    for (what, lists, taken, (number, hours)) in steps {
        let put = site.put(&lists).await;
        let served = made(number, hours);
        match taken {
            Some(count) => assert_eq!(put.unwrap(), count, "{what}"),
            None => assert!(
                matches!(put, Err(AncestorCrlFault::WithoutNumber { .. })),
                "{what}: {put:?}"
            ),
        }
        assert_eq!(root(), (served.number, served.this_update), "{what}");
    }
}

/// Puppet Server would refuse: it replaces lists only where there is one. All that are missing come at once.
#[tokio::test(flavor = "multi_thread")]
async fn missing_lists_are_added_together() {
    let site = Site::new().await;
    let facts = CrlFacts::good(1, NOW);
    let refused = site.put(&[site.root.crl(&facts)]).await;
    assert!(
        matches!(&refused, Err(AncestorCrlFault::Missing { ca }) if ca == "CN=Middle CA"),
        "{refused:?}"
    );
    let both = [site.root.crl(&facts), site.middle.crl(&facts)];
    assert_eq!(site.put(&both).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_is_modified_when_any_of_its_lists_changes() {
    let site = Site::new().await;
    let modified = || {
        let state = site
            .world
            .authority
            .issuers
            .served_crl(&issuer_id())
            .unwrap();
        state.modified
    };
    assert_eq!(modified(), NOW);
    site.world.clock.advance(3600);
    let news = site.world.authority.issuers.crl_news(&issuer_id()).unwrap();
    let facts = CrlFacts::good(1, NOW);
    let both = [site.root.crl(&facts), site.middle.crl(&facts)];
    site.put(&both).await.unwrap();
    assert_eq!(modified(), NOW.plus_seconds(3600));
    assert!(news.has_changed().unwrap(), "the file is written anew");
    // The daily list is newer than that.
    site.world.clock.advance(DAY);
    site.world.authority.issuers.refresh_crls().await.unwrap();
    assert_eq!(modified(), NOW.plus_seconds(3600 + 86_400));
    let state = site
        .world
        .authority
        .issuers
        .served_crl(&issuer_id())
        .unwrap();
    let ends: Vec<_> = state.ends.iter().map(|end| &*end.common_name).collect();
    assert_eq!(ends, ["Own CA", "Middle CA", "Root CA"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_is_a_root_leaves_everything_aside() {
    let world = World::new(true).await;
    let stranger = Ca::root("Root CA", keys::p384(), NOW);
    let lists = stranger.crl(&CrlFacts::good(1, NOW)).into_bytes();
    let (issuer, actor) = (issuer_id(), act("x").actor);
    let before = world
        .authority
        .issuers
        .crl(&issuer_id())
        .unwrap()
        .pem
        .clone();
    let taken = world
        .authority
        .issuers
        .put_ancestor_crls(&issuer, lists, &actor);
    assert_eq!(taken.await.unwrap(), 0);
    assert_eq!(
        world.authority.issuers.crl(&issuer_id()).unwrap().pem,
        before
    );
}

/// Whoever may put a list in place stops clients everywhere: no role but an administrator's, and no door's rules, will do.
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_the_cas_above_are_taken_from_administrators_alone() {
    let site = Site::new().await;
    let facts = CrlFacts::good(7, NOW);
    let lists = [site.root.crl(&facts), site.middle.crl(&facts)].concat();
    let put = async |actor: &Actor| {
        let issuers = &site.world.authority.issuers;
        let lists = lists.clone().into_bytes();
        issuers.put_ancestor_crls(&issuer_id(), lists, actor).await
    };
    let requester = act("x").actor.requester;
    let mut others = vec![
        Actor::with_roles(requester.clone(), Grant::NOTHING),
        Actor::let_by_door(requester.clone(), Grant::NOTHING),
    ];
    for role in [Role::Read, Role::Mint, Role::Sign] {
        let mut grant = Grant::NOTHING;
        grant.add(role, &[]);
        others.push(Actor::with_roles(requester.clone(), grant));
    }
    for other in &others {
        let refused = put(other).await;
        let needed = Needed::Role { role: Role::Admin };
        assert!(
            matches!(&refused, Err(AncestorCrlFault::Forbidden(said)) if said.to_string() == needed.to_string()),
            "{other:?}: {refused:?}"
        );
    }
    assert_eq!(site.served(), named(&[("Own CA", 0)]), "nothing was taken");
    let all = site
        .world
        .authority
        .audit
        .after(Revision::default(), 1000)
        .await;
    let refusals = all.unwrap().into_iter().map(|(_, entry)| entry);
    let refusals =
        refusals.filter(|entry| entry.action == "refuse" && entry.subject == issuer_id().as_str());
    assert_eq!(refusals.count(), others.len(), "each is on record");
    let admin = Actor::with_roles(requester, Grant::ADMIN);
    assert_eq!(put(&admin).await.unwrap(), 2);
}

//! Rules that ask for a right of the sender: what is asked about whom, and what becomes of those who wait for a role.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_authority::{
    AccessReviews, RequestRecord, RequestState, Submission, SubmitFault, TokenOrder,
};
use countersign_policy::{AccessAnswer, AccessQuestion, Effect, Identity, Requester};
use futures_util::FutureExt as _;
use tokio::time::timeout;

use crate::site::{Site, agent, kept, new_key};
use crate::tokens::token_site;
use crate::world;

/// The rules of Kubernetes' own approver.
const RULES: &str = "- name: self
  when: requester.username == request.commonName
  approve: {subjectAccess: {group: certificates.k8s.io, resource: certificatesigningrequests, subresource: selfnodeclient, verb: create}}
- name: other
  approve: {subjectAccess: {group: certificates.k8s.io, resource: certificatesigningrequests, subresource: nodeclient, verb: create}}";

/// Somebody who knows the rights of some users, and remembers what was asked.
#[derive(Default)]
struct Scripted {
    /// User and subresource.
    bound: Mutex<Vec<(&'static str, &'static str)>>,
    is_away: Mutex<bool>,
    /// How often a binding is still found before it is gone.
    reviews_left: Mutex<Option<usize>>,
    asked: Mutex<Vec<(Requester, AccessQuestion)>>,
}

impl Scripted {
    fn bind(&self, user: &'static str, subresource: &'static str) {
        self.bound.lock().unwrap().push((user, subresource));
    }

    fn be_away(&self, away: bool) {
        *self.is_away.lock().unwrap() = away;
    }

    /// What was asked since the last time, by subresource.
    fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.into_iter().map(|(_, q)| q.subresource).collect()
    }
}

impl AccessReviews for Scripted {
    fn review(&self, requester: &Requester, question: &AccessQuestion) -> AccessAnswer {
        let mut asked = self.asked.lock().unwrap();
        asked.push((requester.clone(), question.clone()));
        let Identity::User { username, .. } = &requester.identity else {
            panic!("{requester:?} is no user");
        };
        if *self.is_away.lock().unwrap() {
            let reason = "roles are not read yet".to_owned();
            return AccessAnswer::Unavailable { reason };
        }
        let bound = self.bound.lock().unwrap();
        let found = bound
            .iter()
            .find(|(user, subresource)| user == username && *subresource == question.subresource);
        let mut left = self.reviews_left.lock().unwrap();
        let is_gone = found.is_some() && *left == Some(0);
        if found.is_some() {
            *left = left.map(|left| left.saturating_sub(1));
        }
        match found.filter(|_| !is_gone) {
            Some((user, _)) => AccessAnswer::Allowed {
                reason: format!("bound to {user}"),
            },
            None => AccessAnswer::NotAllowed {
                reason: String::new(),
            },
        }
    }
}

fn reviewed(site: &Site) -> Arc<Scripted> {
    let reviews = Arc::new(Scripted::default());
    site.authority().set_access_reviews(reviews.clone());
    reviews
}

fn user(username: &str) -> Requester {
    Requester {
        identity: Identity::User {
            username: username.to_owned(),
            groups: vec!["system:nodes".to_owned()],
            uid: "7".to_owned(),
            extra: BTreeMap::from([("example.com/a".to_owned(), vec!["b".to_owned()])]),
        },
        source: Some([192, 0, 2, 7].into()),
    }
}

/// A user's request for a name, as an object.
fn asking(object: &str, username: &str, name: &str) -> Submission {
    let mut asking = kept(object, world::csr(&new_key(), name, &[]));
    asking.requester = user(username);
    asking
}

fn rule_of(record: &RequestRecord) -> Option<&str> {
    let step = record.explanation.steps.last()?;
    (record.explanation.effect == Effect::Approve).then_some(step.rule.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_right_that_the_sender_has_approves() {
    for (bound, username, state, rule, asked) in [
        (
            &[][..],
            "alice",
            RequestState::Pending,
            None,
            &["nodeclient"][..],
        ),
        (
            &[][..],
            "node-a",
            RequestState::Pending,
            None,
            &["selfnodeclient", "nodeclient"],
        ),
        (
            &["selfnodeclient"],
            "node-a",
            RequestState::Issued,
            Some("self"),
            &["selfnodeclient"],
        ),
        (
            &["nodeclient"],
            "node-a",
            RequestState::Issued,
            Some("other"),
            &["selfnodeclient", "nodeclient"],
        ),
        (
            &["selfnodeclient"],
            "alice",
            RequestState::Pending,
            None,
            &["nodeclient"],
        ),
        (
            &["nodeclient"],
            "alice",
            RequestState::Issued,
            Some("other"),
            &["nodeclient"],
        ),
    ] {
        let site = Site::new(RULES).await;
        let reviews = reviewed(&site);
        for subresource in bound {
            reviews.bind(username, subresource);
        }
        let record = site.ask(asking("csr-1", username, "node-a")).await;
        let case = format!("{bound:?} {username}");
        assert_eq!((record.state, rule_of(&record)), (state, rule), "{case}");
        assert_eq!(record.explanation.retry, rule.is_none(), "{case}");
        let seen = reviews.asked.lock().unwrap().clone();
        for (requester, question) in &seen {
            assert_eq!(requester, &user(username), "{case}");
            assert_eq!(question.verb, "create");
        }
        // What approves is asked once more before it is on record.
        let times = 1 + usize::from(rule.is_some());
        let all = reviews.asked();
        assert_eq!(all.get(..asked.len()).unwrap(), asked, "{case}");
        assert_eq!(all.len(), asked.len() * times, "{case}");
        assert_eq!(record.evidence.access.len(), asked.len(), "{case}");
    }
}

/// A binding that is removed while a request is judged approves nothing any more, be the request new or one that waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_taken_away_meanwhile_does_not_count() {
    let site = Site::new(RULES).await;
    let reviews = reviewed(&site);
    reviews.bind("alice", "nodeclient");
    // Found by the rule, and gone at the look before the approval is written.
    *reviews.reviews_left.lock().unwrap() = Some(1);
    let waits = site.ask(asking("csr-1", "alice", "node-a")).await;
    assert_eq!(waits.state, RequestState::Pending);
    assert_eq!(reviews.asked().len(), 3, "and then it is judged anew");

    // The look for other rights, the rule, and the look before the approval is written.
    *reviews.reviews_left.lock().unwrap() = Some(2);
    assert_eq!(
        site.authority().requests.reconsider_access().await.unwrap(),
        0
    );
    assert_eq!(site.record(waits.id).await.state, RequestState::Pending);
    assert_eq!(reviews.asked().len(), 4);

    *reviews.reviews_left.lock().unwrap() = None;
    assert_eq!(
        site.authority().requests.reconsider_access().await.unwrap(),
        1
    );
    assert_eq!(site.record(waits.id).await.state, RequestState::Issued);
}

/// Nothing is written while nothing has changed; a role that is bound settles what waited for it, and only that.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_is_bound_later_approves_what_waits() {
    let site = Site::new(RULES).await;
    let nobody = site.ask(asking("csr-0", "alice", "node-a")).await;
    assert_eq!(nobody.explanation.code.as_str(), "access_unavailable");
    assert!(nobody.explanation.is_stopped() && nobody.live);

    // Somebody answers now, and says no: that is news.
    let reviews = reviewed(&site);
    site.authority().access_news().await;
    assert_eq!(
        site.authority().requests.reconsider_access().await.unwrap(),
        0
    );
    let refused = site.record(nobody.id).await;
    let step = refused.explanation.steps.last().unwrap();
    assert_eq!(step.code.as_str(), "access_not_allowed");

    let other = site.ask(asking("csr-1", "bob", "node-b")).await;
    let before = site.authority().revision();
    assert_eq!(
        site.authority().requests.reconsider_access().await.unwrap(),
        0
    );
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        0
    );
    assert_eq!(site.authority().revision(), before, "nothing has changed");

    reviews.bind("alice", "nodeclient");
    for _ in 0..1000 {
        site.authority().access_changed();
    }
    let news = || timeout(Duration::from_secs(60), site.authority().access_news());
    news().await.unwrap();
    assert_eq!(
        site.authority().requests.reconsider_access().await.unwrap(),
        1
    );
    let settled = site.record(nobody.id).await;
    assert_eq!(
        (settled.state, rule_of(&settled)),
        (RequestState::Issued, Some("other"))
    );
    assert_eq!(site.record(other.id).await.state, RequestState::Pending);
    // A thousand changes were one piece of news.
    let more = site.authority().access_news().now_or_never();
    assert!(more.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_asked_approves_nobody_and_is_asked_again() {
    let site = Site::new(RULES).await;
    let reviews = reviewed(&site);
    reviews.bind("alice", "nodeclient");
    reviews.be_away(true);
    let waits = site.ask(asking("csr-1", "alice", "node-a")).await;
    assert_eq!(
        (waits.state, waits.explanation.code.as_str()),
        (RequestState::Pending, "access_unavailable")
    );
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        0
    );
    reviews.be_away(false);
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        1
    );
    assert_eq!(site.record(waits.id).await.state, RequestState::Issued);
}

/// Every page of those who wait is looked at, not only the first.
#[tokio::test(flavor = "multi_thread")]
async fn all_who_wait_hear_of_a_role() {
    let site = Site::new(RULES).await;
    let (reviews, key) = (reviewed(&site), new_key());
    for number in 0..300 {
        let object = format!("csr-{number}");
        let username = if number % 3 == 0 { "alice" } else { "bob" };
        let csr = world::csr(&key, &format!("node-{number}"), &[]);
        let mut asking = kept(&object, csr);
        asking.requester = user(username);
        site.ask(asking).await;
    }
    reviews.bind("alice", "nodeclient");
    assert_eq!(
        site.authority().requests.reconsider_access().await.unwrap(),
        100
    );
    assert_eq!(
        site.authority().requests.reconsider_access().await.unwrap(),
        0
    );
}

/// A node that may renew itself makes a key and an object for each: thousands of certificates would be on the CRL when it
/// is revoked.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_renews_itself_a_few_times_in_a_while() {
    let site = Site::new(RULES).await;
    let reviews = reviewed(&site);
    reviews.bind("node-a", "selfnodeclient");
    reviews.bind("node-b", "selfnodeclient");
    reviews.bind("boot", "nodeclient");
    for number in 0..10 {
        let issued = site
            .ask(asking(&format!("csr-{number}"), "node-a", "node-a"))
            .await;
        assert_eq!(issued.state, RequestState::Issued, "{number}");
    }
    let refused = site.refused(asking("csr-10", "node-a", "node-a")).await;
    assert!(
        matches!(&refused, SubmitFault::TooManyRenewals { name, limit: 10 } if name == "node-a"),
        "{refused:?}"
    );
    // Others are not concerned, nor is whoever sets the node up anew.
    for (object, who, name) in [("csr-11", "node-b", "node-b"), ("csr-12", "boot", "node-a")] {
        let issued = site.ask(asking(object, who, name)).await;
        assert_eq!(issued.state, RequestState::Issued, "{who}");
    }
    let record = site.ask(asking("csr-13", "node-b", "node-b")).await;
    let certificate = record.certificate.unwrap();
    let entry = site
        .authority()
        .ledger
        .get(&certificate.0, &certificate.1)
        .await;
    let entry = entry.unwrap().unwrap();
    let life = entry.not_after.seconds_since(entry.not_before);
    site.world.clock.advance(life / 20 + 1);
    let later = site.ask(asking("csr-14", "node-a", "node-a")).await;
    assert_eq!(later.state, RequestState::Issued);
}

/// Roles are bound to users. What the signer's profile forbids is nobody's question.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_about_others_than_users_nor_about_what_cannot_be_signed() {
    let site = Site::new(RULES).await;
    let reviews = reviewed(&site);
    let puppet = site.ask(agent("web01.example.com", &new_key())).await;
    assert_eq!(puppet.state, RequestState::Pending);
    assert!(!puppet.explanation.retry, "there is nothing to wait for");
    let step = puppet.explanation.steps.last().unwrap();
    assert_eq!(step.code.as_str(), "access_not_allowed");

    reviews.bind("node-a", "selfnodeclient");
    let mut unsignable = asking("csr-1", "node-a", "node-a");
    unsignable.wishes.usages = vec!["server auth".to_owned()];
    let unsignable = site.ask(unsignable).await;
    assert_eq!(
        (unsignable.state, unsignable.explanation.code.as_str()),
        (RequestState::Pending, "unsignable")
    );
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        site.authority().requests.reconsider_access().await.unwrap(),
        0
    );
    assert_eq!(reviews.asked(), [""; 0]);
}

/// Invariant 3: a role that is bound to bearers of enrolment tokens gives each what its token is for, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_bearer_uses_its_token_up_whoever_approves() {
    let site = token_site(RULES).await;
    let reviews = reviewed(&site);
    let token = site.mint(TokenOrder::exact("alice")).await;
    let bearer = site.authority().tokens.bearer(token.expose()).await;
    let bearer = bearer.unwrap().unwrap();
    let bearing = |object: &str, name: &str| {
        let mut asking = asking(object, "bearer", name);
        asking.requester.identity = Identity::User {
            username: "bearer".to_owned(),
            groups: Vec::new(),
            uid: String::new(),
            extra: Default::default(),
        };
        asking.bearer = Some(bearer.clone());
        asking
    };
    let uses = async || site.token(token.id()).await.listed.record.uses;
    let waiting = site.ask(bearing("csr-1", "alice")).await;
    assert_eq!(waiting.state, RequestState::Pending);
    assert_eq!(uses().await, 0);

    reviews.bind("bearer", "nodeclient");
    let other = site.ask(bearing("csr-2", "mallory")).await;
    assert_eq!(
        (other.state, other.explanation.code.as_str()),
        (RequestState::Pending, "token_certname_mismatch")
    );
    assert_eq!(
        site.authority().requests.reconsider_access().await.unwrap(),
        1
    );
    let issued = site.record(waiting.id).await;
    assert_eq!(
        (issued.state, rule_of(&issued)),
        (RequestState::Issued, Some("other"))
    );
    let used = issued.explanation.token.unwrap();
    assert_eq!(
        (used.id.as_str(), used.certname.as_str()),
        (token.id().as_str(), "alice")
    );
    assert_eq!(uses().await, 1);
    assert_eq!(site.told("token.consumed").await.len(), 1);

    let second = site.ask(bearing("csr-3", "alice")).await;
    assert_eq!(
        second.state,
        RequestState::Pending,
        "{:?}",
        second.explanation
    );
    assert_eq!(uses().await, 1);
}

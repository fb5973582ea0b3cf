//! Reading objects: one, or a selection of all.

use countersign_authority::RequestRecord;
use countersign_authority::store::Past;
use countersign_kapi::list::ListMeta;
use countersign_kapi::negotiate::Offer;
use countersign_kapi::query::{
    self, CollectionQuery, Continuation, ListOptions, ListVersion, QueryFault,
};
use countersign_kapi::selector::{FieldSelector, LabelSelector};
use countersign_kapi::{Kind, Resource, Status};
use http::StatusCode;

use super::answer::{Answer, Refusal, Shape};
use super::cache::{Key, PageQuery, TooOld};
use super::call::{Action, Call};
use super::feed::{Behind, Cached};
use super::identity::{Reach, User};
use super::watch::{self, Client};
use super::{DOOR, KubernetesDoor};

/// What the head of a call says that asks for an object.
pub(super) struct GetHead {
    pub(super) shape: Shape,
    reach: Reach,
    at_least: u64,
}

impl GetHead {
    pub(super) fn of(call: &Call, reach: Reach, offer: Offer) -> Result<Self, Refusal> {
        Ok(Self {
            shape: call.shape(offer)?,
            reach,
            at_least: query::version_at_least(call.parameter("resourceVersion"))?,
        })
    }

    /// Waits for the version that the object shall have at least.
    pub(super) async fn reached(&self, door: &KubernetesDoor) -> Result<(), Refusal> {
        match self.at_least {
            0 => Ok(()),
            version => door.reached(version).await,
        }
    }
}

/// `GET` on an object or one of its subresources.
pub(super) async fn get(call: Call, head: GetHead) -> Answer {
    let door = &call.door;
    head.reached(door).await?;
    let record = door.find(&call.name).await?;
    if head.reach == Reach::Own && !call.user.owns(&record) {
        return Err(Resource::CSR.not_found(&call.name).into());
    }
    let object = door.show(&record).await?;
    head.shape.object(StatusCode::OK, &object, door.now()?)
}

/// Answers a list or a watch of any kind of objects.
pub(super) async fn collection<T: Cached>(call: Call, asked: Asked) -> Answer {
    let Asked {
        selection,
        client,
        shape,
        query,
    } = asked;
    let Call { door, .. } = call;
    match query {
        CollectionQuery::List(options) => door.list::<T>(&selection, &options, shape).await,
        CollectionQuery::Watch(options) => {
            watch::answer::<T>(&door, client, selection, shape, options).await
        }
    }
}

/// Where a call says that it is a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchBy {
    /// In the query, if at all.
    Query,
    /// In the path: the older places of watches, of the collection or of one object.
    Path,
}

/// What somebody asks of a collection, and may.
pub(super) struct Asked {
    selection: Selection,
    client: Client,
    shape: Shape,
    query: CollectionQuery,
}

impl Asked {
    pub(super) fn of<T: Kind>(call: &mut Call, watch: WatchBy) -> Result<Self, Refusal> {
        let by_path = (watch == WatchBy::Path).then_some(("watch", "true"));
        let verb = match query::is_watch(by_path.into_iter().chain(call.pairs())) {
            true => "watch",
            false => "list",
        };
        // Who may not ask is told only that, whatever else is wrong.
        let selection = Selection::of::<T>(call);
        let name = selection.as_ref().ok().and_then(Selection::name);
        let reach = call.authorize_action(Action {
            verb,
            resource: T::RESOURCE,
            subresource: "",
            name: name.unwrap_or_default().to_owned(),
            namespace: call.namespace.clone(),
        })?;
        let mut selection = selection?;
        let client = Client {
            standing: call.standing(reach).ok_or_else(Status::unauthorized)?,
            closing: call.closing(),
        };
        // Reading counts for those who see only their own.
        if reach == Reach::Own {
            call.admit_rate()?;
        }
        selection.narrow(reach, &call.user);
        if verb == "watch" {
            call.refuse_yaml()?;
        }
        Ok(Self {
            selection,
            client,
            shape: call.shape(Offer::All)?,
            query: CollectionQuery::from_query(by_path.into_iter().chain(call.pairs()))?,
        })
    }
}

/// Which objects a list, a watch or a bulk deletion is about.
#[derive(Debug)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    namespace: String,
    /// The one name of the path.
    path_name: String,
    /// Only what this user created.
    owner: Option<String>,
}

impl Selection {
    /// From the query, and the name in the path.
    pub(super) fn of<T: Kind>(call: &Call) -> Result<Self, Refusal> {
        let selection = Self {
            labels: LabelSelector::parse(call.parameter("labelSelector"))?,
            fields: FieldSelector::parse::<T>(call.parameter("fieldSelector"))?,
            namespace: call.namespace.clone(),
            path_name: call.name.clone(),
            owner: None,
        };
        let named = selection.fields.name();
        if !call.name.is_empty() && named.is_some_and(|name| name != call.name) {
            let text = "both a name and a field selector provided; please provide one or the other";
            return Err(Status::bad_request(text).into());
        }
        Ok(selection)
    }

    /// Leaves out what somebody may not see.
    fn narrow(&mut self, reach: Reach, user: &User) {
        self.owner = match reach {
            Reach::Everything => None,
            Reach::Own | Reach::Nothing => Some(user.info().username.clone()),
        };
    }

    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.owner.is_none()
    }

    /// The one name that can be selected.
    pub(super) fn name(&self) -> Option<&str> {
        match self.path_name.as_str() {
            "" => self.fields.name(),
            name => Some(name),
        }
    }

    /// Whether a change of an object can make it another one that is selected: nothing else than labels can change.
    pub(super) fn can_change(&self) -> bool {
        !self.labels.is_empty()
    }

    pub(super) fn matches<T: Kind>(&self, object: &T) -> bool {
        let meta = object.metadata();
        let owner = self.owner.as_deref();
        (self.namespace.is_empty() || meta.namespace == self.namespace)
            && self.name().is_none_or(|name| meta.name == name)
            && owner.is_none_or(|owner| object.creator() == Some(owner))
            && self.fields.matches(object)
            && self.labels.matches(&meta.labels)
    }

    /// The question for these objects.
    pub(super) fn query(&self) -> PageQuery<'_> {
        PageQuery {
            namespace: &self.namespace,
            name: self.name(),
            ..PageQuery::default()
        }
    }
}

impl KubernetesDoor {
    /// The record of a name; a refusal if there is none.
    pub(super) async fn find(&self, name: &str) -> Result<RequestRecord, Refusal> {
        let found = self
            .authority
            .requests
            .at(&DOOR, name, Past::Ignore)
            .await?;
        found.ok_or_else(|| Resource::CSR.not_found(name).into())
    }

    /// The selected requests in order of their names.
    pub(super) async fn select<T: Cached>(&self, selection: &Selection) -> Result<Vec<T>, Refusal> {
        self.caught_up().await?;
        let cache = T::cache(self.caches());
        let page = cache.page(&selection.query(), |object| selection.matches(object))?;
        let objects = page.objects.iter().map(|stored| stored.object.clone());
        Ok(objects.collect())
    }

    /// Waits until everything that was committed before is shown: what a client has just done, it sees.
    pub(super) async fn caught_up(&self) -> Result<(), Refusal> {
        let current = self.authority.revision().0;
        self.caches().reached(current).await.map_err(|behind| {
            let text = match behind.at {
                0 => "the objects are not loaded yet",
                _ => "the objects in memory are older than the store",
            };
            Status::service_unavailable(text, RETRY_SECONDS).into()
        })
    }

    /// Waits for a version that a client names, which may be one to come.
    pub(super) async fn reached(&self, version: u64) -> Result<(), Refusal> {
        if version <= self.authority.revision().0 {
            return self.caught_up().await;
        }
        let reached = self.caches().reached(version).await;
        reached.map_err(|Behind { at }| Status::version_too_large(version, at).into())
    }

    async fn list<T: Cached>(
        &self,
        selection: &Selection,
        options: &ListOptions,
        shape: Shape,
    ) -> Answer {
        let at = match (options.version, &options.continuation) {
            (_, Some(continuation)) => continuation.version(),
            (ListVersion::Exact(version), None) => {
                self.reached(version).await?;
                Some(version)
            }
            (ListVersion::AtLeast(version), None) => {
                self.reached(version).await?;
                None
            }
            (ListVersion::Current | ListVersion::Any, None) => None,
        };
        self.caught_up().await?;
        let cache = T::cache(self.caches());
        let expired = || match &options.continuation {
            Some(continuation) => {
                Status::list_expired(continuation.of_any_version().to_token()).into()
            }
            None => Refusal::from(Status::expired(LIST_TOO_OLD)),
        };
        // Of a time that this store has not seen: it was restored, or is another's.
        if at.is_some_and(|at| at > cache.revision()) {
            return Err(expired());
        }
        let query = PageQuery {
            at,
            behind: options.continuation.as_ref().map(key_of::<T>),
            limit: options.limit,
            ..selection.query()
        };
        let page = cache.page(&query, |object| selection.matches(object));
        let page = page.map_err(|TooOld(_)| expired())?;
        let last = page.objects.last().filter(|_| page.left.is_some());
        let rest = last.map(|last| Continuation::behind(page.revision, &key_text::<T>(last.key())));
        let meta = ListMeta {
            resource_version: page.revision.to_string(),
            continuation: rest.map(|rest| rest.to_token()).unwrap_or_default(),
            remaining_item_count: page.left.filter(|_| selection.is_everything()),
        };
        shape.page(meta, page.objects, self.now()?)
    }
}

/// Where a list goes on.
fn key_of<T: Kind>(continuation: &Continuation) -> Key {
    let text = continuation.key();
    match text.split_once('/') {
        Some((namespace, name)) if T::NAMESPACED => (namespace.to_owned(), name.to_owned()),
        Some(_) | None => (String::new(), text.to_owned()),
    }
}

fn key_text<T: Kind>((namespace, name): Key) -> String {
    match T::NAMESPACED {
        true => format!("{namespace}/{name}"),
        false => name,
    }
}

impl From<QueryFault> for Refusal {
    fn from(fault: QueryFault) -> Self {
        fault.status().into()
    }
}

impl From<TooOld> for Refusal {
    fn from(TooOld(_): TooOld) -> Self {
        Status::expired(LIST_TOO_OLD).into()
    }
}

const LIST_TOO_OLD: &str = "The resourceVersion for the provided list is too old.";
/// Clients wait so long before they ask again.
const RETRY_SECONDS: u32 = 1;

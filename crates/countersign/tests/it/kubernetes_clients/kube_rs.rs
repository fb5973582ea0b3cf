//! kube-rs, the client of Kubernetes in Rust: its watcher, in both ways of beginning.

use std::path::Path;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, watcher::Config};
use kube::{Api, Client, ResourceExt as _};

use super::{Writer, version};
use crate::site::Site;

#[test]
fn a_watcher_that_begins_with_a_list_follows() {
    follow(Config::default());
}

#[test]
fn a_watcher_that_begins_with_a_stream_follows() {
    follow(Config::default().streaming_lists());
}

/// Every watch ends after a second, and the next one goes on where it ended.
#[test]
fn a_watcher_goes_on_after_the_ends_of_its_watches() {
    let site = Site::start(&[]);
    let writer = Writer::new(&site);
    writer.create("jane");
    runtime().block_on(async {
        let requests = requests(&site.kubeconfig()).await;
        let mut events = watcher(requests, Config::default().timeout(1)).boxed();
        while !matches!(next(&mut events).await, Event::InitDone) {}
        for round in 0..3 {
            // Longer than a watch: neither a fault nor a new list comes of its end.
            let quiet = tokio::time::timeout(2 * WATCH, events.try_next()).await;
            assert!(quiet.is_err(), "{quiet:?}");
            let changed = writer.annotate("jane", "round", &round.to_string());
            let object = applied(next(&mut events).await);
            assert_eq!(object.resource_version().unwrap(), version(&changed));
        }
    });
}

fn follow(config: Config) {
    let site = Site::start(&[]);
    let writer = Writer::new(&site);
    let first = writer.create("before");
    runtime().block_on(async {
        let requests = requests(&site.kubeconfig()).await;
        let mut events = watcher(requests.clone(), config.clone()).boxed();
        assert!(matches!(next(&mut events).await, Event::Init));
        match next(&mut events).await {
            Event::InitApply(object) => {
                assert_eq!(object.name_any(), "before");
                assert_eq!(object.resource_version().unwrap(), version(&first));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(next(&mut events).await, Event::InitDone));

        // Two at once: the other one sees objects only, as controllers do.
        let objects = watcher(requests.clone(), config).default_backoff();
        let mut objects = objects.touched_objects().boxed();
        let object = objects.try_next().await.unwrap().unwrap();
        assert_eq!(object.name_any(), "before");

        let created = writer.create("jane");
        for event in [
            applied(next(&mut events).await),
            objects.try_next().await.unwrap().unwrap(),
        ] {
            assert_eq!(event.resource_version().unwrap(), version(&created));
            assert_eq!(
                event.metadata.uid,
                created["metadata"]["uid"].as_str().map(str::to_owned)
            );
            assert!(
                event
                    .status
                    .is_none_or(|status| status.conditions.is_none())
            );
        }
        writer.approve("jane");
        let issued = loop {
            let object = applied(next(&mut events).await);
            let status = object.status.clone().unwrap();
            assert_eq!(status.conditions.unwrap()[0].type_, "Approved");
            if status.certificate.is_some() {
                break object;
            }
        };
        writer.delete("jane");
        match next(&mut events).await {
            Event::Delete(object) => {
                assert_eq!(object.uid(), issued.uid());
                assert_ne!(object.resource_version(), issued.resource_version());
            }
            other => panic!("{other:?}"),
        }
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

async fn requests(kubeconfig: &Path) -> Api<CertificateSigningRequest> {
    // The process may have several providers; which one is the application's business.
    let _already = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Api::all(Client::try_from(config.unwrap()).unwrap())
}

type Events =
    futures_util::stream::BoxStream<'static, watcher::Result<Event<CertificateSigningRequest>>>;

async fn next(events: &mut Events) -> Event<CertificateSigningRequest> {
    let event = tokio::time::timeout(PATIENCE, events.try_next());
    event.await.unwrap().unwrap().unwrap()
}

fn applied(event: Event<CertificateSigningRequest>) -> CertificateSigningRequest {
    match event {
        Event::Apply(object) => object,
        other => panic!("{other:?}"),
    }
}

/// How long a watch of that test lasts.
const WATCH: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

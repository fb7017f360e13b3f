//! The watch of AppWrappers: a store to read from, and a trigger for every change that is news.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use appwrapper_api::{AppWrapper, AppWrapperKey, TypeRef};
use appwrapper_cache_management::{Backoff, View};
use appwrapper_reconciler::status::is_deployed;
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher::{self, Event},
    },
};
use tokio::sync::{Notify, mpsc};

use crate::{cluster::light, ledger::WRAPPERS, memories::Memories, progress::Progress, teller::Teller};

/// AppWrappers to a page of the first list. Templates make them large.
const PAGE: u32 = 100;

/// How often a wait for the first list looks again.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(100);

/// Where changes go at the moment; the watch outlives a tenure.
#[derive(Clone, Debug, Default)]
pub struct Route(Arc<RwLock<Option<mpsc::Sender<AppWrapperKey>>>>);

impl Route {
    /// Sends triggers here from now on.
    pub fn open(&self, sender: mpsc::Sender<AppWrapperKey>) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(sender);
    }

    /// Sends triggers nowhere: whoever opens the route again looks at everything first.
    pub fn close(&self) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }

    async fn send(&self, key: AppWrapperKey) {
        let sender = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        if let Some(sender) = sender {
            let _ = sender.send(key).await;
        }
    }
}

/// The reference of a key in the store.
pub fn reference(key: &AppWrapperKey) -> ObjectRef<AppWrapper> {
    ObjectRef::new(&key.name).within(&key.namespace)
}

/// Where the watch of a shard's AppWrappers delivers.
pub struct Feed {
    /// The API server.
    pub client: Client,
    /// Which AppWrappers; none for all.
    pub labels: Option<String>,
    /// Who is told of news.
    pub route: Route,
    /// Tells news from what we wrote ourselves.
    pub memories: Arc<Memories>,
    /// Notes about components, which go with their AppWrapper.
    pub view: View,
    /// Metrics.
    pub teller: Teller,
    /// How far the watch has come.
    pub progress: Arc<Progress>,
    /// Told of every event: other kinds may be in use from now on.
    pub changed: Arc<Notify>,
}

impl Feed {
    /// Watches until the future is dropped.
    ///
    /// An error is logged and tried again with back-off. An expired version, however it is told, begins a new list: kube's
    /// watcher would go on asking with the old version when it is told by an HTTP status.
    pub async fn run(self, mut writer: reflector::store::Writer<AppWrapper>) {
        loop {
            let api: Api<AppWrapper> = Api::all(self.client.clone());
            let config = watcher::Config {
                page_size: Some(PAGE),
                label_selector: self.labels.clone(),
                ..watcher::Config::default()
            };
            let stream = watcher::watcher(api, config)
                .map_ok(|event| event.modify(|wrapper| *wrapper = light(std::mem::take(wrapper))));
            let mut stream = stream.backoff(Backoff::for_the_main_watch()).boxed();
            // The store shows a list only when it is complete.
            let mut listed = Vec::new();
            while let Some(event) = stream.next().await {
                match event {
                    Ok(event) => {
                        writer.apply_watcher_event(&event);
                        self.deliver(&event, &mut listed);
                        self.note(event).await;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the watch of AppWrappers failed and is tried again");
                        if is_expired(&error) {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Says how far the store has come.
    fn deliver(&self, event: &Event<AppWrapper>, listed: &mut Vec<String>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(wrapper) => listed.extend(wrapper.metadata.resource_version.clone()),
            Event::InitDone => {
                for version in listed.drain(..) {
                    self.progress.delivered(WRAPPERS, Some(&version));
                }
            }
            Event::Apply(wrapper) | Event::Delete(wrapper) => {
                self.progress
                    .delivered(WRAPPERS, wrapper.metadata.resource_version.as_deref());
            }
        }
    }

    async fn note(&self, event: Event<AppWrapper>) {
        match event {
            Event::Apply(wrapper) | Event::InitApply(wrapper) => {
                let key = wrapper.key();
                // What we wrote ourselves was acted on when it was written.
                if !self
                    .memories
                    .is_own_echo(&key, wrapper.metadata.resource_version.as_deref())
                {
                    self.route.send(key).await;
                }
            }
            Event::Delete(wrapper) => {
                let key = wrapper.key();
                self.memories.forget(&key);
                self.view.forget(&key);
                self.teller.gone(&key);
            }
            Event::Init | Event::InitDone => {}
        }
        self.changed.notify_one();
    }
}

/// Waits until the store holds the first complete list; false if the watch has ended instead.
///
/// kube's own wait wakes only one of several that wait at once, so each looks again by itself.
pub async fn listed(store: &Store<AppWrapper>) -> bool {
    loop {
        if let Ok(listed) = tokio::time::timeout(LOOK_AGAIN, store.wait_until_ready()).await {
            return listed.is_ok();
        }
    }
}

fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

/// The kinds of all components that may exist, so that the caches can stop watching others; and whether one of a kind
/// declares how it ends.
pub fn kinds_in_use(store: &Store<AppWrapper>) -> HashMap<TypeRef, bool> {
    let mut kinds = HashMap::new();
    for wrapper in store.state() {
        if is_deployed(&wrapper.status) {
            let heads = wrapper
                .spec
                .components
                .iter()
                .filter_map(|component| component.template.head().ok());
            for head in heads {
                *kinds.entry(head.type_ref.clone()).or_default() |= !head.declared.is_empty();
            }
        }
    }
    kinds
}

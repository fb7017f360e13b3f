//! Submits AppWrappers, watches and deletes them, as a user of the cluster does.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use appwrapper_api::{API_VERSION, AppWrapper, KIND, SLOT_LABEL, Slot};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Makes sure that a namespace is there.
///
/// # Errors
///
/// When it cannot be made.
pub async fn namespace(client: &Client, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let params = PatchParams::apply("appwrapper-testkit").force();
    let applied = namespaces.patch(name, &params, &Patch::Apply(object)).await;
    applied.with_context(|| format!("making namespace {name}"))?;
    Ok(())
}

/// An AppWrapper with one Job of one pod. The annotations are the pod's.
pub fn with_job(name: &str, annotations: &[(&str, &str)]) -> Value {
    with_components(name, &[job(name, annotations)])
}

/// An AppWrapper around these objects.
pub fn with_components(name: &str, templates: &[Value]) -> Value {
    let components: Vec<Value> = templates
        .iter()
        .map(|template| json!({ "template": template }))
        .collect();
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": { "name": name },
        "spec": { "components": components },
    })
}

/// A Job of one pod. The annotations are the pod's.
pub fn job(name: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: Value = annotations
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name },
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": { "annotations": annotations },
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "work",
                        "image": "busybox:1.37",
                        "command": ["sleep", "1"],
                        "resources": { "requests": { "cpu": "100m", "memory": "32Mi" } },
                    }],
                },
            },
        },
    })
}

/// Submits an AppWrapper, with the slot that the webhook would give it.
///
/// # Errors
///
/// When it is refused.
pub async fn create(client: &Client, namespace: &str, object: &Value) -> Result<()> {
    create_with(&PostParams::default(), client, namespace, object).await
}

/// Whether an AppWrapper would be taken, without submitting it.
///
/// # Errors
///
/// When it would be refused.
pub async fn would_be_created(client: &Client, namespace: &str, object: &Value) -> Result<()> {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    create_with(&dry, client, namespace, object).await
}

async fn create_with(params: &PostParams, client: &Client, namespace: &str, object: &Value) -> Result<()> {
    let resource = ApiResource::erase::<AppWrapper>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let mut object: DynamicObject = serde_json::from_value(object.clone())?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let slot = Slot::of(namespace, &name).to_string();
    let labels = object.metadata.labels.get_or_insert_default();
    labels.insert(SLOT_LABEL.to_owned(), slot);
    let created = api.create(params, &object).await;
    created.with_context(|| format!("submitting AppWrapper {name}"))?;
    Ok(())
}

/// Deletes all AppWrappers of a namespace and waits until they are gone, which is up to the controller.
///
/// # Errors
///
/// When they are not gone in time.
pub async fn delete_all(client: &Client, namespace: &str, limit: Duration) -> Result<()> {
    let api: Api<AppWrapper> = Api::namespaced(client.clone(), namespace);
    let until = Instant::now() + limit;
    api.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    loop {
        let left = api.list_metadata(&ListParams::default()).await?.items.len();
        if left == 0 {
            return Ok(());
        }
        if Instant::now() >= until {
            bail!(
                "{left} AppWrappers in namespace {namespace} are not gone {} s after their deletion",
                limit.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The AppWrappers of a namespace as they change.
pub struct Watch(BoxStream<'static, Result<AppWrapper>>);

impl Watch {
    /// Begins to watch; what happens from now on is not missed.
    ///
    /// # Errors
    ///
    /// When they cannot be listed.
    pub async fn start(client: &Client, namespace: &str) -> Result<Self> {
        let api: Api<AppWrapper> = Api::namespaced(client.clone(), namespace);
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        while !matches!(events.try_next().await?, Some(Event::InitDone)) {}
        let changes = events.filter_map(|event| async {
            match event {
                Ok(Event::Apply(wrapper) | Event::InitApply(wrapper)) => Some(Ok(wrapper)),
                Ok(_) => None,
                Err(error) => Some(Err(anyhow!(error).context("watching AppWrappers"))),
            }
        });
        Ok(Self(changes.boxed()))
    }

    /// The next change. An error is passing: the watch goes on when it can.
    ///
    /// # Errors
    ///
    /// When the watch was broken.
    pub async fn next(&mut self) -> Result<AppWrapper> {
        self.0.try_next().await?.context("the watch of AppWrappers ended")
    }
}

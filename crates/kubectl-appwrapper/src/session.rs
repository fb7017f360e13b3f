//! The API server as the commands use it.

use std::sync::Arc;

use anyhow::{Context, bail};
use appwrapper_api::{AppWrapper, TypeRef};
use jiff::Timestamp;
use kube::{Api, Client, api::DynamicObject, config::KubeConfigOptions, core::GroupVersionKind, discovery};

use crate::args::Args;

/// A client, and where to look.
#[derive(Clone)]
pub struct Session {
    /// The client.
    pub client: Client,
    /// Namespace of the AppWrapper.
    pub namespace: String,
    /// Namespace of the controller.
    pub system: String,
    /// The wall clock, since deadlines come from times that the API server stores.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Session {
    /// Connects as kubectl would.
    pub async fn open(args: &Args) -> anyhow::Result<Self> {
        let config = match &args.context {
            None => kube::Config::infer()
                .await
                .context("no API server is configured; set KUBECONFIG")?,
            Some(context) => kube::Config::from_kubeconfig(&KubeConfigOptions {
                context: Some(context.clone()),
                ..KubeConfigOptions::default()
            })
            .await
            .with_context(|| format!("--context {context}"))?,
        };
        let namespace = args
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        Ok(Self {
            client: Client::try_from(config).context("cannot make a client")?,
            namespace,
            system: args.system_namespace.clone(),
            clock: Arc::new(Timestamp::now),
        })
    }

    /// AppWrappers of the namespace.
    pub fn wrappers(&self) -> Api<AppWrapper> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The AppWrapper of that name, or an error that says what to do.
    pub async fn wrapper(&self, name: &str) -> anyhow::Result<AppWrapper> {
        match self.wrappers().get_opt(name).await {
            Ok(Some(wrapper)) => Ok(wrapper),
            Ok(None) => bail!(
                "there is no AppWrapper {name:?} in namespace {}; name another one with -n, or see: kubectl appwrapper list -A",
                self.namespace
            ),
            Err(error) => Err(error).with_context(|| format!("cannot read AppWrapper {}/{name}", self.namespace)),
        }
    }

    /// Objects of a kind in the namespace, whole.
    pub async fn objects(&self, type_ref: &TypeRef) -> kube::Result<Api<DynamicObject>> {
        let gvk = GroupVersionKind::gvk(type_ref.group(), type_ref.version(), &type_ref.kind);
        let (resource, _) = discovery::pinned_kind(&self.client, &gvk).await?;
        Ok(Api::namespaced_with(self.client.clone(), &self.namespace, &resource))
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

/// An error of the API server, for a person.
pub fn plain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

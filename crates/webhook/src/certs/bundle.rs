//! The two webhook configurations: what they trust, and how it is changed.
//!
//! Only `caBundle` is ever written, by a JSON patch that is bound to the version that was read, so that fields which this
//! program does not know survive and a concurrent writer is noticed.

use appwrapper_metrics::labels::Webhook;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::admissionregistration::v1::WebhookClientConfig};
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    clock::ServerClock,
    material::{Certificate, Pair},
    trust,
};

const GROUP_VERSION: &str = "admissionregistration.k8s.io/v1";

/// Where the two configurations are.
#[derive(Clone, Debug)]
pub struct Configurations {
    /// Name of the mutating one.
    pub mutating: String,
    /// Name of the validating one.
    pub validating: String,
}

/// One configuration, as read.
#[derive(Debug, Deserialize)]
pub struct Configuration {
    metadata: Metadata,
    #[serde(default)]
    webhooks: Vec<Entry>,
    #[serde(skip, default = "mutating")]
    webhook: Webhook,
}

fn mutating() -> Webhook {
    Webhook::Mutating
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    client_config: WebhookClientConfig,
}

impl Configurations {
    /// Reads both.
    pub async fn read(&self, client: &Client, clock: &ServerClock) -> Result<[Configuration; 2], kube::Error> {
        let read = async |webhook: Webhook| {
            let (plural, name) = match webhook {
                Webhook::Mutating => ("mutatingwebhookconfigurations", &self.mutating),
                Webhook::Validating => ("validatingwebhookconfigurations", &self.validating),
            };
            let path = format!("/apis/{GROUP_VERSION}/{plural}/{name}");
            let found: Configuration = clock.fetch(client, &path).await?;
            Ok::<_, kube::Error>(Configuration { webhook, ..found })
        };
        Ok([read(Webhook::Mutating).await?, read(Webhook::Validating).await?])
    }
}

impl Configuration {
    /// Which of the two.
    pub fn webhook(&self) -> Webhook {
        self.webhook
    }

    /// What every entry trusts.
    pub fn certificates(&self) -> Vec<Certificate> {
        let mut bundles = self.webhooks.iter().map(|entry| certificates(&entry.client_config));
        let first = bundles.next().unwrap_or_default();
        bundles.fold(first, |mut common, bundle| {
            common.retain(|certificate| bundle.contains(certificate));
            common
        })
    }

    /// Whether the API server will accept the pair when it calls any of the entries; the error says why not.
    pub fn trusts(&self, pair: &Pair, now: Timestamp) -> Result<(), String> {
        let of_config = |fault: String| format!("{}: {fault}", self.metadata.name);
        if self.webhooks.is_empty() {
            return Err(of_config("lists no webhooks".into()));
        }
        self.webhooks.iter().try_for_each(|entry| {
            let config = &entry.client_config;
            let anchors = certificates(config);
            if anchors.is_empty() {
                return Err(of_config("caBundle is empty or no certificate".into()));
            }
            let name = server_name(config).ok_or_else(|| of_config("has neither service nor url".into()))?;
            trust::check(pair, anchors.iter(), &name, now).map_err(of_config)
        })
    }

    /// Makes every entry trust the bundle. Returns whether that took a write.
    pub async fn publish(&self, client: &Client, bundle: &str) -> Result<bool, kube::Error> {
        let wanted = ByteString(bundle.as_bytes().to_vec());
        let stale = |entry: &Entry| entry.client_config.ca_bundle.as_ref() != Some(&wanted);
        let stale: Vec<_> = self
            .webhooks
            .iter()
            .enumerate()
            .filter(|(_, entry)| stale(entry))
            .map(|(i, _)| i)
            .collect();
        if stale.is_empty() {
            return Ok(false);
        }
        let mut patch = vec![json!({
            "op": "replace", "path": "/metadata/resourceVersion", "value": self.metadata.resource_version,
        })];
        patch.extend(stale.into_iter().map(
            |index| json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": wanted}),
        ));
        let patch: json_patch::Patch = serde_json::from_value(patch.into()).map_err(kube::Error::SerdeError)?;
        let kind = match self.webhook {
            Webhook::Mutating => "MutatingWebhookConfiguration",
            Webhook::Validating => "ValidatingWebhookConfiguration",
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        api.patch(&self.metadata.name, &PatchParams::default(), &Patch::Json::<()>(patch))
            .await?;
        tracing::info!(configuration = self.metadata.name, "caBundle written");
        Ok(true)
    }
}

fn certificates(config: &WebhookClientConfig) -> Vec<Certificate> {
    config
        .ca_bundle
        .as_ref()
        .map(|bundle| Certificate::all_from_pem(&bundle.0))
        .unwrap_or_default()
}

/// The name that the API server expects in the certificate.
fn server_name(config: &WebhookClientConfig) -> Option<String> {
    if let Some(service) = &config.service {
        return Some(format!("{}.{}.svc", service.name, service.namespace));
    }
    let url: http::Uri = config.url.as_ref()?.parse().ok()?;
    url.host().map(|host| host.trim_matches(['[', ']']).to_owned())
}

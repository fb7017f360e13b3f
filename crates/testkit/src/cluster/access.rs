//! Ways in: clients from kubeconfig files, and kubeconfig files for the restricted accounts that the controller and the
//! webhook run under.
//!
//! A service account's file holds a token from the TokenRequest API and names any server: the API server, or a
//! [`Proxy`](crate::proxy::Proxy) in front of it, which passes the token through.

use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;

use super::Cluster;

/// How long a service account's token is good for; longer than any test.
const TOKEN_SECONDS: i64 = 12 * 3600;

/// A client from a kubeconfig file.
///
/// # Errors
///
/// When the file cannot be read or its credentials cannot be used.
pub async fn client_from(kubeconfig: &Path) -> Result<Client> {
    crate::install_crypto();
    Ok(Client::try_from(config_from(kubeconfig).await?)?)
}

pub(crate) async fn config_from(kubeconfig: &Path) -> Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

impl Cluster {
    /// Writes a kubeconfig file with which a program acts as a service account, which must exist. `server` is the URL
    /// to talk to, that of a proxy for example; `None` is the API server itself.
    ///
    /// # Errors
    ///
    /// When the account does not exist or the file cannot be written.
    pub async fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
        server: Option<&str>,
        path: &Path,
    ) -> Result<()> {
        let own_server = self.server();
        let server = server.unwrap_or(&own_server);
        let token = self.service_account_token(namespace, name).await?;
        let admin = Kubeconfig::read_from(self.kubeconfig())?;
        let cluster = admin.clusters.into_iter().next().and_then(|named| named.cluster);
        let mut cluster = cluster.context("the admin kubeconfig names no cluster")?;
        cluster.server = Some(server.to_owned());
        if server.starts_with("http://") {
            cluster.certificate_authority = None;
            cluster.certificate_authority_data = None;
        }
        let file = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": self.name(), "cluster": cluster }],
            "users": [{ "name": name, "user": { "token": token } }],
            "contexts": [{ "name": name, "context": { "cluster": self.name(), "user": name, "namespace": namespace } }],
            "current-context": name,
        });
        // JSON is YAML, and every reader of a kubeconfig takes it.
        std::fs::write(path, serde_json::to_vec_pretty(&file)?).with_context(|| format!("writing {}", path.display()))
    }

    /// A token of a service account, which must exist.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let spec = TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest {
            spec,
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await;
        let answer = answer.with_context(|| format!("a token for service account {namespace}/{name}"))?;
        Ok(answer.status.context("a token request has a status")?.token)
    }

    /// The API server's URL.
    pub fn server(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }
}

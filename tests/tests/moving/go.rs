//! What the Go controller does while it runs, as far as ours has to mind it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::{Move, NAMESPACE};

/// Its Lease.
pub const LEASE: &str = "f134c674.codeflare.dev";

/// Renews its Lease until it is stopped.
pub struct GoController(JoinHandle<()>);

impl GoController {
    /// Writes its certificate into the webhook configurations, and takes its Lease.
    pub async fn start(move_: &Move) -> Self {
        for (kind, name) in [
            (
                "mutatingwebhookconfiguration",
                "appwrapper-mutating-webhook-configuration",
            ),
            (
                "validatingwebhookconfiguration",
                "appwrapper-validating-webhook-configuration",
            ),
        ] {
            // As its certificate rotator does: the whole object, in its own name.
            let mut configuration = move_.get(kind, name, "").await;
            configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!(BUNDLE);
            let path = move_.cluster.dir().join("configuration.json");
            std::fs::write(&path, configuration.to_string()).unwrap();
            let file = path.to_string_lossy().into_owned();
            move_
                .kubectl(&["replace", "--field-manager=manager", "-f", &file])
                .await
                .unwrap();
        }
        let leases: Api<Lease> = Api::namespaced(move_.cluster.client(), NAMESPACE);
        renew(&leases).await;
        Self(tokio::spawn(async move {
            let mut ticks = interval(Duration::from_secs(2));
            loop {
                ticks.tick().await;
                renew(&leases).await;
            }
        }))
    }

    /// It ends as it does when it is scaled to 0: its Lease is not given back.
    pub fn stop(self) {
        self.0.abort();
    }
}

async fn renew(leases: &Api<Lease>) {
    let now = k8s_openapi::jiff::Timestamp::now();
    let lease: Value = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE},
        "spec": {
            "holderIdentity": "appwrapper-controller-manager-5d6f_0a1b", "leaseDurationSeconds": 15,
            "renewTime": format!("{now:.6}"), "acquireTime": format!("{now:.6}"), "leaseTransitions": 0,
        },
    });
    let params = PatchParams::apply("manager").force();
    leases.patch(LEASE, &params, &Patch::Apply(lease)).await.unwrap();
}

/// Some certificate; nobody checks it here.
const BUNDLE: &str =
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJkVENDQVJ1Z0F3SUJBZ0lVWnpCV0QKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

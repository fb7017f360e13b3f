//! The optional policy `write-fence`: the API server itself refuses what comes from a pod that does not hold the shard.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use appwrapper_testkit::cluster::apply::apply_yaml;
use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use appwrapper_testkit::controller::{self, ACCOUNT, NAMESPACE};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const SLOT: &str = "workload.codeflare.dev/slot";
const ALL: [bool; 3] = [true; 3];
const NONE: [bool; 3] = [false; 3];
const SOON: Duration = Duration::from_secs(30);

/// What `kubectl kustomize` makes of the component alone.
async fn rendered(cluster: &Cluster) -> String {
    let folder = cluster.dir().join("write-fence");
    std::fs::create_dir_all(&folder).unwrap();
    let component = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/components/write-fence");
    // Kustomize takes relative paths only.
    let up = "../".repeat(folder.canonicalize().unwrap().components().count() - 1);
    let path = component.canonicalize().unwrap().display().to_string();
    let file = format!("components: [{up}{}]\n", path.trim_start_matches('/'));
    std::fs::write(folder.join("kustomization.yaml"), file).unwrap();
    let output = cluster
        .kubectl()
        .unwrap()
        .arg("kustomize")
        .arg(&folder)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A pod of the controller, and its identity as a holder.
struct Replica {
    client: Client,
    holder: String,
}

impl Replica {
    async fn new(cluster: &Cluster, name: &str) -> Self {
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        let container = json!({"name": "manager", "image": "appwrapper",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
        let pod = json!({"metadata": {"name": name}, "spec": {"serviceAccountName": ACCOUNT,
            "automountServiceAccountToken": false, "containers": [container],
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}}});
        let pod = serde_json::from_value(pod).unwrap();
        let uid = pods.create(&PostParams::default(), &pod).await.unwrap().uid().unwrap();
        let request = TokenRequest {
            spec: TokenRequestSpec {
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(name.to_owned()),
                    uid: Some(uid.clone()),
                }),
                expiration_seconds: Some(3_600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), NAMESPACE);
        let token = accounts
            .create_token_request(ACCOUNT, &PostParams::default(), &request)
            .await
            .unwrap();
        let mut config = cluster.config().clone();
        config.auth_info = kube::config::AuthInfo {
            token: Some(token.status.unwrap().token.into()),
            ..kube::config::AuthInfo::default()
        };
        Self {
            client: Client::try_from(config).unwrap(),
            holder: format!("{name}_{uid}_n1"),
        }
    }

    /// Whether a status patch, a component's creation and its deletion in the slot pass. If not, the fence has refused them.
    async fn writes(&self, slot: &str) -> [bool; 3] {
        let wrappers: Api<appwrapper_api::AppWrapper> = Api::default_namespaced(self.client.clone());
        let status = json!({"status": {"phase": "Suspended"}});
        let patched = wrappers
            .patch_status(&format!("in-{slot}"), &PatchParams::default(), &Patch::Merge(status))
            .await;
        let name = self.holder.split('_').next().unwrap();
        let jobs: Api<Job> = Api::default_namespaced(self.client.clone());
        let created = jobs.create(&PostParams::default(), &job(name, slot)).await;
        let deleted = jobs
            .delete(&format!("in-{slot}"), &DeleteParams::background().dry_run())
            .await;
        let passed = [passes(patched), passes(created), passes(deleted)];
        if passed[1] {
            jobs.delete(name, &DeleteParams::background()).await.unwrap();
        }
        passed
    }
}

fn passes<T>(answer: kube::Result<T>) -> bool {
    match answer {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => {
            let fenced = status.code == 403 && status.message.contains("appwrapper-write-fence");
            assert!(fenced && status.message.contains("is held by"), "{status:?}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

fn job(name: &str, slot: &str) -> Job {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": "busybox"}]}});
    let labels = json!({SLOT: slot});
    serde_json::from_value(
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"suspend": true, "template": pod}}),
    )
    .unwrap()
}

fn wrapper(name: &str, labels: &Value) -> String {
    json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": name, "labels": labels},
        "spec": {"suspend": true, "components": [{"template": {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name}}}]}})
    .to_string()
}

async fn give(cluster: &Cluster, lease: &str, holder: &str) {
    let leases: Api<Lease> = Api::namespaced(cluster.client(), NAMESPACE);
    let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": lease, "labels": {"workload.codeflare.dev/ring": "appwrapper"}},
        "spec": {"holderIdentity": holder}});
    let params = PatchParams::apply("test").force();
    leases.patch(lease, &params, &Patch::Apply(object)).await.unwrap();
}

/// The API server sees Leases and policies a moment after they are written.
async fn until(replica: &Replica, slot: &str, may: bool) {
    let begun = Instant::now();
    while replica.writes(slot).await != [may; 3] {
        assert!(
            begun.elapsed() < SOON,
            "{} in {slot}: not {may} in time",
            replica.holder
        );
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_write_of_a_replica_that_does_not_hold_the_shard_is_refused_by_the_api_server() {
    let cluster = Cluster::start(ClusterOptions::unique("fence")).await.unwrap();
    controller::install(&cluster).await.unwrap();
    let admin = cluster.client();
    let (one, two) = (Replica::new(&cluster, "one").await, Replica::new(&cluster, "two").await);
    for slot in ["00", "1d"] {
        apply_yaml(&admin, &wrapper(&format!("in-{slot}"), &json!({SLOT: slot})))
            .await
            .unwrap();
        let jobs: Api<Job> = Api::default_namespaced(admin.clone());
        jobs.create(&PostParams::default(), &job(&format!("in-{slot}"), slot))
            .await
            .unwrap();
        assert_eq!(
            [one.writes(slot).await, two.writes(slot).await],
            [ALL; 2],
            "without the policy"
        );
    }
    // Of three: 0 modulo 3 is 0, and 0x1d is 29, which is 2.
    for (lease, holder) in [("0", &one.holder), ("1", &one.holder), ("2", &two.holder)] {
        give(&cluster, &format!("appwrapper-shard-{lease}-of-3"), holder).await;
    }
    give(&cluster, "appwrapper-member-one", &one.holder).await;
    give(&cluster, "appwrapper-map", "").await;
    apply_yaml(&admin, &rendered(&cluster).await).await.unwrap();

    until(&two, "00", false).await;
    assert_eq!([one.writes("00").await, one.writes("1d").await], [ALL, NONE]);
    assert_eq!(two.writes("1d").await, ALL);

    // Handed over: what its former holder still sends is refused.
    give(&cluster, "appwrapper-shard-0-of-3", &two.holder).await;
    until(&one, "00", false).await;
    until(&two, "00", true).await;
    // Released, and not taken yet.
    give(&cluster, "appwrapper-shard-0-of-3", "").await;
    until(&two, "00", false).await;
    // Another number of shards: 0 modulo 2 is 0, 29 is 1.
    let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
    for i in 0..3 {
        let name = format!("appwrapper-shard-{i}-of-3");
        leases.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    give(&cluster, "appwrapper-shard-0-of-2", &one.holder).await;
    give(&cluster, "appwrapper-shard-1-of-2", &one.holder).await;
    until(&one, "00", true).await;
    until(&one, "1d", true).await;
    until(&two, "1d", false).await;

    // What has no slot has no holder, and the leader gives it one.
    apply_yaml(&admin, &wrapper("bare", &json!({}))).await.unwrap();
    let wrappers: Api<appwrapper_api::AppWrapper> = Api::default_namespaced(two.client.clone());
    let given = json!({"metadata": {"labels": {SLOT: "00"}}});
    let given = Patch::Merge(&given);
    assert!(passes(wrappers.patch("bare", &PatchParams::default(), &given).await));
    let more = json!({"metadata": {"labels": {"x": "y"}}});
    let more = wrappers
        .patch("bare", &PatchParams::default(), &Patch::Merge(&more))
        .await;
    assert!(!passes(more));
    // Everybody else goes on as before.
    let jobs: Api<Job> = Api::default_namespaced(admin);
    jobs.create(&PostParams::default(), &job("theirs", "00")).await.unwrap();
    cluster.stop().await.unwrap();
}

//! The controller as it is installed: as a process, with the rights of its ServiceAccount.

use std::collections::BTreeSet;
use std::time::Duration;

use appwrapper_api::{AppWrapper, Phase};
use appwrapper_testkit::audit::{AuditEvent, AuditLog};
use appwrapper_testkit::cluster::apply::apply_yaml;
use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use appwrapper_testkit::controller::{self, Controller, ControllerOptions};
use kube::Api;
use kube::api::DeleteParams;
use kube::runtime::wait::await_condition;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

const WRAPPER: &str = "
apiVersion: workload.codeflare.dev/v1beta2
kind: AppWrapper
metadata: {name: one}
spec:
  components:
  - template:
      apiVersion: batch/v1
      kind: Job
      metadata: {name: one}
      spec:
        template:
          spec:
            restartPolicy: Never
            containers: [{name: work, image: busybox}]
";

#[tokio::test]
async fn an_appwrapper_runs_to_its_end_with_the_rights_of_the_account_and_no_others() {
    let cluster = Cluster::start(ClusterOptions::unique("controller").audited())
        .await
        .unwrap();
    controller::install(&cluster).await.unwrap();
    let controller = Controller::start(&cluster, ControllerOptions::default()).await.unwrap();

    apply_yaml(&cluster.client(), WRAPPER).await.unwrap();
    let wrappers: Api<AppWrapper> = Api::default_namespaced(cluster.client());
    let succeeded =
        |wrapper: Option<&AppWrapper>| wrapper.is_some_and(|wrapper| wrapper.status.phase() == Some(Phase::Succeeded));
    let ended = timeout(SOON, await_condition(wrappers.clone(), "one", succeeded)).await;
    ended.unwrap_or_else(|_| panic!("{}", controller.log_tail())).unwrap();
    wrappers.delete("one", &DeleteParams::default()).await.unwrap();
    let gone = |wrapper: Option<&AppWrapper>| wrapper.is_none();
    timeout(SOON, await_condition(wrappers, "one", gone))
        .await
        .unwrap()
        .unwrap();
    controller.stop().await.unwrap();

    let events = AuditLog::from_start(&cluster).unwrap().read().unwrap();
    let ours: Vec<&AuditEvent> = events.iter().filter(|event| event.is_of_the_controller()).collect();
    assert!(!ours.is_empty());
    let refused: BTreeSet<String> = ours
        .into_iter()
        .filter(|event| event.code() == 403)
        .map(AuditEvent::kind)
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

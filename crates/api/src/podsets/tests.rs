use rstest::rstest;
use serde_json::json;

use super::*;

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "a", "image": "i"}]}})
}

#[allow(clippy::needless_pass_by_value, reason = "reads better in a table")]
fn sets(template: Value) -> Result<Vec<(String, i32)>, PodSetError> {
    let component = Component {
        template: crate::Template::new(&template),
        ..Default::default()
    };
    Ok(resolve(&component)?
        .into_iter()
        .map(|set| (set.path, set.replicas.unwrap()))
        .collect())
}

#[rstest]
#[case::default(json!({}), 1)]
#[case::parallelism(json!({"parallelism": 4}), 4)]
#[case::fewer_completions(json!({"parallelism": 4, "completions": 3}), 3)]
#[case::more_completions(json!({"parallelism": 2, "completions": 9}), 2)]
#[case::only_completions(json!({"completions": 9}), 1)]
#[case::odd_values_are_not_given(json!({"parallelism": "4", "completions": 1.5}), 1)]
#[case::none(json!({"parallelism": 0}), 0)]
fn a_job_runs_as_many_pods_as_both_bounds_allow(#[case] mut spec: Value, #[case] pods: i32) {
    spec["template"] = pod();
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec});
    assert_eq!(sets(job).unwrap(), [("template.spec.template".to_owned(), pods)]);
}

#[test]
fn a_jobset_multiplies_and_tells_its_topology() {
    let job = |replicas: i32| json!({"name": "w", "replicas": replicas, "template": {"spec": {"parallelism": 2, "template": pod()}}});
    let jobset = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "spec": {"replicatedJobs": [job(3), {"name": "empty"}, job(1)]}});
    let type_ref = crate::TypeRef::new("jobset.x-k8s.io/v1alpha2", "JobSet");
    let inferred = infer(&type_ref, &jobset).unwrap();
    let found: Vec<_> = inferred
        .iter()
        .map(|set| (set.path.as_str(), set.replicas.unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("template.spec.replicatedJobs[0].template.spec.template", 6),
            ("template.spec.replicatedJobs[2].template.spec.template", 2),
        ]
    );
    assert_eq!(
        inferred[0].annotations["workload.codeflare.dev.appwrapper/tas-sub-group-count"],
        "3"
    );
}

#[test]
fn pytorch_is_master_then_worker() {
    let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {
        "Worker": {"replicas": 4, "template": pod()}, "Master": {"template": pod()}}}});
    assert_eq!(
        sets(job).unwrap(),
        [
            ("template.spec.pytorchReplicaSpecs.Master.template".to_owned(), 1),
            ("template.spec.pytorchReplicaSpecs.Worker.template".to_owned(), 4),
        ]
    );
}

#[test]
fn ray_kinds_have_a_head_and_workers() {
    let spec = json!({"headGroupSpec": {"template": pod()},
        "workerGroupSpecs": [{"replicas": 2, "template": pod()}, {"template": pod()}]});
    let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": spec});
    let job = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"rayClusterSpec": spec}});
    let counts = |template| {
        sets(template)
            .unwrap()
            .into_iter()
            .map(|(_, count)| count)
            .collect::<Vec<_>>()
    };
    assert_eq!(counts(cluster), [1, 2, 1]);
    assert_eq!(counts(job), [1, 2, 1]);
    let headless = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {}});
    assert!(matches!(sets(headless), Err(PodSetError::Path(_))));
}

#[rstest]
#[case::pod(json!({"apiVersion": "v1", "kind": "Pod", "spec": pod()["spec"]}), 1)]
#[case::service(json!({"apiVersion": "v1", "kind": "Service"}), 0)]
#[case::unknown_version(json!({"apiVersion": "batch/v1beta1", "kind": "Job"}), 0)]
#[case::deployment_without_template(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}), 0)]
fn a_kind_has_as_many_pod_sets_as_its_row_finds(#[case] template: Value, #[case] count: usize) {
    assert_eq!(sets(template).unwrap().len(), count);
}

#[rstest]
#[case::negative(json!(-1))]
#[case::overflow(json!(4_294_967_296_i64))]
#[case::text(json!("2"))]
#[case::fraction(json!(1.5))]
fn a_bad_replica_count_is_an_error(#[case] replicas: Value) {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "spec": {"replicas": replicas, "template": pod()}});
    assert!(sets(deployment).is_err());
}

#[test]
fn a_jobset_too_large_is_an_error_not_an_overflow() {
    let jobset = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [
        {"replicas": i64::MAX, "template": {"spec": {"parallelism": i64::MAX, "template": pod()}}}]}});
    assert!(matches!(sets(jobset), Err(PodSetError::Range { .. })));
}

#[test]
fn declared_pod_sets_are_taken_verbatim_after_a_check() {
    let template = crate::Template::new(&json!({"apiVersion": "example.com/v1", "kind": "Widget", "a": {"b": pod()}}));
    let declared = |path: &str, replicas| Component {
        pod_sets: vec![PodSet {
            replicas,
            path: path.to_owned(),
            annotations: BTreeMap::new(),
        }],
        template: template.clone(),
        ..Default::default()
    };
    assert_eq!(resolve(&declared("template.a.b", None)).unwrap()[0].replicas, None);
    assert!(resolve(&declared("template.a", None)).is_err());
    assert!(resolve(&declared("template.a.b", Some(-1))).is_err());
}

#[rstest]
#[case::of_the_template("template.spec.size", None, Ok(3))]
#[case::both_agree("template.spec.size", Some(3), Ok(3))]
#[case::both_differ(
    "template.spec.size",
    Some(2),
    Err("2 replicas are declared, but template.spec.size says 3")
)]
#[case::null_is_one("template.spec.none", None, Ok(1))]
#[case::missing("template.spec.missing", None, Err("no field \"missing\""))]
#[case::text("template.spec.pod", None, Err("must be an integer"))]
#[case::not_of_the_template("spec.size", None, Err("must begin with \"template\""))]
fn a_declared_pod_set_may_say_where_its_number_is(
    #[case] path: &str,
    #[case] replicas: Option<i32>,
    #[case] expected: Result<i32, &str>,
) {
    let component = Component {
        pod_sets: vec![PodSet {
            replicas,
            path: "template.spec.pod".to_owned(),
            annotations: BTreeMap::from([("workload.codeflare.dev.appwrapper/replicas-path".into(), path.into())]),
        }],
        template: crate::Template::new(&json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "spec": {"size": 3, "none": null, "pod": pod()}})),
        ..Default::default()
    };
    match (resolve(&component), expected) {
        (Ok(found), Ok(count)) => assert_eq!(found[0].replicas, Some(count)),
        (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
        (found, _) => panic!("{found:?}"),
    }
}

#[rstest]
#[case::one_host(json!({"replicas": 3}), 3)]
#[case::hosts(json!({"replicas": 3, "numOfHosts": 4}), 12)]
#[case::suspended(json!({"replicas": 3, "numOfHosts": 4, "suspend": true}), 0)]
#[case::not_suspended(json!({"replicas": 3, "suspend": false}), 3)]
#[case::absent(json!({"numOfHosts": 2}), 2)]
fn a_group_of_ray_workers_has_replicas_of_several_hosts(#[case] mut group: Value, #[case] pods: i32) {
    group["template"] = pod();
    let spec = json!({"headGroupSpec": {"template": pod()}, "workerGroupSpecs": [group]});
    for (kind, spec) in [
        ("RayCluster", spec.clone()),
        ("RayJob", json!({"rayClusterSpec": spec})),
        ("RayService", json!({"rayClusterConfig": spec})),
    ] {
        let found = sets(json!({"apiVersion": "ray.io/v1", "kind": kind, "spec": spec})).unwrap();
        assert_eq!(
            found.iter().map(|(_, count)| *count).collect::<Vec<_>>(),
            [1, pods],
            "{kind}"
        );
    }
}

#[rstest]
#[case::by_default(json!({}), 1)]
#[case::by_a_job(json!({"submissionMode": "K8sJobMode"}), 1)]
#[case::over_http(json!({"submissionMode": "HTTPMode"}), 0)]
#[case::by_hand(json!({"submissionMode": "InteractiveMode"}), 0)]
#[case::beside_the_head(json!({"submissionMode": "SidecarMode"}), 0)]
fn the_submitter_of_a_rayjob_is_a_pod_where_there_is_one(#[case] mut spec: Value, #[case] pod_sets: usize) {
    spec["rayClusterSpec"] = json!({"headGroupSpec": {"template": pod()}});
    let rayjob = |spec: &Value| json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec});
    assert_eq!(
        sets(rayjob(&spec)).unwrap().len(),
        1,
        "KubeRay's own template cannot be pointed at"
    );
    spec["submitterPodTemplate"] = pod();
    let found = sets(rayjob(&spec)).unwrap();
    assert_eq!(found.len(), 1 + pod_sets);
    if pod_sets == 1 {
        assert_eq!(found[1], ("template.spec.submitterPodTemplate".to_owned(), 1));
    }
}

#[rstest]
#[case::with_leaders(json!({"replicas": 3, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": {}, "workerTemplate": {}}}), &[3, 9])]
#[case::without(json!({"replicas": 3, "leaderWorkerTemplate": {"size": 4, "workerTemplate": {}}}), &[12])]
#[case::defaults(json!({"leaderWorkerTemplate": {"workerTemplate": {}}}), &[1])]
#[case::leaders_alone(json!({"leaderWorkerTemplate": {"size": 1, "leaderTemplate": {}, "workerTemplate": {}}}), &[1, 0])]
fn a_leader_worker_set_is_groups_of_a_size(#[case] mut spec: Value, #[case] pods: &[i32]) {
    for template in ["leaderTemplate", "workerTemplate"] {
        if let Some(empty) = spec["leaderWorkerTemplate"].get_mut(template) {
            *empty = pod();
        }
    }
    let set = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "spec": spec});
    let found: Vec<i32> = sets(set).unwrap().into_iter().map(|(_, count)| count).collect();
    assert_eq!(found, pods);
}

#[test]
fn an_mpi_job_is_a_launcher_and_its_workers() {
    for version in ["kubeflow.org/v1", "kubeflow.org/v2beta1"] {
        let job = |workers: Value| {
            json!({"apiVersion": version, "kind": "MPIJob", "spec": {"mpiReplicaSpecs": {
            "Worker": workers, "Launcher": {"template": pod()}}}})
        };
        let counts = |workers| {
            sets(job(workers))
                .unwrap()
                .into_iter()
                .map(|(_, count)| count)
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(json!({"replicas": 4, "template": pod()})), [1, 4]);
        assert_eq!(counts(json!({"template": pod()})), [1, 0], "the operators' default");
    }
}

#[test]
fn what_the_go_controller_infers_is_still_known() {
    let ray = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {"headGroupSpec": {"template": pod()},
        "workerGroupSpecs": [{"replicas": 3, "numOfHosts": 4, "template": pod()}]}});
    let counts = |sets: Vec<PodSet>| sets.into_iter().map(|set| set.replicas.unwrap()).collect::<Vec<_>>();
    let type_ref = crate::TypeRef::new("ray.io/v1", "RayCluster");
    assert_eq!(counts(infer(&type_ref, &ray).unwrap()), [1, 12]);
    assert_eq!(counts(infer_as_go(&type_ref, &ray).unwrap()), [1, 3]);
    let mpi = json!({"spec": {"mpiReplicaSpecs": {"Launcher": {"template": pod()}}}});
    let type_ref = crate::TypeRef::new("kubeflow.org/v2beta1", "MPIJob");
    assert_eq!(counts(infer(&type_ref, &mpi).unwrap()), [1]);
    assert!(infer_as_go(&type_ref, &mpi).unwrap().is_empty());
}

#[test]
fn the_override_of_a_train_job_is_a_pod_set_that_can_be_declared() {
    let nodes = BTreeMap::from([(
        "workload.codeflare.dev.appwrapper/replicas-path".into(),
        "template.spec.trainer.numNodes".into(),
    )]);
    let component = Component {
        pod_sets: vec![PodSet {
            replicas: None,
            path: "template.spec.podTemplateOverrides[0]".into(),
            annotations: nodes,
        }],
        template: crate::Template::new(
            &json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": {
            "runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 4},
            "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"containers": [{"name": "node"}]}}]}}),
        ),
        ..Default::default()
    };
    assert_eq!(resolve(&component).unwrap()[0].replicas, Some(4));
}

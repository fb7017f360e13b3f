//! What is put into pod templates (spec/components.md sections 5 and 6; upstream tests 16 to 22; R24, R29).

use appwrapper_api::{APPWRAPPER_LABEL, AppWrapper, Phase, config::AppWrapperConfig};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    fixtures::*,
    render_components::{policy, rendered},
    sim::Sim,
};

fn inform(wrapper: &mut AppWrapper, position: usize, infos: Value) {
    wrapper.spec.components[position].pod_set_infos = serde_json::from_value(infos).unwrap();
}

/// The pod template of a Job, after injection of `info` into `template`.
fn injected(template: Value, info: Value) -> Result<Value, String> {
    configured(&AppWrapperConfig::default(), template, info)
}

fn configured(config: &AppWrapperConfig, template: Value, info: Value) -> Result<Value, String> {
    let mut job = job("train");
    job["spec"]["template"] = template;
    let mut wrapper = wrapper([job]);
    inform(&mut wrapper, 0, json!([info]));
    rendered(&wrapper, 0, &policy(config)).map(|object| object["spec"]["template"].clone())
}

fn with_spec(extra: Value) -> Value {
    let mut template = pod_template();
    for (name, value) in extra.as_object().unwrap() {
        template["spec"][name] = value.clone();
    }
    template
}

fn full() -> Value {
    json!({
        "annotations": {"a": "1"}, "labels": {"l": "2"}, "nodeSelector": {"n": "3"},
        "tolerations": [{"key": "t", "operator": "Exists", "effect": "NoSchedule"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
    })
}

#[test]
fn everything_of_kueue_arrives() {
    let pod = injected(pod_template(), full()).unwrap();
    assert_eq!(pod["metadata"]["annotations"], json!({"a": "1"}));
    assert_eq!(pod["metadata"]["labels"]["l"], "2");
    assert_eq!(pod["metadata"]["labels"][APPWRAPPER_LABEL], "aw");
    assert_eq!(pod["spec"]["nodeSelector"], json!({"n": "3"}));
    assert_eq!(
        pod["spec"]["tolerations"],
        json!([{"key": "t", "operator": "Exists", "effect": "NoSchedule"}])
    );
    assert_eq!(
        pod["spec"]["schedulingGates"],
        json!([{"name": "kueue.x-k8s.io/topology"}])
    );
    assert!(pod["spec"].get("affinity").is_none());
}

#[test]
fn without_information_only_labels_are_added() {
    let pod = injected(pod_template(), json!({})).unwrap();
    let keys: Vec<_> = pod["metadata"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["labels"]);
    assert_eq!(pod["spec"], pod_template()["spec"]);
}

#[test]
fn what_the_template_has_survives() {
    let mut template = with_spec(json!({
        "nodeSelector": {"own": "x"}, "tolerations": [{"key": "own"}], "schedulingGates": [{"name": "own"}],
    }));
    template["metadata"] = json!({"labels": {"own": "l"}, "annotations": {"own": "a"}});
    let pod = injected(template, full()).unwrap();
    assert_eq!(pod["metadata"]["annotations"], json!({"own": "a", "a": "1"}));
    assert_eq!(pod["metadata"]["labels"]["own"], "l");
    assert_eq!(pod["spec"]["nodeSelector"], json!({"own": "x", "n": "3"}));
    assert_eq!(pod["spec"]["tolerations"][0], json!({"key": "own"}));
    assert_eq!(
        pod["spec"]["schedulingGates"],
        json!([{"name": "own"}, {"name": "kueue.x-k8s.io/topology"}])
    );
}

#[test]
fn tolerations_are_appended_as_they_are_and_gates_only_once() {
    let own = full();
    let template = with_spec(json!({"tolerations": own["tolerations"], "schedulingGates": own["schedulingGates"]}));
    let pod = injected(template, full()).unwrap();
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(pod["spec"]["schedulingGates"].as_array().unwrap().len(), 1);
}

#[rstest]
#[case::labels(json!({"metadata": {"labels": {"l": "other"}}}), json!({"labels": {"l": "2"}}), "conflict updating labels: conflict for key=l, value1=other, value2=2")]
#[case::annotations(json!({"metadata": {"annotations": {"a": "other"}}}), json!({"annotations": {"a": "1"}}), "conflict updating annotations: conflict for key=a, value1=other, value2=1")]
#[case::node_selector(json!({"spec": {"nodeSelector": {"n": "other"}}}), json!({"nodeSelector": {"n": "3"}}), "conflict updating nodeSelector: conflict for key=n, value1=other, value2=3")]
#[case::our_label(json!({"metadata": {"labels": {APPWRAPPER_LABEL: "other"}}}), json!({}), "conflict updating labels: conflict for key=workload.codeflare.dev/appwrapper, value1=other, value2=aw")]
fn a_conflict_is_fatal_and_names_key_and_values(#[case] own: Value, #[case] info: Value, #[case] text: &str) {
    let mut template = with_spec(own.get("spec").cloned().unwrap_or_else(|| json!({})));
    if let Some(metadata) = own.get("metadata") {
        template["metadata"] = metadata.clone();
    }
    assert_eq!(injected(template.clone(), info.clone()).unwrap_err(), text);
    let mut job = job("train");
    job["spec"]["template"] = template;
    let mut wrapper = wrapper([job]);
    inform(&mut wrapper, 0, json!([info]));
    let mut sim = Sim::of(wrapper);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    let condition = sim.condition(appwrapper_api::ConditionType::Unhealthy);
    // A label that names another AppWrapper is refused before by the rules of a component, in their own words.
    assert!(
        condition.contains(text) || condition.contains(APPWRAPPER_LABEL),
        "{condition}"
    );
    assert_eq!(sim.status().resetting_count, 0);
}

#[test]
fn equal_values_are_no_conflict_and_scalars_become_text() {
    let mut template = with_spec(json!({"nodeSelector": {"n": "3"}}));
    template["metadata"] = json!({"labels": {"l": 2, "flag": true}, "annotations": {"a": 1}});
    let pod = injected(template, full()).unwrap();
    assert_eq!(pod["metadata"]["labels"]["l"], "2");
    assert_eq!(pod["metadata"]["labels"]["flag"], "true");
    assert_eq!(pod["metadata"]["annotations"]["a"], "1");
}

#[rstest]
#[case::null(Value::Null)]
#[case::text(json!("odd"))]
fn a_map_that_is_none_is_replaced(#[case] odd: Value) {
    let mut template = pod_template();
    template["metadata"] = json!({"labels": odd, "annotations": odd});
    let pod = injected(template, full()).unwrap();
    assert_eq!(pod["metadata"]["annotations"], json!({"a": "1"}));
    assert_eq!(pod["metadata"]["labels"]["l"], "2");
}

#[test]
fn explicit_nulls_are_as_if_absent() {
    let mut template =
        with_spec(json!({"tolerations": null, "schedulingGates": null, "nodeSelector": null, "affinity": null}));
    template["metadata"] = Value::Null;
    let pod = injected(template, full()).unwrap();
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 1);
    assert_eq!(pod["spec"]["schedulingGates"].as_array().unwrap().len(), 1);
    assert_eq!(pod["spec"]["nodeSelector"], json!({"n": "3"}));
}

#[test]
fn the_scheduler_is_injected_unless_the_template_names_one() {
    let config = AppWrapperConfig {
        scheduler_name: "sakkara".into(),
        ..AppWrapperConfig::default()
    };
    for (own, expected) in [
        (json!({}), "sakkara"),
        (json!({"schedulerName": ""}), "sakkara"),
        (json!({"schedulerName": "own"}), "own"),
    ] {
        let pod = configured(&config, with_spec(own), json!({})).unwrap();
        assert_eq!(pod["spec"]["schedulerName"], expected);
    }
    assert!(
        injected(pod_template(), json!({})).unwrap()["spec"]
            .get("schedulerName")
            .is_none()
    );
}

#[test]
fn each_pod_set_gets_its_own_placement() {
    let place = |name: &str| {
        json!({
            "nodeSelector": {"pool": name}, "labels": {"from": name}, "tolerations": [{"key": name}],
            "schedulingGates": [{"name": name}],
        })
    };
    let mut wrapper = wrapper([jobset("a"), service("b"), widget("c")]);
    wrapper.spec.components[2].pod_sets =
        serde_json::from_value(json!([{"path": "template.spec.list[1].tpl"}])).unwrap();
    inform(&mut wrapper, 0, json!([place("a0"), place("a1"), place("surplus")]));
    inform(&mut wrapper, 2, json!([place("c0")]));
    let policy = policy(&AppWrapperConfig::default());
    let set = rendered(&wrapper, 0, &policy).unwrap();
    for (index, name) in ["a0", "a1"].into_iter().enumerate() {
        let pod = &set["spec"]["replicatedJobs"][index]["template"]["spec"]["template"];
        assert_eq!(pod["spec"]["nodeSelector"], json!({"pool": name}));
        assert_eq!(pod["metadata"]["labels"]["from"], name);
        assert_eq!(pod["spec"]["tolerations"], json!([{"key": name}]));
        assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": name}]));
    }
    assert!(!set.to_string().contains("surplus"));
    assert!(!rendered(&wrapper, 1, &policy).unwrap().to_string().contains("pool"));
    let widget = rendered(&wrapper, 2, &policy).unwrap();
    assert_eq!(
        widget["spec"]["list"][1]["tpl"]["spec"]["nodeSelector"],
        json!({"pool": "c0"})
    );
    assert_eq!(
        widget["spec"]["list"][0]["tpl"],
        pod_template(),
        "not a pod set: untouched"
    );
}

#[test]
fn a_bare_pod_is_its_own_template() {
    let mut wrapper = wrapper([pod("p")]);
    inform(&mut wrapper, 0, json!([full()]));
    let pod = rendered(&wrapper, 0, &policy(&AppWrapperConfig::default())).unwrap();
    assert_eq!(pod["metadata"]["labels"]["l"], "2");
    assert_eq!(pod["metadata"]["annotations"], json!({"a": "1"}));
    assert_eq!(pod["metadata"]["name"], "p");
    assert_eq!(pod["spec"]["nodeSelector"], json!({"n": "3"}));
}

fn gpu(place: &str, quantity: Value) -> Value {
    json!({"name": "main", "image": "i", "resources": {place: {"nvidia.com/gpu": quantity}}})
}

fn expressions() -> Value {
    json!([{"key": "autopilot.ibm.com/gpuhealth", "operator": "NotIn", "values": ["EVICT", "TESTING"]}])
}

#[rstest]
#[case::limit("limits", json!(4))]
#[case::request("requests", json!("4"))]
#[case::milli("limits", json!("500m"))]
fn a_pod_that_uses_a_marked_resource_keeps_off_marked_nodes(#[case] place: &str, #[case] quantity: Value) {
    for list in ["containers", "initContainers"] {
        let pod = injected(with_spec(json!({list: [gpu(place, quantity.clone())]})), json!({})).unwrap();
        let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
        assert_eq!(
            affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
            json!([{"matchExpressions": expressions()}])
        );
        assert_eq!(
            affinity["preferredDuringSchedulingIgnoredDuringExecution"],
            json!([{"weight": 50, "preference": {"matchExpressions": [
                {"key": "autopilot.ibm.com/gpuhealth", "operator": "NotIn", "values": ["WARN"]}
            ]}}])
        );
    }
}

#[rstest]
#[case::none(json!([{"name": "main", "image": "i"}]))]
#[case::zero(json!([gpu("limits", json!(0))]))]
#[case::zero_text(json!([gpu("limits", json!("0"))]))]
#[case::another(json!([{"name": "main", "resources": {"limits": {"amd.com/gpu": 1}}}]))]
fn a_pod_that_does_not_use_it_gets_no_affinity(#[case] containers: Value) {
    let pod = injected(with_spec(json!({"containers": containers})), json!({})).unwrap();
    assert!(pod["spec"].get("affinity").is_none());
}

#[test]
fn every_existing_term_carries_the_expression_and_keeps_its_own() {
    let own = |host: &str| json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [host]}]});
    let required = json!({"nodeSelectorTerms": [own("a"), own("b"), {"matchFields": []}]});
    let preferred = json!([{"weight": 1, "preference": own("c")}]);
    let affinity = json!({"podAffinity": {}, "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }});
    let pod = injected(
        with_spec(json!({"containers": [gpu("limits", json!(1))], "affinity": affinity})),
        json!({}),
    )
    .unwrap();
    let affinity = &pod["spec"]["affinity"];
    let terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        .as_array()
        .unwrap();
    assert_eq!(terms.len(), 3);
    for term in terms {
        let last = term["matchExpressions"].as_array().unwrap().last().unwrap();
        assert_eq!(*last, expressions()[0]);
    }
    assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["a"]));
    assert_eq!(
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(affinity.get("podAffinity").is_some());
}

#[test]
fn an_empty_list_of_terms_stays_empty() {
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}});
    let pod = injected(
        with_spec(json!({"containers": [gpu("limits", json!(1))], "affinity": affinity})),
        json!({}),
    )
    .unwrap();
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required["nodeSelectorTerms"], json!([]));
}

#[test]
fn nothing_is_injected_when_it_is_switched_off() {
    let mut config = AppWrapperConfig::default();
    config.autopilot.as_mut().unwrap().inject_anti_affinities = false;
    let pod = configured(
        &config,
        with_spec(json!({"containers": [gpu("limits", json!(1))]})),
        json!({}),
    )
    .unwrap();
    assert!(pod["spec"].get("affinity").is_none());
}

#[test]
fn a_weight_of_null_is_one_and_more_taints_are_sorted() {
    let config = appwrapper_api::config::Config::from_yaml(
        "appwrapper:\n  autopilot:\n    preferNoScheduleWeight: null\n    resourceTaints:\n      nvidia.com/gpu:\n      - {key: z, value: b, effect: NoExecute}\n      - {key: a, value: y, effect: NoSchedule}\n      - {key: z, value: a, effect: NoSchedule}\n      - {key: p, value: q, effect: PreferNoSchedule}\n",
    )
    .unwrap();
    let pod = configured(
        &config.appwrapper,
        with_spec(json!({"containers": [gpu("limits", json!(1))]})),
        json!({}),
    )
    .unwrap();
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
    assert_eq!(
        affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchExpressions"],
        json!([{"key": "a", "operator": "NotIn", "values": ["y"]}, {"key": "z", "operator": "NotIn", "values": ["a", "b"]}])
    );
    assert_eq!(
        affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["weight"],
        1
    );
}

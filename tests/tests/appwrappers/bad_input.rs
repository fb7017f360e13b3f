//! Bad input: each gets a clear status or event, and nothing of it does harm or is lost.

use std::time::Duration;

use appwrapper_testkit::api_server::{Effect, Match, Verb};
use appwrapper_testkit::cluster::apply::apply_yaml;
use appwrapper_tests::components::{FAIL, HOLD, component, config_map, job, jobs, pod_template, service, widget};
use appwrapper_tests::team::{condition, is_true, phase, retries, wrapper};
use appwrapper_tests::world::definition;
use appwrapper_tests::{Team, World};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

/// Waits until an AppWrapper has failed for good, with this in the message, and nothing of it is left.
async fn fails(team: &Team<'_>, name: &str, reason: &str, text: &str) {
    let ended = team
        .until(name, &format!("Failed, {reason}"), |wrapper| {
            phase(wrapper) == "Failed" && !is_true(wrapper, "ResourcesDeployed") && !is_true(wrapper, "QuotaReserved")
        })
        .await;
    let unhealthy = condition(&ended, "Unhealthy");
    assert_eq!(
        (&unhealthy["status"], &unhealthy["reason"]),
        (&json!("True"), &json!(reason))
    );
    let message = unhealthy["message"].as_str().unwrap();
    assert!(message.contains(text), "{name}: {message}");
    assert_eq!(retries(&ended), 0, "{name}: a retry cannot help");
    team.until_event(name, "Unhealthy", text.get(..text.len().min(100)).unwrap())
        .await;
    team.remove(name).await;
}

/// Waits until an AppWrapper that cannot even be looked into says why.
async fn refused(team: &Team<'_>, name: &str, text: &str) {
    let waiting = team
        .until(name, "InvalidComponent", |wrapper| {
            condition(wrapper, "Unhealthy")["reason"] == "InvalidComponent"
        })
        .await;
    assert_eq!(phase(&waiting), "", "{name}");
    let message = condition(&waiting, "Unhealthy")["message"].as_str().unwrap();
    assert!(
        message.contains(text) && message.contains("spec.components[0]"),
        "{name}: {message}"
    );
    team.until_event(name, "InvalidComponent", text).await;
}

/// The schema refuses what is no object, and what names no kind.
pub async fn a_template_that_is_no_object_is_refused(world: &World) {
    let team = world.team("no-object").await;
    let templates = [
        (json!([]), "template"),
        (json!("text"), "template"),
        (json!(7), "template"),
        (Value::Null, "template"),
        (json!({"spec": {}}), "apiVersion"),
        (json!({"apiVersion": "v1", "metadata": {"name": "a"}}), "kind"),
    ];
    for (template, text) in templates {
        let error = team
            .try_create(&wrapper("a", &[json!({"template": template})], &[]))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(text), "{template}: {error}");
    }
    let error = team.try_create(&wrapper("a", &[json!({})], &[])).await.unwrap_err();
    assert!(error.to_string().contains("template"), "{error}");
}

/// A kind that nobody serves, and a core kind that there is not.
pub async fn an_unknown_kind_fails_by_its_name(world: &World) {
    let team = world.team("unknown-kind").await;
    let limit = [("retryLimit", "3")];
    for (name, api_version, kind) in [
        ("no-group", "nobody.example.org/v1", "Gadget"),
        ("no-version", "apps/v9", "Deployment"),
        ("no-kind", "v1", "Gadget"),
    ] {
        let unknown = component(api_version, kind, name, &json!({}));
        team.submit_with(name, &[service(name), unknown], &limit).await;
        fails(&team, name, "CreateFailed", kind).await;
        team.until_gone("v1", "Service", name).await;
    }
}

/// Kinds that the configuration does not list, or never allows, although no webhook stood in their way.
pub async fn a_kind_that_may_not_be_wrapped_fails_by_its_name(world: &World) {
    let team = world.team("forbidden-kind").await;
    for (name, api_version, kind, told) in [
        ("not-listed", "v1", "LimitRange", "kind LimitRange may not be wrapped"),
        (
            "privileged",
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "kinds of rbac.authorization.k8s.io hand out rights",
        ),
    ] {
        let forbidden = component(api_version, kind, name, &json!({}));
        team.submit(name, &[config_map(name), forbidden]).await;
        fails(&team, name, "CreateFailed", told).await;
        // Not even what stands before it was created.
        assert_eq!(team.find("v1", "ConfigMap", name).await, None);
    }
}

/// A kind whose definition is removed under a running AppWrapper, and comes back.
pub async fn a_kind_whose_definition_goes_away(world: &World) {
    let team = world.team("definition-gone").await;
    let gadgets = definition("example.com", "v1", "Gadget", "gadgets");
    apply_yaml(&world.client(), &gadgets).await.unwrap();
    for name in ["a", "b"] {
        let gadget = component("example.com/v1", "Gadget", name, &json!({}));
        team.submit(name, &[gadget, job(name, &[HOLD])]).await;
        team.until(name, "ready", |wrapper| is_true(wrapper, "PodsReady")).await;
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client());
    definitions
        .delete("gadgets.example.com", &DeleteParams::default())
        .await
        .unwrap();
    // The API server deletes the objects first and the definition then. Whoever asks in between learns that the object
    // is gone, and whoever asks later learns nothing: the AppWrapper fails for the one and waits for the other.
    let deleted = |found: Option<&CustomResourceDefinition>| found.is_none();
    kube::runtime::wait::await_condition(definitions, "gadgets.example.com", deleted)
        .await
        .unwrap();
    // Either way it can be deleted, with nothing left of it.
    team.remove("a").await;
    team.until_gone("batch/v1", "Job", "a").await;
    // And once the kind is there again, the verdict is no longer open.
    apply_yaml(&world.client(), &gadgets).await.unwrap();
    let failed = team.reaches("b", "Failed").await;
    assert_eq!(condition(&failed, "Unhealthy")["reason"], "MissingComponent");
    team.until_gone("batch/v1", "Job", "b").await;
    team.remove("b").await;
}

/// An object in somebody else's namespace, and one that has no namespace.
pub async fn a_component_elsewhere_is_refused_by_name(world: &World) {
    let team = world.team("elsewhere").await;
    let mut elsewhere = config_map("elsewhere");
    elsewhere["template"]["metadata"]["namespace"] = json!("default");
    team.submit("other", &[config_map("first"), elsewhere]).await;
    fails(&team, "other", "CreateFailed", "default").await;
    // It broke a rule, so nothing was created at all; had it been created, it would have been here or there.
    assert_eq!(team.find("v1", "ConfigMap", "elsewhere").await, None);
    let default: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(world.client(), "default");
    assert!(default.get_opt("elsewhere").await.unwrap().is_none());

    let volume = component("v1", "PersistentVolume", "tests-bad-input", &json!({}));
    team.submit("cluster", &[volume]).await;
    fails(&team, "cluster", "CreateFailed", "cluster-scoped").await;
}

/// It waits, says why, and goes on once it is put right.
pub async fn a_wrong_path_waits_to_be_put_right(world: &World) {
    let team = world.team("wrong-path").await;
    let mut wrong = widget("a");
    wrong["podSets"][0]["path"] = json!("template.spec.pods[0]");
    team.submit("a", &[wrong]).await;
    refused(&team, "a", "pods").await;
    assert_eq!(team.find("example.com/v1", "Widget", "a").await, None);
    team.change("a", &json!({"spec": {"components": [widget("a")]}})).await;
    let running = team.reaches("a", "Running").await;
    assert!(!is_true(&running, "Unhealthy"));
    team.remove("a").await;

    // A path to something that is no pod template is found before anything is created.
    let mut elsewhere = widget("b");
    elsewhere["podSets"][0]["path"] = json!("template.metadata");
    team.submit("b", &[elsewhere]).await;
    refused(&team, "b", "template.metadata").await;
    team.remove("b").await;
}

/// Numbers that are no numbers of pods.
pub async fn replicas_out_of_range_are_named(world: &World) {
    let team = world.team("replicas").await;
    let replicated = |kind: &str, replicas: Value| {
        let template = pod_template(&[]);
        component(
            "apps/v1",
            kind,
            "a",
            &json!({"replicas": replicas, "selector": {}, "template": template}),
        )
    };
    let product = {
        let job = json!({"parallelism": 65_536, "completions": 65_536, "template": pod_template(&[])});
        let replicated = json!([{"name": "w", "replicas": 65_536, "template": {"spec": job}}]);
        component(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "a",
            &json!({"replicatedJobs": replicated}),
        )
    };
    for (name, component, text) in [
        ("negative", replicated("Deployment", json!(-1)), "-1"),
        (
            "too-large",
            replicated("StatefulSet", json!(3_000_000_000_u64)),
            "3000000000",
        ),
        ("text", replicated("Deployment", json!("two")), "integer"),
        ("product", product, "4294967296"),
    ] {
        team.submit(name, &[component]).await;
        refused(&team, name, text).await;
        team.remove(name).await;
    }
    // Declared ones are the schema's or ours to refuse.
    for replicas in [json!(-1), json!(3_000_000_000_u64), json!("two")] {
        let mut declared = widget("a");
        declared["podSets"][0]["replicas"] = replicas.clone();
        if let Err(error) = team.try_create(&wrapper("declared", &[declared], &[])).await {
            assert!(error.to_string().contains("replicas"), "{replicas}: {error}");
            continue;
        }
        team.until("declared", "a word about it", |wrapper| is_true(wrapper, "Unhealthy"))
            .await;
        assert_eq!(team.find("example.com/v1", "Widget", "a").await, None);
        team.remove("declared").await;
    }
}

/// The name of an AppWrapper is a label of everything it makes.
pub async fn a_name_that_cannot_be_a_label_is_refused(world: &World) {
    let team = world.team("long-name").await;
    let name = "n".repeat(64);
    let refused = team
        .try_create(&wrapper(&name, &[config_map("a")], &[]))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("at most 63 characters"), "{refused}");
    let longest = "n".repeat(63);
    team.submit(&longest, &[config_map("a"), job("a", &[])]).await;
    team.reaches(&longest, "Succeeded").await;
    team.remove(&longest).await;
}

/// C03: two components of one kind and name.
pub async fn two_components_of_one_name_are_refused(world: &World) {
    let team = world.team("twice").await;
    team.submit("a", &[job("a", &[HOLD]), job("a", &[])]).await;
    fails(&team, "a", "CreateFailed", "wrapped twice").await;
    assert_eq!(team.find("batch/v1", "Job", "a").await, None);
    // One name for two kinds is fine, and so are generated names.
    team.submit("b", &[job("b", &[]), service("b"), config_map("b")]).await;
    team.reaches("b", "Succeeded").await;
    team.remove("b").await;
}

/// Many components.
pub async fn a_hundred_components_come_and_go(world: &World) {
    let team = world.team("hundred").await;
    let mut components: Vec<Value> = (0..99).map(|index| config_map(&format!("map-{index}"))).collect();
    components.push(job("job", &[HOLD]));
    team.submit("a", &components).await;
    let ready = team.until("a", "ready", |wrapper| is_true(wrapper, "PodsReady")).await;
    assert_eq!(ready["status"]["componentStatus"].as_array().unwrap().len(), 100);
    let label = "workload.codeflare.dev/appwrapper=a";
    assert_eq!(team.list("v1", "ConfigMap", label).await.len(), 99);
    // The last of a hundred is looked after as well as the first.
    team.delete("v1", "ConfigMap", "map-98", "background").await;
    let failed = team.reaches("a", "Failed").await;
    assert_eq!(
        condition(&failed, "Unhealthy")["message"],
        "Only found 99 deployed components, but was expecting 100"
    );
    team.until("a", "the quota is given back", |wrapper| {
        !is_true(wrapper, "QuotaReserved")
    })
    .await;
    assert_eq!(team.list("v1", "ConfigMap", label).await.len(), 0);
    team.remove("a").await;
}

/// C07: a status that somebody has restored or edited.
pub async fn missing_conditions_are_put_right(world: &World) {
    let team = world.team("conditions").await;
    team.submit("a", &[job("a", &[HOLD])]).await;
    let healthy = |wrapper: &Value| {
        phase(wrapper) == "Running"
            && is_true(wrapper, "PodsReady")
            && is_true(wrapper, "QuotaReserved")
            && is_true(wrapper, "ResourcesDeployed")
    };
    let before = team.until("a", "ready", healthy).await;
    let job = team.find("batch/v1", "Job", "a").await.unwrap()["metadata"]["uid"].take();
    let component_status = before["status"]["componentStatus"].clone();
    for edited in [
        json!({"conditions": null}),
        json!({"conditions": []}),
        json!({"conditions": null, "componentStatus": null}),
        json!({"componentStatus": []}),
        json!({"conditions": [{"type": "Unheard", "status": "True", "reason": "Edited", "message": "",
            "lastTransitionTime": "2020-01-01T00:00:00Z"}]}),
    ] {
        team.forge("a", &edited).await;
        team.until("a", "put right", healthy).await;
        team.stays("a", "healthy", Duration::from_secs(2), healthy).await;
    }
    let after = team.get("a").await;
    assert_eq!(
        after["status"]["componentStatus"][0]["podSets"],
        component_status[0]["podSets"]
    );
    let now = team.find("batch/v1", "Job", "a").await.unwrap()["metadata"]["uid"].take();
    assert_eq!(now, job, "the Job was made again");
    team.remove("a").await;
}

/// What a status says of components is a hint: nobody's objects are touched for it.
pub async fn a_forged_status_harms_nobody(world: &World) {
    let team = world.team("forged").await;
    let victim = config_map("victim")["template"].take();
    team.create(&victim).await;
    let victims_pod = appwrapper_tests::components::pod("victim", &[])["template"].take();
    team.create(&victims_pod).await;
    let now = "2026-01-01T00:00:00Z";
    let deployed = |status: &str| json!({"type": "ResourcesDeployed", "status": status, "reason": "Forged", "message": "", "lastTransitionTime": now});
    let named = |kind: &str, api_version: &str| json!([{"name": "victim", "kind": kind, "apiVersion": api_version, "podSets": [], "conditions": [deployed("True")]}]);
    for (name, forged, kind) in [
        ("failed", "Failed", "ConfigMap"),
        ("suspending", "Suspending", "ConfigMap"),
        ("succeeded", "Succeeded", "Pod"),
        ("running", "Running", "ConfigMap"),
        ("resetting", "Resetting", "Pod"),
        ("more", "Failed", "more"),
    ] {
        let mut object = wrapper(name, &[config_map(name)], &[("successTTLDuration", "1s")]);
        object["spec"]["suspend"] = json!(true);
        team.create(&object).await;
        team.reaches(name, "Suspended").await;
        let components = if kind == "more" {
            // More than there are in the spec.
            json!([named("ConfigMap", "v1")[0], named("ConfigMap", "v1")[0]])
        } else {
            named(kind, "v1")
        };
        let status = json!({"phase": forged, "conditions": [deployed("True")], "componentStatus": components});
        team.forge(name, &status).await;
        // Whatever is made of it, it comes to an end in which nothing is deployed.
        team.until(name, "nothing is deployed", |wrapper| {
            !is_true(wrapper, "ResourcesDeployed")
        })
        .await;
        team.remove(name).await;
    }
    assert!(team.find("v1", "ConfigMap", "victim").await.is_some());
    let pod = team.find("v1", "Pod", "victim").await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_null());

    // A phase that there is not: left alone, and can be deleted.
    team.submit("nonsense", &[config_map("nonsense"), job("nonsense", &[HOLD])])
        .await;
    team.until("nonsense", "ready", |wrapper| is_true(wrapper, "PodsReady"))
        .await;
    team.forge("nonsense", &json!({"phase": "Nonsense"})).await;
    team.remove("nonsense").await;
    team.until_gone("batch/v1", "Job", "nonsense").await;
}

/// R16: a limit of 2^32 is a large one, and not none.
pub async fn a_retry_limit_beyond_32_bits_does_not_wrap(world: &World) {
    let team = world.team("retry-limit").await;
    let annotations = [
        ("retryLimit", "4294967296"),
        ("failureGracePeriodDuration", "0s"),
        ("retryPausePeriodDuration", "0s"),
    ];
    team.submit_with("a", &[jobs("a", 1, 1, 0, &[FAIL])], &annotations)
        .await;
    team.until("a", "a third retry", |wrapper| retries(wrapper) >= 3).await;
    team.remove("a").await;

    // What is malformed is told once, and the configured value holds.
    let malformed = [("retryLimit", "many"), ("failureGracePeriodDuration", "5")];
    team.submit_with("b", &[job("b", &[HOLD])], &malformed).await;
    team.until("b", "ready", |wrapper| is_true(wrapper, "PodsReady")).await;
    team.suspend("b", true).await;
    team.reaches("b", "Suspended").await;
    for name in ["retryLimit", "failureGracePeriodDuration"] {
        team.until_event("b", "InvalidAnnotation", name).await;
    }
    let told = team.events("b").await;
    let told = told.iter().filter(|event| event["reason"] == "InvalidAnnotation");
    assert!(
        told.clone().all(|event| event["series"].is_null()),
        "told more than once"
    );
    assert_eq!(told.count(), 2);
    team.remove("b").await;
}

/// An API server, or a webhook behind it, that answers with a book.
pub async fn error_texts_of_100_kb_are_cut(world: &World) {
    let team = world.team("long-texts").await;
    let long = |code: u16, reason: &'static str| {
        Effect::reply(move |_| {
            let message = format!("admission webhook denied the request: {}", "é".repeat(50_000));
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": reason, "code": code, "message": message});
            (code, status)
        })
    };
    let create = |name: &str| {
        Match::verb(Verb::Create)
            .resource("jobs")
            .namespace("long-texts")
            .name(name)
    };
    let invalid = world.proxy.rules().add(create("invalid"), long(422, "Invalid"));
    let failing = world.proxy.rules().add(create("failing"), long(500, "InternalError"));

    team.submit("invalid", &[job("invalid", &[])]).await;
    fails(&team, "invalid", "CreateFailed", "admission webhook denied the request").await;
    team.submit("failing", &[job("failing", &[])]).await;
    let event = team
        .until_event("failing", "CreateFailed", "admission webhook denied the request")
        .await;
    assert!(event["note"].as_str().unwrap().len() <= 1024);
    let waiting = team.get("failing").await;
    assert_eq!(phase(&waiting), "Resuming");
    assert!(waiting.to_string().len() < 10_000);
    failing.remove();
    team.reaches("failing", "Succeeded").await;
    invalid.remove();
    team.remove("failing").await;
}

//! Get, list, create, update, patch, delete, discovery.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GetParams, ListParams, PartialObjectMeta, Patch, PatchParams,
    PostParams, Preconditions,
};
use kube::core::GroupVersionKind;
use kube::{Discovery, Error, ResourceExt, discovery};
use serde_json::json;

use super::{config_maps, job, names, pod, pods, refusal, typed};
use crate::api_server::{ApiServer, Match, Verb};

fn config_map(metadata: &serde_json::Value) -> ConfigMap {
    typed(json!({"metadata": metadata, "data": {"k": "v"}}))
}

#[tokio::test]
async fn a_created_object_has_identity_and_can_be_read_back() {
    let server = ApiServer::new();
    let api = config_maps(&server);
    let made = api
        .create(&PostParams::default(), &config_map(&json!({"name": "a"})))
        .await
        .unwrap();
    assert_eq!(made.namespace().as_deref(), Some("default"));
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    assert_eq!(made.resource_version(), Some(server.revision().to_string()));
    assert_eq!(api.get("a").await.unwrap(), made);
    assert!(api.get_opt("b").await.unwrap().is_none());
    let again = api
        .create(&PostParams::default(), &config_map(&json!({"name": "a"})))
        .await;
    assert_eq!(refusal(again), (409, "AlreadyExists".to_owned()));
}

#[tokio::test]
async fn a_generated_name_has_five_characters_and_is_the_same_in_every_run() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let api = config_maps(&ApiServer::new());
        let made = api
            .create(&PostParams::default(), &config_map(&json!({"generateName": "train-"})))
            .await
            .unwrap();
        let next = api
            .create(&PostParams::default(), &config_map(&json!({"generateName": "train-"})))
            .await
            .unwrap();
        assert_eq!(made.name_any().len(), "train-".len() + 5);
        assert_ne!(made.name_any(), next.name_any());
        runs.push(made.name_any());
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test]
async fn a_not_found_names_the_object_and_its_resource() {
    let api: Api<Job> = Api::namespaced(ApiServer::new().client(), "default");
    let Err(Error::Api(status)) = api.get("absent").await else {
        panic!("found")
    };
    let details = status.details.clone().unwrap();
    assert!(status.is_not_found());
    assert_eq!(
        (details.name.as_str(), details.group.as_str(), details.kind.as_str()),
        ("absent", "batch", "jobs")
    );
    assert_eq!(status.message, "jobs.batch \"absent\" not found");
}

#[tokio::test]
async fn an_old_version_is_refused_by_update_merge_patch_and_json_patch() {
    let server = ApiServer::new();
    let api = config_maps(&server);
    let first = api
        .create(&PostParams::default(), &config_map(&json!({"name": "a"})))
        .await
        .unwrap();
    server.patch("configmaps", "default", "a", &json!({"data": {"k": "w"}}));

    let conflict = (409, "Conflict".to_owned());
    assert_eq!(
        refusal(api.replace("a", &PostParams::default(), &first).await),
        conflict
    );
    let version = first.resource_version().unwrap();
    let merge = json!({"metadata": {"resourceVersion": version}, "data": {"k": "x"}});
    assert_eq!(
        refusal(api.patch("a", &PatchParams::default(), &Patch::Merge(&merge)).await),
        conflict
    );
    let json_patch = |operations| Patch::Json::<()>(typed(operations));
    let on_version = |version: String| {
        json_patch(json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/data/k", "value": "x"},
        ]))
    };
    assert_eq!(
        refusal(api.patch("a", &PatchParams::default(), &on_version(version)).await),
        conflict
    );
    let test = json_patch(json!([{"op": "test", "path": "/data/k", "value": "v"}]));
    assert_eq!(
        refusal(api.patch("a", &PatchParams::default(), &test).await),
        (422, "Invalid".to_owned())
    );
    assert!(
        api.patch("a", &PatchParams::default(), &on_version(server.revision().to_string()))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_write_without_effect_keeps_the_version_and_is_no_change() {
    let server = ApiServer::new();
    server.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}));
    let before = server.revision();
    let patch = Patch::Merge(json!({"data": {"k": "v"}}));
    let same = config_maps(&server)
        .patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(same.resource_version(), Some(before.to_string()));
    assert_eq!(server.history().len(), 1);
}

#[tokio::test]
async fn status_is_written_through_its_subresource_only() {
    let server = ApiServer::new();
    let api = pods(&server);
    let mut with_status = pod("p", &json!({}));
    with_status["status"] = json!({"phase": "Running"});
    let made = api.create(&PostParams::default(), &typed(with_status)).await.unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));

    let both = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}));
    let main = api.patch("p", &PatchParams::default(), &both).await.unwrap();
    assert_eq!(
        (main.labels().len(), main.status.unwrap().phase.unwrap().as_str()),
        (1, "Pending")
    );
    let other = Patch::Merge(json!({"metadata": {"labels": {"c": "d"}}, "status": {"phase": "Failed"}}));
    let status = api.patch_status("p", &PatchParams::default(), &other).await.unwrap();
    assert_eq!(
        (status.labels().len(), status.status.unwrap().phase.unwrap().as_str()),
        (1, "Failed")
    );
    assert_eq!(status.metadata.generation, Some(1));
}

#[tokio::test]
async fn server_side_apply_creates_and_then_merges() {
    let server = ApiServer::new();
    let api = config_maps(&server);
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    for _ in 0..2 {
        api.patch("a", &PatchParams::apply("me").force(), &Patch::Apply(&applied))
            .await
            .unwrap();
    }
    assert_eq!(server.history().len(), 1);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let server = ApiServer::new();
    let api = config_maps(&server);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    assert_eq!(
        api.create(&dry, &config_map(&json!({"name": "a"})))
            .await
            .unwrap()
            .name_any(),
        "a"
    );
    server.create(pod("p", &json!({})));
    pods(&server)
        .delete("p", &DeleteParams::default().dry_run())
        .await
        .unwrap();
    assert!(server.get("configmaps", "default", "a").is_none() && server.get("pods", "default", "p").is_some());
}

#[tokio::test]
async fn a_list_in_pages_is_one_snapshot_until_it_expires() {
    let server = ApiServer::new();
    for name in ["a", "b", "c", "d", "e"] {
        server.create(pod(name, &json!({})));
    }
    let api = pods(&server);
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    server.delete("pods", "default", "c", "Background");
    let token = first.metadata.continue_.clone().unwrap();
    let next = ListParams::default().limit(2).continue_token(&token);
    let second = api.list(&next).await.unwrap();
    assert_eq!(names(second.items), ["c", "d"]);
    assert_eq!(first.metadata.resource_version, second.metadata.resource_version);
    server.compact();
    assert_eq!(refusal(api.list(&next).await), (410, "Expired".to_owned()));
}

#[tokio::test]
async fn lists_are_selected_by_labels_fields_and_namespace() {
    let server = ApiServer::new();
    server.create(pod("a", &json!({"app": "x", "slot": "1"})));
    server.create(pod("b", &json!({"app": "x", "slot": "2"})));
    server.create(pod("c", &json!({})));
    let mut elsewhere = pod("d", &json!({"app": "x"}));
    elsewhere["metadata"]["namespace"] = "other".into();
    server.create(elsewhere);
    let api = pods(&server);
    for (selector, expected) in [
        ("app", vec!["a", "b"]),
        ("!app", vec!["c"]),
        ("slot in (2, 3)", vec!["b"]),
        ("app=x,slot=1", vec!["a"]),
    ] {
        let list = api.list(&ListParams::default().labels(selector)).await.unwrap();
        assert_eq!(names(list.items), expected, "{selector}");
    }
    let by_name = api
        .list(&ListParams::default().fields("metadata.name=c"))
        .await
        .unwrap();
    assert_eq!(names(by_name.items), ["c"]);
    let all: Api<Pod> = Api::all(server.client());
    assert_eq!(
        all.list(&ListParams::default().labels("app"))
            .await
            .unwrap()
            .items
            .len(),
        3
    );
    let bad = api.list(&ListParams::default().labels("a b")).await;
    assert_eq!(refusal(bad), (400, "BadRequest".to_owned()));
}

#[tokio::test]
async fn metadata_only_reads_carry_no_more_than_metadata() {
    let server = ApiServer::new();
    server.create(pod("a", &json!({"app": "x"})));
    let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(server.client(), "default");
    assert_eq!(api.get("a").await.unwrap().types.unwrap().kind, "PartialObjectMetadata");
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].labels().get("app").unwrap(), "x");
    assert!(
        server
            .requests()
            .iter()
            .all(crate::api_server::ApiRequest::metadata_only)
    );
}

#[tokio::test]
async fn a_delete_with_another_uid_or_version_is_refused() {
    let server = ApiServer::new();
    server.create(pod("p", &json!({})));
    let api = pods(&server);
    let on = |uid: Option<&str>, version: Option<&str>| {
        let preconditions = Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
        };
        DeleteParams::background().preconditions(preconditions)
    };
    assert_eq!(
        refusal(api.delete("p", &on(Some("x"), None)).await),
        (409, "Conflict".to_owned())
    );
    assert_eq!(
        refusal(api.delete("p", &on(None, Some("1"))).await),
        (409, "Conflict".to_owned())
    );
    let uid = api.get("p").await.unwrap().uid().unwrap();
    api.delete("p", &on(Some(&uid), None)).await.unwrap();
    let last = server.requests().pop().unwrap();
    assert_eq!(
        (last.uid_precondition(), last.propagation()),
        (Some(uid.as_str()), Some("Background"))
    );
    assert_eq!(
        (last.verb, last.code, last.author.as_str()),
        (Verb::Delete, Some(200), "tester")
    );
    assert_eq!(server.count(&Match::verb(Verb::Delete).resource("pods")), 3);
}

#[tokio::test]
async fn a_finalizer_keeps_a_deleted_object_until_it_is_taken_off() {
    let server = ApiServer::new();
    let api: Api<Job> = Api::namespaced(server.client(), "default");
    let mut guarded = job("j", 1);
    guarded["metadata"]["finalizers"] = json!(["example.com/guard"]);
    server.create(guarded);
    let answer = api.delete("j", &DeleteParams::background()).await.unwrap();
    assert!(answer.left().unwrap().metadata.deletion_timestamp.is_some());
    let more = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/guard", "example.com/new"]}}));
    assert_eq!(
        refusal(api.patch("j", &PatchParams::default(), &more).await),
        (422, "Invalid".to_owned())
    );
    let off = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("j", &PatchParams::default(), &off).await.unwrap();
    assert!(api.get_opt("j").await.unwrap().is_none());
    assert!(server.history().last().unwrap().after.is_none());
}

#[tokio::test]
async fn discovery_finds_served_kinds_and_an_absent_group_is_plain_text() {
    let server = ApiServer::new();
    let client = server.client();
    let widget = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let (resource, capabilities) = discovery::pinned_kind(&client, &widget).await.unwrap();
    assert_eq!(resource.plural, "widgets");
    assert_eq!(capabilities.subresources.len(), 1);
    let all = Discovery::new(client.clone()).run().await.unwrap();
    assert!(all.has_group("jobset.x-k8s.io") && all.has_group(""));
    let missing = GroupVersionKind::gvk("example.com", "v1", "Gadget");
    assert!(matches!(
        discovery::pinned_kind(&client, &missing).await,
        Err(Error::Discovery(_))
    ));

    let kind = server.kind("widgets");
    server.unregister("widgets");
    let Err(Error::Api(status)) = discovery::pinned_kind(&client, &widget).await else {
        panic!("still served")
    };
    assert_eq!((status.code, status.is_not_found()), (404, false));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let Err(Error::Api(status)) = api.get("w").await else {
        panic!("still served")
    };
    assert_eq!(status.message, "404 page not found\n");
    server.register(kind.as_ref().clone());
    assert!(api.get_opt("w").await.unwrap().is_none());
}

#[tokio::test]
async fn built_in_kinds_are_listed_without_their_type_and_custom_kinds_with_it() {
    let server = ApiServer::new();
    server.create(job("j", 1));
    server.create(json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}));
    for (group, kind, plural, typed) in [
        ("batch", "Job", "jobs", false),
        ("example.com", "Widget", "widgets", true),
    ] {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        let api: Api<DynamicObject> = Api::namespaced_with(server.client(), "default", &resource);
        let list: serde_json::Value = {
            let request = kube::core::Request::new(api.resource_url())
                .list(&ListParams::default())
                .unwrap();
            server.client().request(request).await.unwrap()
        };
        assert_eq!(list["items"][0].get("kind").is_some(), typed);
        assert!(
            api.get_with(
                list["items"][0]["metadata"]["name"].as_str().unwrap(),
                &GetParams::any()
            )
            .await
            .is_ok()
        );
    }
}

#[tokio::test]
async fn a_read_at_a_version_that_does_not_exist_yet_times_out() {
    let server = ApiServer::new();
    let ahead = ListParams::default().at(&(server.revision() + 5).to_string());
    assert_eq!(refusal(pods(&server).list(&ahead).await), (504, "Timeout".to_owned()));
}

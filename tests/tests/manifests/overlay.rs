//! What an overlay renders to.

use std::path::{Path, PathBuf};
use std::process::Command;

use appwrapper_testkit::cluster::apply::parse;
use appwrapper_testkit::programs::{KUBECTL, Programs};
use serde_json::Value;
use tokio::sync::OnceCell;

/// The rendered objects of one overlay.
pub struct Overlay {
    /// Its folder.
    pub name: &'static str,
    /// Its objects.
    pub objects: Vec<Value>,
}

impl Overlay {
    /// Renders it.
    pub async fn render(name: &'static str) -> Self {
        let text = render(name).await;
        let objects = parse(&text).unwrap();
        let objects = objects.iter().map(|object| serde_json::to_value(object).unwrap());
        Self {
            name,
            objects: objects.collect(),
        }
    }

    /// All that are tested, rendered once.
    pub async fn all() -> &'static [Self] {
        static ALL: OnceCell<Vec<Overlay>> = OnceCell::const_new();
        ALL.get_or_init(async || {
            let mut all = Vec::new();
            for name in super::OVERLAYS {
                all.push(Self::render(name).await);
            }
            all
        })
        .await
    }

    /// Its objects of a kind.
    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// Whether it has an object of a kind by a name.
    pub fn has(&self, kind: &str, name: &Value) -> bool {
        self.of(kind).any(|object| object["metadata"]["name"] == *name)
    }

    /// The pod templates of its Deployments, with their names.
    pub fn templates(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.of("Deployment").map(|one| (name(one), &one["spec"]["template"]))
    }

    /// The pod templates that a selector of labels hits.
    pub fn selected<'a>(&'a self, labels: &'a Value) -> Vec<(&'a str, &'a Value)> {
        let wanted = labels.as_object().unwrap();
        let matches = |template: &Value| {
            wanted
                .iter()
                .all(|(key, value)| template["metadata"]["labels"][key] == *value)
        };
        self.templates().filter(|(_, template)| matches(template)).collect()
    }
}

/// The text of a rendered overlay.
pub async fn render(name: &str) -> String {
    let programs = Programs::find(&[KUBECTL]).await.unwrap();
    let mut command = Command::new(programs.path(KUBECTL).unwrap());
    let output = command
        .args(["kustomize", name])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// An object's name.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// A list in an object; none if it is not there.
pub fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The ports of the containers of a pod template.
pub fn ports(template: &Value) -> Vec<&Value> {
    list(template, "/spec/containers")
        .flat_map(|container| list(container, "/ports"))
        .collect()
}

/// Whether a pod template has a port by this name or number.
pub fn has_port(template: &Value, port: &Value) -> bool {
    ports(template)
        .iter()
        .any(|one| one["name"] == *port || one["containerPort"] == *port)
}

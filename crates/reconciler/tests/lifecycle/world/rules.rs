//! What must hold whatever happens. The world checks every write by what the API server holds at that moment, and by
//! nothing that the controller says.

use appwrapper_api::{AppWrapper, AppWrapperStatus, ConditionType, Lineage, Phase, PodFacts, Uid, conditions};

use super::State;

/// Broken rules, and what it takes to see them.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub broken: Vec<String>,
    /// The last write on the AppWrapper that succeeded found it being deleted.
    told_of_deletion: bool,
    /// Objects that somebody else deleted: their pods may linger whatever the controller does.
    pub taken: Vec<Uid>,
}

fn uid(wrapper: &AppWrapper) -> &str {
    wrapper.metadata.uid.as_deref().unwrap_or_default()
}

impl State {
    fn break_rule(&mut self, text: String) {
        self.rules.broken.push(text);
    }

    /// Pods of the AppWrapper, whatever became of their owners.
    pub fn own_pods<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = &'a PodFacts> {
        self.pods.values().filter(
            move |pod| matches!(&pod.lineage, Lineage::Component { owner: found, .. } if found.as_str() == owner),
        )
    }

    /// Whether a component of the AppWrapper exists, is its own and is not being deleted.
    fn has_component(&self, wrapper: &AppWrapper, position: usize) -> bool {
        self.objects.values().any(|object| {
            object.position == position
                && object.facts.is_controlled_by(&Uid::new(uid(wrapper)))
                && !object.facts.terminating
        })
    }

    /// The first position of which no component exists.
    pub fn missing_component(&self, wrapper: &AppWrapper) -> Option<usize> {
        (0..wrapper.spec.components.len()).find(|position| !self.has_component(wrapper, *position))
    }

    pub fn check_create(&mut self, position: usize, owner: &str) {
        if self.rules.told_of_deletion {
            self.break_rule(format!(
                "component {position} created although a write had met the deletion"
            ));
        }
        if self.objects.values().any(|object| {
            object.position == position
                && object
                    .facts
                    .controller
                    .as_ref()
                    .is_some_and(|found| found.uid.as_str() == owner)
        }) {
            self.break_rule(format!("component {position} exists twice"));
        }
        let overlap = self.own_pods(owner).find(|pod| {
            let Lineage::Component { component, .. } = &pod.lineage else {
                return false;
            };
            !self.objects.values().any(|object| object.facts.uid == *component) && !self.rules.taken.contains(component)
        });
        if let Some(pod) = overlap.map(|pod| pod.name.clone()) {
            self.break_rule(format!(
                "component {position} created while pod {pod} of an earlier attempt is left"
            ));
        }
    }

    pub fn check_written(&mut self, wrapper: &AppWrapper) {
        self.rules.told_of_deletion = wrapper.metadata.deletion_timestamp.is_some();
    }

    pub fn check_status(&mut self, wrapper: &AppWrapper, after: &AppWrapperStatus) {
        let before = &wrapper.status;
        let (was, is) = (before.phase().unwrap_or_default(), after.phase().unwrap_or_default());
        let deleted = wrapper.metadata.deletion_timestamp.is_some() && is == Phase::Terminating;
        if was.is_finished() && is != was && !deleted {
            self.break_rule(format!("{was} was left for {is}"));
        }
        let missing = conditions::find(&after.conditions, ConditionType::Unhealthy)
            .is_some_and(|found| found.status == "True" && found.reason == "MissingComponent");
        if is == Phase::Failed && was != Phase::Failed && missing && self.missing_component(wrapper).is_none() {
            self.break_rule("failed for a missing component although every component exists".to_owned());
        }
        let quota = |status: &AppWrapperStatus| conditions::is_true(&status.conditions, ConditionType::QuotaReserved);
        if quota(before) && !quota(after) && is != Phase::Succeeded {
            let uid = uid(wrapper).to_owned();
            let left = self.own_pods(&uid).next().map(|pod| pod.name.clone());
            if let Some(pod) = left {
                self.break_rule(format!("the quota was given back in {is} while pod {pod} is left"));
            }
            let left = self
                .objects
                .values()
                .find(|object| object.facts.is_controlled_by(&Uid::new(uid.as_str())))
                .map(|object| object.name.clone());
            if let Some(name) = left {
                self.break_rule(format!(
                    "the quota was given back in {is} while component {name} is left"
                ));
            }
        }
    }
}

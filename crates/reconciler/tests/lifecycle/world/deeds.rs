//! What others do, as data: for the property test, and for what happens in the middle of a pass.

use appwrapper_api::{Completion, PodPhase};

use super::{ObjectKey, State};

/// One deed of somebody else. Numbers are positions of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Suspend(bool),
    DeleteAppWrapper,
    /// Changes something of no importance, so that the version moves.
    Touch,
    Remove(usize),
    Terminate(usize),
    Release(usize),
    StripLabel(usize),
    End(usize, Completion),
    Spawn(usize),
    Pods(PodPhase),
    Collect,
}

impl State {
    fn at(&self, position: usize) -> Option<ObjectKey> {
        let mut found = self.objects.iter().filter(|(_, object)| object.position == position);
        found.next().map(|(key, _)| key.clone())
    }

    pub fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Suspend(suspend) => self.suspend(suspend),
            Deed::DeleteAppWrapper => {
                if self.wrapper.is_some() {
                    self.delete_wrapper();
                }
            }
            Deed::Touch => self.edit_wrapper(|wrapper| {
                let generation = wrapper.metadata.generation.unwrap_or(0);
                wrapper.metadata.generation = Some(generation + 1);
            }),
            Deed::Collect => self.collect(),
            Deed::Pods(phase) => {
                for name in self.pods.keys().cloned().collect::<Vec<_>>() {
                    self.edit_pod(&name, |pod| pod.phase = phase);
                }
            }
            Deed::Remove(position)
            | Deed::Terminate(position)
            | Deed::Release(position)
            | Deed::StripLabel(position)
            | Deed::End(position, _)
            | Deed::Spawn(position) => {
                let Some(key) = self.at(position) else { return };
                self.act_on(deed, &key.1);
            }
        }
    }

    fn act_on(&mut self, deed: Deed, name: &str) {
        let object = self.objects[&self.key(name)].clone();
        match deed {
            Deed::Remove(_) => self.remove(name),
            Deed::Terminate(_) => self.terminate(name),
            Deed::Release(_) => self.release(name),
            Deed::StripLabel(_) => self.edit_object(name, |object| object.labelled = false),
            Deed::End(_, completion) if object.facts.completion == Completion::Active && !object.facts.terminating => {
                self.end(name, completion);
            }
            Deed::Spawn(_) => {
                let expects = ["Job", "Deployment"].contains(&&*object.type_ref.kind) && !object.facts.terminating;
                if expects && !self.pods.contains_key(&format!("{name}-0")) {
                    self.spawn(name, 1, PodPhase::Pending);
                }
            }
            _ => {}
        }
    }
}

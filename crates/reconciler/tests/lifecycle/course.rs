//! A run of the property test: what happens to an AppWrapper, until the world is quiet, and what is wrong then.

use std::sync::Arc;

use appwrapper_api::{AppWrapper, Completion, ConditionType, Phase, PodPhase, conditions};
use appwrapper_reconciler::{Requeue, status::is_component_finished};
use serde_json::json;

use crate::{
    fixtures::*,
    sim::{Pass, Sim, secs},
    world::{Deed, Fault, NAME},
};

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Happening {
    Pass,
    /// A pass on a copy of the AppWrapper that is so many versions old.
    PassOnOld(usize),
    DeliverWrapper,
    DeliverComponents,
    DeliverPods,
    DeliverAll,
    /// A stale event of a component.
    Regress(usize),
    Time(i64),
    /// The controller dies after so many more writes. The next one lists anew, or is shown the old caches.
    Crash(usize, bool),
    Restart(bool),
    NextRequest(Fault),
    Act(Deed),
}

/// A run: what happens to which AppWrapper.
#[derive(Clone, Debug)]
pub struct Run {
    pub generated: bool,
    pub delay: bool,
    pub happenings: Vec<Happening>,
}

fn subject(run: &Run) -> AppWrapper {
    let mut train = job("train");
    if run.generated {
        train["metadata"] = json!({"generateName": "train-"});
    }
    let delay = if run.delay { "7s" } else { "0s" };
    annotated(
        wrapper([train, deployment("web", 1), service("svc")]),
        &[
            ("admissionGracePeriodDuration", "20s"),
            ("warmupGracePeriodDuration", "40s"),
            ("failureGracePeriodDuration", "5s"),
            ("retryPausePeriodDuration", "3s"),
            ("forcefulDeletionGracePeriodDuration", "15s"),
            ("deletionOnFailureGracePeriodDuration", delay),
            ("retryLimit", "2"),
        ],
    )
}

/// A run under way.
pub struct Course {
    pub sim: Sim,
    lists_after_crash: bool,
    /// Number of the copy of the AppWrapper under which a component of it was deleted in Running.
    loss: Option<usize>,
}

impl Course {
    pub fn begin(run: &Run) -> Self {
        Self {
            sim: Sim::of(subject(run)),
            lists_after_crash: true,
            loss: None,
        }
    }

    fn start_anew(&mut self, listed: bool) {
        self.sim.die();
        let mut state = self.sim.state();
        if listed {
            state.list_all();
        } else {
            state.wrappers.forget_past();
            state.cached_pods.forget_past();
            for feed in state.kinds.values_mut() {
                feed.forget_past();
            }
        }
    }

    fn pass(&mut self, copy: Option<Arc<AppWrapper>>) -> Pass {
        let pass = self.sim.pass_on(copy);
        assert!(
            !matches!(&pass, Pass::Error(error) if error.reason() == "restless"),
            "{pass:?}"
        );
        if pass == Pass::Crashed {
            self.start_anew(self.lists_after_crash);
        }
        pass
    }

    fn notice_loss(&mut self, deed: Deed) {
        let (Deed::Remove(position) | Deed::Terminate(position)) = deed else {
            return;
        };
        let state = self.sim.state();
        let Some(wrapper) = &state.wrapper else { return };
        let active = state
            .objects
            .values()
            .any(|object| object.position == position && object.facts.completion != Completion::Complete);
        if active && wrapper.status.phase() == Some(Phase::Running) && wrapper.metadata.deletion_timestamp.is_none() {
            let index = state.history.len();
            drop(state);
            self.loss.get_or_insert(index);
        }
    }

    pub fn happen(&mut self, happening: &Happening) {
        match happening.clone() {
            Happening::Pass => {
                self.pass(None);
            }
            Happening::PassOnOld(age) => {
                let copy = {
                    let state = self.sim.state();
                    state
                        .history
                        .len()
                        .checked_sub(age + 1)
                        .map(|index| state.history[index].clone())
                };
                if copy.is_some() {
                    self.pass(copy);
                }
            }
            Happening::DeliverWrapper => drop(self.sim.state().wrappers.deliver()),
            Happening::DeliverComponents => {
                for feed in self.sim.state().kinds.values_mut() {
                    feed.deliver();
                }
            }
            Happening::DeliverPods => drop(self.sim.state().cached_pods.deliver()),
            Happening::DeliverAll => drop(self.sim.state().flow()),
            Happening::Regress(position) => {
                let names: Vec<String> = self.sim.state().objects.keys().map(|(_, name)| name.clone()).collect();
                if let Some(name) = names.get(position) {
                    for feed in self.sim.state().kinds.values_mut() {
                        feed.regress(name);
                    }
                }
            }
            Happening::Time(seconds) => self.sim.world.advance(secs(seconds)),
            Happening::Crash(writes, listed) => {
                self.lists_after_crash = listed;
                self.sim.state().faults.crash_in = Some(writes);
            }
            Happening::Restart(listed) => self.start_anew(listed),
            Happening::NextRequest(fault) => self.sim.state().faults.add("", fault, false),
            Happening::Act(deed) => {
                self.notice_loss(deed);
                self.sim.state().act(deed);
            }
        }
    }

    /// Everything works again: the world comes to rest.
    pub fn quieten(&mut self) {
        self.sim.state().faults.clear();
        let mut unchanged = 0;
        for _ in 0..120 {
            let before = self.sim.state().calls.len();
            let delay = {
                let mut state = self.sim.state();
                for position in 0..3 {
                    state.act(Deed::Spawn(position));
                    let held = state
                        .objects
                        .values()
                        .any(|object| object.position == position && object.facts.terminating);
                    if held {
                        state.act(Deed::Release(position));
                    }
                }
                let running = state
                    .wrapper
                    .as_ref()
                    .is_some_and(|wrapper| wrapper.status.phase == "Running");
                if running {
                    state.act(Deed::Pods(PodPhase::Running));
                }
                state.collect();
                state.flow();
                drop(state);
                match self.pass(None) {
                    Pass::Rest(Requeue::After(delay)) => delay.min(secs(60)),
                    _ => secs(1),
                }
            };
            self.sim.world.advance(delay);
            unchanged = if self.sim.state().calls.len() == before {
                unchanged + 1
            } else {
                0
            };
            if unchanged > 10 {
                break;
            }
        }
    }

    /// What is wrong, once the world is quiet.
    pub fn faults_found(&self) -> Vec<String> {
        let state = self.sim.state();
        let mut found = state.rules.broken.clone();
        let own = |uid: &str| {
            let objects = state.objects.values().filter(|object| {
                object
                    .facts
                    .controller
                    .as_ref()
                    .is_some_and(|controller| controller.uid.as_str() == uid)
            });
            objects.count() + state.own_pods(uid).count()
        };
        let Some(wrapper) = &state.wrapper else {
            if own("uid-aw") > 0 {
                found.push(format!("{NAME} is gone and left something behind"));
            }
            return found;
        };
        let quota = conditions::is_true(&wrapper.status.conditions, ConditionType::QuotaReserved);
        let phase = wrapper.status.phase().unwrap_or_default();
        match phase {
            Phase::Running => {
                if let Some(position) = state.missing_component(wrapper) {
                    let finished = is_component_finished(&wrapper.status.component_status[position]);
                    if !finished {
                        found.push(format!("Running without component {position}"));
                    }
                }
                if wrapper.spec.suspend || !quota {
                    found.push("Running although suspended or without quota".to_owned());
                }
            }
            Phase::Suspended | Phase::Failed => {
                if quota || own("uid-aw") > 0 {
                    found.push(format!("{phase} and something is left (quota: {quota})"));
                }
                if phase == Phase::Suspended && !wrapper.spec.suspend {
                    found.push("Suspended although not suspended".to_owned());
                }
            }
            Phase::Succeeded => {}
            other => found.push(format!("no rest: {other}")),
        }
        if let Some(index) = self.loss {
            let excused = |copy: &AppWrapper| {
                copy.spec.suspend
                    || copy.metadata.deletion_timestamp.is_some()
                    || ["Suspending", "Resetting", "Succeeded"].contains(&copy.status.phase.as_str())
            };
            let since = state.history.iter().skip(index.saturating_sub(1));
            if phase != Phase::Failed && !since.into_iter().any(|copy| excused(copy)) {
                found.push(format!("a component was deleted and the AppWrapper is {phase}"));
            }
        }
        found
    }

    /// The whole run: begins, happens, quietens.
    pub fn of(run: &Run, prepare: impl FnOnce(&Sim)) -> Self {
        let mut course = Self::begin(run);
        prepare(&course.sim);
        course.sim.state().flow();
        for happening in &run.happenings {
            course.happen(happening);
        }
        course.quieten();
        course
    }
}

//! A controller in the world: it is given what the watches have delivered, and may die at any moment.

use appwrapper_api::{
    AppWrapper, AppWrapperStatus, ConditionType, Phase, PodPhase, conditions, config::AppWrapperConfig,
};
use appwrapper_reconciler::{
    Defaults, Driver, Error, Memory, Requeue,
    observation::{Event, Observation},
    observed::NodeFaults,
};
use futures::FutureExt;
use jiff::SignedDuration;
use serde_json::Value;

use crate::{
    fixtures,
    world::{State, World},
};

pub struct Sim {
    pub world: World,
    pub nodes: NodeFaults,
    defaults: Defaults,
    memory: Memory,
}

/// How a pass ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Pass {
    Rest(Requeue),
    Error(Error),
    /// The controller died in it. Its memory is gone.
    Crashed,
    /// The cache holds no AppWrapper.
    Absent,
}

pub fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

/// A pass that comes back after so many seconds.
pub fn after(seconds: i64) -> Pass {
    Pass::Rest(Requeue::After(secs(seconds)))
}

pub const ON_CHANGE: Pass = Pass::Rest(Requeue::OnChange);

impl Sim {
    /// A world with this AppWrapper, stored and seen. Every kind may be wrapped that hands out no rights.
    pub fn of(wrapper: AppWrapper) -> Self {
        let mut config = AppWrapperConfig::default();
        config.admission.allowed_kinds = vec!["*".to_owned().try_into().unwrap()];
        Self::configured(&config, wrapper)
    }

    pub fn configured(config: &AppWrapperConfig, wrapper: AppWrapper) -> Self {
        let world = World::new();
        world.state().store_wrapper(Some(wrapper));
        Self {
            world,
            nodes: NodeFaults::default(),
            defaults: Defaults::new(config),
            memory: Memory::default(),
        }
    }

    /// Not suspended, no annotations.
    pub fn new(templates: impl IntoIterator<Item = Value>) -> Self {
        Self::of(fixtures::wrapper(templates))
    }

    /// The same, annotated.
    pub fn with(annotations: &[(&str, &str)], templates: impl IntoIterator<Item = Value>) -> Self {
        Self::of(fixtures::annotated(fixtures::wrapper(templates), annotations))
    }

    /// Brings a new AppWrapper to Running, its components created and seen.
    pub fn run(self) -> Self {
        let mut sim = self;
        sim.settle();
        assert_eq!(sim.phase(), Phase::Running);
        sim.forget_calls();
        sim
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.world.state()
    }

    /// Delivers what is not held back and reconciles once. The rules must hold.
    pub fn pass(&mut self) -> Pass {
        self.state().flow();
        let pass = self.pass_on(None);
        let broken = self.state().rules.broken.clone();
        assert!(broken.is_empty(), "{broken:?}\n{:#?}", self.calls());
        pass
    }

    /// Reconciles once, on this copy of the AppWrapper or on the cached one. Delivers nothing and checks nothing.
    pub fn pass_on(&mut self, copy: Option<std::sync::Arc<AppWrapper>>) -> Pass {
        let Some(wrapper) = copy.or_else(|| self.state().cached_wrapper()) else {
            return Pass::Absent;
        };
        let world = &self.world;
        let clock = || world.state().now;
        let driver = Driver {
            cluster: world,
            defaults: &self.defaults,
            nodes: &self.nodes,
            clock: &clock,
        };
        match driver.reconcile(wrapper, &mut self.memory).now_or_never() {
            Some(Ok(requeue)) => Pass::Rest(requeue),
            Some(Err(error)) => Pass::Error(error),
            None => {
                self.die();
                Pass::Crashed
            }
        }
    }

    /// Passes until nothing is delivered any more. Answers how the last pass ended.
    pub fn settle(&mut self) -> Pass {
        let mut last = self.pass();
        for _ in 0..20 {
            let moved = self.state().flow();
            let delivered = self
                .state()
                .cached_wrapper()
                .and_then(|wrapper| wrapper.metadata.resource_version.clone());
            // The controller drops the echo of its own writes.
            let is_echo = delivered.is_some() && delivered.as_deref() == self.memory.written();
            if !moved && (is_echo || last == Pass::Absent) {
                return last;
            }
            last = self.pass();
        }
        panic!("no rest: {:#?}", self.calls());
    }

    /// Lets time pass, then settles.
    pub fn later(&mut self, seconds: i64) -> Pass {
        self.world.advance(secs(seconds));
        self.settle()
    }

    /// The process is gone, and with it whatever it remembered.
    pub fn die(&mut self) {
        self.memory = Memory::default();
        let mut state = self.state();
        state.notes.clear();
        state.pods_gone = 0;
    }

    /// Another process takes over and lists everything.
    pub fn restart(&mut self) {
        self.die();
        self.state().list_all();
    }

    pub fn status(&self) -> AppWrapperStatus {
        self.state().wrapper.clone().expect("the AppWrapper is gone").status
    }

    pub fn phase(&self) -> Phase {
        self.status().phase().expect("a known phase")
    }

    /// `status reason: message` of a condition.
    pub fn condition(&self, type_: ConditionType) -> String {
        let status = self.status();
        conditions::find(&status.conditions, type_).map_or_else(
            || "absent".to_owned(),
            |found| format!("{} {}: {}", found.status, found.reason, found.message),
        )
    }

    /// `status reason` of a component's condition.
    pub fn component(&self, position: usize) -> String {
        let status = self.status();
        let conditions = &status.component_status[position].conditions;
        conditions::find(conditions, ConditionType::ResourcesDeployed).map_or_else(
            || "absent".to_owned(),
            |found| format!("{} {}", found.status, found.reason),
        )
    }

    /// Seconds from the beginning of time to the last change of a condition.
    pub fn since(&self, type_: ConditionType) -> i64 {
        let at = conditions::since(&self.status().conditions, type_).expect("the condition");
        at.duration_since(crate::world::start()).as_secs()
    }

    /// Changes the stored status, as a person with rights would.
    pub fn edit_status(&mut self, edit: impl FnOnce(&mut AppWrapperStatus)) {
        self.state().edit_wrapper(|wrapper| edit(&mut wrapper.status));
    }

    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// Requests that begin with one of these words.
    pub fn count(&self, start: &str) -> usize {
        self.calls().iter().filter(|call| call.starts_with(start)).count()
    }

    /// Writes, in order.
    pub fn writes(&self) -> Vec<String> {
        let is_read = |call: &String| {
            ["get ", "list ", "admit", "watch "]
                .iter()
                .any(|start| call.starts_with(start))
        };
        self.calls().into_iter().filter(|call| !is_read(call)).collect()
    }

    /// Reads past the caches, in order.
    pub fn reads(&self) -> Vec<String> {
        let is_read = |call: &String| ["get ", "list "].iter().any(|start| call.starts_with(start));
        self.calls().into_iter().filter(is_read).collect()
    }

    pub fn forget_calls(&mut self) {
        let mut state = self.state();
        state.calls.clear();
        state.told.clear();
    }

    pub fn told(&self) -> Vec<Observation> {
        self.state().told.clone()
    }

    pub fn events(&self) -> Vec<Event> {
        let told = self.told();
        told.into_iter()
            .filter_map(|observation| match observation {
                Observation::Event(event) => Some(event),
                _ => None,
            })
            .collect()
    }

    /// `reason: note` of each event.
    pub fn notes(&self) -> Vec<String> {
        self.events()
            .iter()
            .map(|event| format!("{}: {}", event.reason, event.note))
            .collect()
    }

    /// Phases that were entered, in order.
    pub fn entered(&self) -> Vec<Phase> {
        let told = self.told();
        told.iter()
            .filter_map(|observation| match observation {
                Observation::Entered(phase) => Some(*phase),
                _ => None,
            })
            .collect()
    }

    /// The pods of a component, all in this phase.
    pub fn spawn(&mut self, name: &str, count: usize, phase: PodPhase) {
        self.state().spawn(name, count, phase);
    }

    pub fn pod_phase(&mut self, name: &str, phase: PodPhase) {
        self.state().edit_pod(name, |pod| pod.phase = phase);
    }

    /// Objects that exist, by name.
    pub fn objects(&self) -> Vec<String> {
        self.state().objects.keys().map(|(_, name)| name.clone()).collect()
    }
}

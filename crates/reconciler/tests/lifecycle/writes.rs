//! What one AppWrapper costs the API server (issue 3, proof 5).

use appwrapper_api::{Completion, Phase, PodPhase};

use crate::{fixtures::*, sim::Sim};

#[test]
fn one_job_from_creation_to_success_costs_six_writes_and_no_read() {
    let mut sim = Sim::new([job("train")]);
    sim.settle();
    sim.spawn("train", 1, PodPhase::Pending);
    sim.settle();
    sim.pod_phase("train-0", PodPhase::Running);
    sim.settle();
    sim.pod_phase("train-0", PodPhase::Succeeded);
    sim.settle();
    sim.state().end("train", Completion::Complete);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Succeeded);
    assert_eq!(
        sim.writes(),
        [
            "add finalizer",
            "status Resuming",
            "create Job train",
            "status Running",
            "status Running",
            "status Succeeded"
        ]
    );
    assert_eq!(sim.reads(), [""; 0]);
}

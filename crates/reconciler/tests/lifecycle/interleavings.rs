//! Any order of events (issue 3, proof 2): delivery by the watches late, twice or stale, a controller that dies after any
//! write, lost answers, users who delete, suspend and resume. The rules of `world/rules.rs` hold at every write, and once
//! the world is quiet the AppWrapper is where it should be.
//!
//! `PROPTEST_CASES` and `PROPTEST_RNG_SEED` make other runs of it; without them every run is the same.

use appwrapper_api::{Completion, PodPhase};
use proptest::{prelude::*, test_runner::RngSeed};

use crate::{
    course::{Course, Happening, Run},
    world::{Deed, Fault},
};

fn deed() -> impl Strategy<Value = Deed> {
    let position = 0..3usize;
    let phases = vec![
        PodPhase::Running,
        PodPhase::Running,
        PodPhase::Succeeded,
        PodPhase::Failed,
    ];
    prop_oneof![
        2 => any::<bool>().prop_map(Deed::Suspend),
        1 => Just(Deed::DeleteAppWrapper),
        2 => Just(Deed::Touch),
        2 => position.clone().prop_map(Deed::Remove),
        1 => position.clone().prop_map(Deed::Terminate),
        2 => position.clone().prop_map(Deed::Release),
        1 => position.clone().prop_map(Deed::StripLabel),
        1 => position.clone().prop_map(|position| Deed::End(position, Completion::Complete)),
        1 => position.clone().prop_map(|position| Deed::End(position, Completion::Failed)),
        4 => position.prop_map(Deed::Spawn),
        3 => prop::sample::select(phases).prop_map(Deed::Pods),
        3 => Just(Deed::Collect),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    let fault = prop_oneof![
        Just(Fault::Lose),
        Just(Fault::DropAnswer),
        Just(Fault::Refuse("no")),
        deed().prop_map(Fault::Meanwhile),
    ];
    prop_oneof![
        12 => Just(Happening::Pass),
        3 => (1..8usize).prop_map(Happening::PassOnOld),
        5 => Just(Happening::DeliverWrapper),
        4 => Just(Happening::DeliverComponents),
        4 => Just(Happening::DeliverPods),
        3 => Just(Happening::DeliverAll),
        1 => (0..3usize).prop_map(Happening::Regress),
        5 => prop::sample::select(vec![1, 2, 5, 11, 30]).prop_map(Happening::Time),
        3 => (0..6usize, any::<bool>()).prop_map(|(writes, listed)| Happening::Crash(writes, listed)),
        1 => any::<bool>().prop_map(Happening::Restart),
        2 => fault.prop_map(Happening::NextRequest),
        12 => deed().prop_map(Happening::Act),
    ]
}

pub fn run() -> impl Strategy<Value = Run> {
    (any::<bool>(), any::<bool>(), prop::collection::vec(happening(), 1..80)).prop_map(
        |(generated, delay, happenings)| Run {
            generated,
            delay,
            happenings,
        },
    )
}

pub fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 5_000,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(20_260_101);
    }
    config
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn the_rules_hold_in_any_order_of_events(run in run()) {
        let course = Course::of(&run, |_| {});
        let found = course.faults_found();
        prop_assert!(found.is_empty(), "{found:#?}\n{:#?}", course.sim.calls());
    }
}

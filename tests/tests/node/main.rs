//! The manifests as they are shipped, with the image built here, on a real node: containers, probes, Services, evictions.
//!
//! One installation serves all; the tests run one after another, in the order of the table, since the first installs and the last
//! removes. Root and some Debian packages are needed. Without them everything is skipped, but not where `CI` is `true`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod disturbances;
mod install;
mod installation;
mod load;
mod rights;
mod samples;

use std::process::ExitCode;

use appwrapper_testkit::real_node::requirements::Missing;
use appwrapper_tests::suite::{Test, run};
use appwrapper_tests::tests;
use installation::Installation;

const TESTS: &[(&str, Test<Installation>)] = tests![
    install::the_image_is_as_small_as_it_should_be,
    install::one_command_installs_on_an_empty_cluster,
    install::a_second_apply_changes_nothing,
    samples::samples_run_to_their_ends_in_real_containers,
    disturbances::a_rolling_update_refuses_and_fails_nothing,
    disturbances::a_drain_stops_where_the_budgets_say,
    disturbances::every_container_can_be_killed,
    disturbances::a_controller_that_runs_out_of_memory_comes_back,
];

const LAST: &[(&str, Test<Installation>)] = tests![
    rights::no_request_was_refused_for_want_of_rights,
    rights::the_webhook_has_no_right_that_it_does_not_use,
    install::uninstalling_leaves_nothing_behind,
];

fn main() -> ExitCode {
    let missing = Missing::here();
    if !missing.is_none() {
        println!("skipped: {missing}");
        return ExitCode::from(u8::from(std::env::var_os("CI").is_some_and(|set| set == "true")));
    }
    run("node", TESTS, LAST)
}

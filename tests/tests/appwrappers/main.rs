//! AppWrappers on one real cluster: the lifecycle, kinds of components, cases of bug reports, bad input.
//!
//! Each module holds tests of one theme, each of which gets the shared world and works in a namespace of its own. The
//! tables below name them all; one that is missing there is reported as never used.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bad_input;
mod cases;
mod kinds;
mod lifecycle;
mod load;
mod outage;
mod rights;

use std::process::ExitCode;

use appwrapper_tests::suite::{Test, run};
use appwrapper_tests::tests;

/// The long ones first, the short ones fill up the time.
const TESTS: &[(&str, Test)] = tests![
    outage::an_api_server_that_is_away_for_a_minute,
    outage::a_controller_that_is_killed_in_a_burst,
    cases::r07_a_lost_pod_is_replaced_in_its_own_grace,
    cases::r13_ends_are_seen_at_once,
    cases::r14_flips_of_suspend_leak_nothing,
    cases::r19_a_namespace_that_is_deleted_goes,
    cases::r17_a_foreign_finalizer_is_named_and_waited_for,
    lifecycle::from_suspended_to_succeeded_and_after,
    lifecycle::suspending_a_running_workload,
    lifecycle::a_failed_pod_without_grace_and_retries,
    lifecycle::a_component_that_is_invalid_fails_without_a_retry,
    lifecycle::jobs_that_end_well,
    lifecycle::a_failing_job_is_retried_to_its_limit,
    lifecycle::a_job_that_never_starts_is_retried_after_its_warmup,
    lifecycle::a_workload_leaves_a_node_that_is_marked,
    kinds::built_in_kinds_get_ready_and_stay_running,
    kinds::a_pytorch_job_that_is_deleted_while_it_runs,
    kinds::a_job_set_with_a_generated_name,
    kinds::operators_tell_the_end_of_their_kinds,
    kinds::a_ray_cluster_that_is_made_smaller,
    cases::r10_a_terminal_exit_code_is_not_retried,
    cases::r12_a_succeeded_pod_that_is_collected_early,
    cases::r18_no_pod_outlives_its_job,
    cases::r21_an_appwrapper_that_somebody_else_manages,
    cases::r28_a_kind_outside_the_roles_is_named_at_once,
    cases::c02_a_strangers_pod_with_the_label_counts_for_nothing,
    cases::c08_a_job_of_no_completions_succeeds,
    bad_input::a_template_that_is_no_object_is_refused,
    bad_input::an_unknown_kind_fails_by_its_name,
    bad_input::a_kind_that_may_not_be_wrapped_fails_by_its_name,
    bad_input::a_kind_whose_definition_goes_away,
    bad_input::a_component_elsewhere_is_refused_by_name,
    bad_input::a_wrong_path_waits_to_be_put_right,
    bad_input::replicas_out_of_range_are_named,
    bad_input::a_name_that_cannot_be_a_label_is_refused,
    bad_input::two_components_of_one_name_are_refused,
    bad_input::a_hundred_components_come_and_go,
    bad_input::missing_conditions_are_put_right,
    bad_input::a_forged_status_harms_nobody,
    bad_input::a_retry_limit_beyond_32_bits_does_not_wrap,
    bad_input::error_texts_of_100_kb_are_cut,
    load::fifty_deployments_of_two,
];

/// What all of them have left.
const LAST: &[(&str, Test)] = tests![rights::nothing_was_refused_to_the_controller];

fn main() -> ExitCode {
    run("appwrappers", TESTS, LAST)
}

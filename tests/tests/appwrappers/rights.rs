//! What all the tests before have left in the audit log.

use std::collections::BTreeSet;

use appwrapper_tests::World;

/// The rights of the shipped roles are enough for everything that was done. Secrets were asked for on purpose
/// (`cases::r28`).
pub async fn nothing_was_refused_to_the_controller(world: &World) {
    let refused: BTreeSet<String> = world
        .refused()
        .into_iter()
        .filter(|request| !request.ends_with(" secrets"))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

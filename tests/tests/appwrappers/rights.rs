//! What all the tests before have left in the audit log.

use std::collections::BTreeSet;

use appwrapper_tests::World;

/// Asked for on purpose, by AppWrappers that wrap what they may not (`cases::r28`, `bad_input`).
const ON_PURPOSE: [&str; 3] = ["secrets", "limitranges", "rolebindings.rbac.authorization.k8s.io"];

/// The rights of the shipped roles are enough for everything that was done.
pub async fn nothing_was_refused_to_the_controller(world: &World) {
    let refused: BTreeSet<String> = world
        .refused()
        .into_iter()
        .filter(|request| {
            !ON_PURPOSE
                .iter()
                .any(|resource| request.split(' ').next_back() == Some(resource))
        })
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

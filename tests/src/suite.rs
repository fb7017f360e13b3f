//! Many tests side by side on one cluster.
//!
//! Each test has a namespace of its own. A test that breaks what all share (the proxy, the controller) starts a [`World`]
//! of its own instead. The cluster is started by the first test that runs and ended after the last.

use std::process::ExitCode;
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::World;

/// One test.
pub type Test = for<'w> fn(&'w World) -> LocalBoxFuture<'w, ()>;

/// Tests wait most of the time.
const AT_ONCE: usize = 12;

/// A table of tests from the names of asynchronous functions that take a world.
#[macro_export]
macro_rules! tests {
    ($($($part:ident)::+),* $(,)?) => {
        &[$((stringify!($($part)::+), {
            let test: $crate::suite::Test = |world| Box::pin($($part)::+(world));
            test
        })),*]
    };
}

/// Runs tests, and after them those that look at what all of them have left.
pub fn run(name: &'static str, tests: &[(&'static str, Test)], last: &[(&'static str, Test)]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let runtime = Runtime::new().expect("a runtime can be started");
    let shared: Arc<OnceCell<World>> = Arc::default();
    let mut failed = false;
    for part in [tests, last] {
        let trials = part.iter().map(|(title, test)| {
            let (handle, shared, test) = (runtime.handle().clone(), Arc::clone(&shared), *test);
            Trial::test(title.replace(' ', ""), move || {
                handle.block_on(async {
                    let world = shared.get_or_init(|| World::start(name)).await;
                    test(world).await;
                });
                Ok(())
            })
        });
        failed |= libtest_mimic::run(&arguments, trials.collect()).has_failed();
    }
    if let Some(world) = Arc::into_inner(shared).and_then(OnceCell::into_inner) {
        runtime.block_on(world.end());
    }
    ExitCode::from(u8::from(failed))
}

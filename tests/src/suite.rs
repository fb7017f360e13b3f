//! Many tests on one cluster, side by side or one after another.
//!
//! Each test has a namespace of its own. A test that breaks what all share (the proxy, the controller) starts a [`World`]
//! of its own instead. What is [`Shared`] is started by the first test that runs and ended after the last.

use std::process::ExitCode;
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::World;

/// One test.
pub type Test<S = World> = for<'s> fn(&'s S) -> LocalBoxFuture<'s, ()>;

/// What all tests of a suite get.
#[allow(async_fn_in_trait, reason = "nobody else implements it")]
pub trait Shared: Sized + Send + Sync + 'static {
    /// How many tests may use it at once.
    const AT_ONCE: usize;
    /// Starts it.
    async fn start(name: &'static str) -> Self;
    /// Ends it, in order.
    async fn end(self);
}

impl Shared for World {
    /// Tests wait most of the time.
    const AT_ONCE: usize = 12;

    async fn start(name: &'static str) -> Self {
        Self::start(name).await
    }

    async fn end(self) {
        self.end().await;
    }
}

/// A table of tests from the names of asynchronous functions that take what is shared.
#[macro_export]
macro_rules! tests {
    ($($($part:ident)::+),* $(,)?) => {
        &[$((stringify!($($part)::+), {
            let test: $crate::suite::Test<_> = |shared| Box::pin($($part)::+(shared));
            test
        })),*]
    };
}

/// Runs tests, and after them those that look at what all of them have left.
pub fn run<S: Shared>(
    name: &'static str,
    tests: &[(&'static str, Test<S>)],
    last: &[(&'static str, Test<S>)],
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(S::AT_ONCE);
    let runtime = Runtime::new().expect("a runtime can be started");
    let shared: Arc<OnceCell<S>> = Arc::default();
    let mut failed = false;
    for part in [tests, last] {
        let trials = part.iter().map(|(title, test)| {
            let (handle, shared, test) = (runtime.handle().clone(), Arc::clone(&shared), *test);
            Trial::test(title.replace(' ', ""), move || {
                handle.block_on(async {
                    test(shared.get_or_init(|| S::start(name)).await).await;
                });
                Ok(())
            })
        });
        failed |= libtest_mimic::run(&arguments, trials.collect()).has_failed();
    }
    if let Some(shared) = Arc::into_inner(shared).and_then(OnceCell::into_inner) {
        runtime.block_on(shared.end());
    }
    ExitCode::from(u8::from(failed))
}

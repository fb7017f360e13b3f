//! Many at once.

use std::time::Duration;

use appwrapper_tests::World;
use appwrapper_tests::components::deployment;
use appwrapper_tests::team::{is_true, phase};
use futures::future::join_all;
use tokio::time::Instant;

/// Number 73.
pub async fn fifty_deployments_of_two(world: &World) {
    let team = world.team("fifty").await;
    let names: Vec<String> = (0..50).map(|index| format!("a-{index}")).collect();
    let submitted = Instant::now();
    join_all(
        names
            .iter()
            .map(async |name| team.submit(name, &[deployment(name, 2)]).await),
    )
    .await;
    join_all(names.iter().map(async |name| {
        team.until(name, "Running", |wrapper| phase(wrapper) == "Running").await;
    }))
    .await;
    let running = submitted.elapsed();
    join_all(names.iter().map(async |name| {
        team.until(name, "ready", |wrapper| is_true(wrapper, "PodsReady")).await;
    }))
    .await;
    println!(
        "50 Deployments of 2: all Running after {running:?}, ready after {:?}",
        submitted.elapsed()
    );
    assert!(running < Duration::from_secs(60), "{running:?}");
    join_all(names.iter().map(async |name| team.remove(name).await)).await;
}

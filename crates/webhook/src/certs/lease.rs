//! The certificate Lease: who may write the Secret and the bundles. Serving needs it for nothing.

use std::{sync::Arc, time::Duration};

use appwrapper_coordination::{
    BootClock, ClaimPolicy, GuardedLease, Identity, LeaseHandle, LeaseParams, LeaseTimings, ReleaseNote, State,
    Supervisor, SupervisorOptions,
};
use kube::Client;

use super::replica::Names;
use crate::error::Error;

/// Not in a hurry: certificates change every few weeks.
pub const DURATION: Duration = Duration::from_secs(30);

/// Keeps the certificate Lease in the background. It is shipped with the manifests and not created here.
pub fn keep(
    client: &Client,
    names: &Names,
    pod_uid: Option<&str>,
    timings: LeaseTimings,
) -> Result<LeaseHandle, Error> {
    let identity = Identity::of_pod(&names.replica, pod_uid)?;
    let params = LeaseParams {
        namespace: names.namespace.clone(),
        name: names.lease.clone(),
        identity: identity.clone(),
        timings,
        creation: None,
    };
    let backend = GuardedLease::new(client, params, BootClock::shared())?;
    let options = SupervisorOptions {
        lease: names.lease.clone(),
        identity,
        timings,
        clock: BootClock::shared(),
        policy: ClaimPolicy::After(Duration::ZERO),
        standby_poll: timings.renew_period,
        seed: None,
        events: Some(Arc::new(|event| tracing::debug!(?event, "certificate Lease"))),
    };
    let (handle, supervisor) = Supervisor::new(backend, options)?;
    tokio::spawn(async move {
        if let Err(error) = supervisor.run().await {
            tracing::error!(%error, "the certificate Lease cannot be kept; this replica leaves certificates to others");
        }
    });
    Ok(handle)
}

/// Gives the Lease up, if it is held, once no write is under way.
pub async fn release(lease: &LeaseHandle) {
    lease.set_policy(ClaimPolicy::Never);
    let tenure = match &*lease.state().borrow() {
        State::Held(tenure) => Some(tenure.clone()),
        State::Standby { .. } | State::Lost => None,
    };
    if let Some(tenure) = tenure
        && let Err(error) = lease.release(tenure.drain().await, ReleaseNote::default()).await
    {
        tracing::debug!(%error, "the certificate Lease was not released");
    }
    lease.stop().await;
}

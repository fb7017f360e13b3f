//! Which replica of the controller looks after an AppWrapper, by the Leases.

use appwrapper_api::{AppWrapper, SLOT_LABEL, Slot};
use appwrapper_coordination::{
    BootClock,
    shards::{RingNames, Roster, Slot as RingSlot},
};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};

use crate::{
    report::Place,
    session::{Session, plain},
};

/// Who looks after it, or why that cannot be told.
pub async fn place(session: &Session, wrapper: &AppWrapper) -> Result<Place, String> {
    let names = RingNames::new(appwrapper_api::RING, appwrapper_api::GROUP);
    let api: Api<Lease> = Api::namespaced(session.client.clone(), &session.system);
    let leases = api.list(&ListParams::default().labels(&names.selector())).await;
    let leases = leases.map_err(|error| {
        format!(
            "who looks after it (Leases in namespace {}, see --system-namespace): {}",
            session.system,
            plain(&error)
        )
    })?;
    let slot = wrapper
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| Slot::parse(labels.get(SLOT_LABEL)?));
    Ok(of_leases(&names, leases.items, slot, session.now()))
}

/// What the Leases say of a slot.
pub fn of_leases(names: &RingNames, leases: Vec<Lease>, slot: Option<Slot>, now: Timestamp) -> Place {
    let roster = Roster::of_list(names.clone(), BootClock::shared(), leases);
    let mut place = Place {
        slot: slot.map(|slot| slot.to_string()),
        ..Place::default()
    };
    let Some(map) = roster.map() else { return place };
    // With one shard nobody needs a slot.
    let shard = if map.count.get() == 1 {
        map.count.shards().next()
    } else {
        slot.and_then(|slot| RingSlot::new(slot.number()))
            .map(|slot| slot.shard(map.count))
    };
    let Some(shard) = shard else { return place };
    place.shard = Some(shard.to_string());
    let lease = roster.lease(&names.shard_lease(shard));
    let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else {
        return place;
    };
    place.holder = spec
        .holder_identity
        .as_deref()
        .filter(|holder| !holder.is_empty())
        .map(|holder| Roster::pod_of(holder).to_owned());
    if place.holder.is_some() {
        place.renewed_seconds_ago = spec
            .renew_time
            .as_ref()
            .map(|time| now.duration_since(time.0).as_secs().max(0));
        let lasts = spec.lease_duration_seconds.map(i64::from);
        place.overdue = place.renewed_seconds_ago > lasts && lasts.is_some();
    }
    place
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn lease(name: &str, holder: &str, annotations: &serde_json::Value) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "annotations": annotations},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10, "leaseTransitions": 3,
                "renewTime": "2026-01-01T00:00:00.000000Z"},
        }))
        .unwrap()
    }

    fn leases(shards: &str) -> Vec<Lease> {
        let map = json!({"workload.codeflare.dev/shards": shards, "workload.codeflare.dev/generation": "1"});
        vec![
            lease("appwrapper-map", "", &map),
            lease("appwrapper-shard-0-of-2", "a__1", &json!({})),
            lease("appwrapper-shard-1-of-2", "", &json!({})),
            lease("appwrapper-shard-0-of-1", "b__1", &json!({})),
        ]
    }

    #[rstest]
    #[case::held("2", Some("02"), 2, Some("0-of-2"), Some("a"), false)]
    #[case::overdue("2", Some("02"), 11, Some("0-of-2"), Some("a"), true)]
    #[case::free("2", Some("03"), 2, Some("1-of-2"), None, false)]
    #[case::no_slot("2", None, 2, None, None, false)]
    #[case::one_shard_needs_no_slot("1", None, 2, Some("0-of-1"), Some("b"), false)]
    #[case::no_map("none", Some("02"), 2, None, None, false)]
    fn a_slot_leads_to_a_shard_and_its_holder(
        #[case] shards: &str,
        #[case] slot: Option<&str>,
        #[case] after: i64,
        #[case] shard: Option<&str>,
        #[case] holder: Option<&str>,
        #[case] overdue: bool,
    ) {
        let names = RingNames::new(appwrapper_api::RING, appwrapper_api::GROUP);
        let now = Timestamp::from_second(1_767_225_600 + after).unwrap();
        let place = of_leases(&names, leases(shards), slot.and_then(Slot::parse), now);
        assert_eq!((place.shard.as_deref(), place.holder.as_deref()), (shard, holder));
        assert_eq!(place.overdue, overdue);
    }
}

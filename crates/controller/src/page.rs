//! Who holds what, as a table: `/debug/shards`, and `appwrapper-controller shards` from the Leases alone.

use std::fmt::Write;

use anyhow::Context;
use appwrapper_coordination::{
    BootClock,
    shards::{Roster, ShardCount},
};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::ListParams};

use crate::replica::{LEADER_LEASE, ring};

const HEAD: [&str; 7] = ["SHARD", "HOLDER", "RENEWED", "EPOCH", "DESIRED", "BACKUPS", "WARM"];

/// The table for what is known of the ring. `leader` is whoever holds the leader's Lease.
pub fn table(roster: &Roster, leader: Option<&str>, now: Timestamp) -> String {
    // Writing into a String cannot fail.
    let names = ring();
    let members = roster.members();
    let mut text = format!("leader: {}\n", leader.map_or("nobody", Roster::pod_of));
    match roster.map() {
        None => text += "shards: not laid out yet\n",
        Some(map) => {
            let next = map.next.map(ShardCount::get);
            let next = next.map_or_else(String::new, |next| format!(", changing to {next}"));
            let _ = writeln!(
                text,
                "shards: {} (generation {}{next})",
                map.count.get(),
                map.generation
            );
        }
    }
    text += "members:\n";
    for member in &members {
        let leaving = if member.draining { ", leaving" } else { "" };
        let _ = writeln!(text, "  {} (template {}{leaving})", member.name, dash(&member.template));
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    let mut ids = roster.shards();
    ids.sort_unstable();
    for id in ids {
        let Some(shard) = roster.shard(id) else { continue };
        let lease = roster.lease(&names.shard_lease(id));
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let age = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| {
            let seconds = now.duration_since(time.0).as_secs().max(0);
            format!("{seconds}s ago")
        });
        let holder = shard.holder.as_deref().map(Roster::pod_of);
        let holder = holder.map(|pod| {
            if shard.live {
                pod.to_owned()
            } else {
                format!("{pod} (gone)")
            }
        });
        let published = shard.published.unwrap_or_default();
        let warm: Vec<&str> = members
            .iter()
            .filter(|member| member.warm.contains(&id))
            .map(|member| member.name.as_str())
            .collect();
        let epoch = spec.and_then(|spec| spec.lease_transitions);
        rows.push([
            id.to_string(),
            dash(holder.as_deref().unwrap_or_default()),
            dash(age.as_deref().filter(|_| holder.is_some()).unwrap_or_default()),
            epoch.unwrap_or_default().to_string(),
            dash(published.holder.as_deref().unwrap_or_default()),
            dash(&published.backups.join(",")),
            dash(&warm.join(",")),
        ]);
    }
    text + &aligned(&rows)
}

/// The same from the API server, once.
pub async fn read(client: Client, namespace: &str) -> anyhow::Result<String> {
    let api: Api<Lease> = Api::namespaced(client, namespace);
    let ring_leases = ListParams::default().labels(&ring().selector());
    let leases = api.list(&ring_leases).await;
    let leases = leases.with_context(|| format!("cannot list Leases in namespace {namespace}"))?;
    let leader = api
        .get_opt(LEADER_LEASE)
        .await
        .context("cannot read the leader's Lease")?;
    let leader = leader
        .and_then(|lease| lease.spec?.holder_identity)
        .filter(|holder| !holder.is_empty());
    let now = Timestamp::now();
    let roster = Roster::of_list(ring(), BootClock::shared(), leases.items);
    Ok(table(&roster, leader.as_deref(), now))
}

fn dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: Vec<usize> = (0..N)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(String::len)
                .max()
                .unwrap_or_default()
        })
        .collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(name: &str, holder: &str, annotations: &[(&str, &str)]) -> Lease {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(key, value)| (ring().key(key), (*value).into()))
            .collect();
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "annotations": annotations},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10, "leaseTransitions": 3,
                "renewTime": "2026-01-01T00:00:00.000000Z"},
        }))
        .unwrap()
    }

    #[test]
    fn the_table_says_who_holds_what_and_who_is_warm() {
        let leases = vec![
            lease("appwrapper-map", "", &[("shards", "2"), ("generation", "1")]),
            lease(
                "appwrapper-member-a",
                "a__1",
                &[("warm", "0-of-2,1-of-2"), ("template", "t1")],
            ),
            lease(
                "appwrapper-member-b",
                "b__1",
                &[("warm", "1-of-2"), ("draining", "true")],
            ),
            lease(
                "appwrapper-shard-0-of-2",
                "a__1",
                &[("desired-holder", "a"), ("desired-backup", "b")],
            ),
            lease("appwrapper-shard-1-of-2", "", &[]),
        ];
        let roster = Roster::of_list(ring(), BootClock::shared(), leases);
        let text = table(&roster, Some("a__1"), "2026-01-01T00:00:02Z".parse().unwrap());
        let expected = "leader: a\n\
            shards: 2 (generation 1)\n\
            members:\n  a (template t1)\n  b (template -, leaving)\n\
            SHARD   HOLDER  RENEWED  EPOCH  DESIRED  BACKUPS  WARM\n\
            0-of-2  a       2s ago   3      a        b        a\n\
            1-of-2  -       -        3      -        -        a,b\n";
        assert_eq!(text, expected);
    }
}

//! Which replica looks after which objects.
//!
//! Objects carry a slot, slots are grouped into shards, each shard has a Lease (`slot.rs`, `map.rs`). One [`ShardSet`] per
//! replica keeps the Leases of its shards, standing in line for the others (`roles.rs`), and tells the caller by [`Role`]s
//! what to have warm, what to act on and what to hand over. Whoever holds the leader Lease also publishes who should hold what
//! (`leader.rs`, `placement.rs`), which nothing waits for.
//!
//! To follow one hand-over: the leader's note arrives in `roster.rs`, turns into a duty in `roles.rs`, into
//! [`Role::HandingOver`] in `set.rs`; the caller drains and calls [`ShardSetHandle::release`] with a
//! [`Handover`]; the successor's watch sees the emptied Lease, its supervisor claims, and `set.rs` checks the map and
//! says [`Role::Holder`] with a [`Takeover`].

mod handle;
mod handover;
mod leader;
mod leases;
mod map;
mod member;
mod placement;
mod roles;
mod roster;
mod set;
mod slot;
mod tasks;

pub use handle::{RingEvents, Role, Roles, ShardSetHandle, ShardSetOptions};
pub use handover::{Barrier, Handover, Takeover};
pub use leader::{LeaderOptions, LeaderWork};
pub use map::ShardMap;
pub use placement::{Candidate, Placement, Situation, place, ranked, weight};
pub use roles::RANK_STEP;
pub use roster::{Member, Roster, ShardLease};
pub use set::ShardSet;
pub use slot::{RingNames, SLOTS, ShardCount, ShardId, Slot};

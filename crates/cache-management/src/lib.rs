//! What the caches know of components and pods, and how sure they are.
//!
//! Contract: a cached read is [`CachedRead::Present`], [`CachedRead::Absent`] or [`CachedRead::NotSynced`]. A kind that is
//! not watched, has not been listed, or is known to lag behind our own write never reads as absent. Absent means no
//! more than "the watch says so": it is a reason to ask the API server, never a proof that something is gone.
//!
//! The way of one event: a `informer` decodes a few fields of the object into facts (`component`, `pod`), the
//! `index` compares them with what it has, and if they differ the key of the owning AppWrapper goes into the trigger
//! channel. `view` is the side that is read; `freshness` compares it with what we wrote ourselves; `lineage`
//! follows the controller references of pods. `registry` starts and stops the informers, one for each kind, and
//! `discovery` tells how a kind is served.

mod backoff;
mod component;
mod discovery;
mod feed;
mod freshness;
mod guard;
mod index;
mod informer;
mod lineage;
mod lock;
mod metadata;
mod observer;
mod pod;
mod registry;
mod settings;
mod triggers;
mod view;

pub use backoff::Backoff;
pub use component::{Declaring, NoStatus, StatusWire, Wire as ComponentWire};
pub use discovery::{KindError, Kinds, ResolvedKind};
pub use observer::{Change, Delivery, KindStatus, LookupOutcome, Observer, Reason, Silent};
pub use pod::PodWire;
pub use registry::Registry;
pub use settings::{Selector, Settings};
pub use view::{CachedRead, NotSynced, View};

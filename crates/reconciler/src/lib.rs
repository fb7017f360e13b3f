//! The decision and its driver: what happens to an AppWrapper next, and carrying it out. No client, no runtime.
//!
//! [`decide::decide`] is a pure function of what is [`observed`], of a [`policy`] and of the time. It answers with a
//! [`decision::Step`]. The [`driver`] performs steps through the verbs of a [`cluster::Cluster`] and decides again. What is
//! known of components, and how well, is in [`evidence`]: there the rule lives that a cached read alone never fails a
//! workload. Each phase has a file under [`mod@phase`].

mod adopt;
pub mod cluster;
pub mod deadline;
pub mod decide;
pub mod decision;
pub mod driver;
pub mod error;
pub mod evidence;
pub mod memory;
mod names;
pub mod observation;
pub mod observed;
pub mod phase;
pub mod pods;
pub mod policy;
pub mod render;
pub mod status;

pub use cluster::Cluster;
pub use driver::{Driver, Requeue};
pub use error::Error;
pub use memory::Memory;
pub use policy::{Defaults, Policy};

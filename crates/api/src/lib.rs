//! The AppWrapper resource and its rules: no client, no runtime, no input or output.
//!
//! Everything that the controller, the webhook and the tools must agree on lives here: the wire types, the labels and
//! annotations, the table of component kinds, pod set inference, the configuration. Every other crate depends on this
//! one, and it depends on none of them.

pub mod annotations;
pub mod appwrapper;
pub mod conditions;
pub mod config;
pub mod crd;
pub mod declared;
pub mod duration;
pub mod facts;
pub mod kinds;
pub mod path;
pub mod phase;
pub mod pod_template;
pub mod podsets;
pub mod rules;
pub mod slot;
pub mod template;

pub use annotations::{AnnotationFault, Annotations};
pub use appwrapper::{AppWrapper, AppWrapperSpec, AppWrapperStatus, Component, ComponentStatus, PodSet, PodSetInfo};
pub use conditions::{ConditionStatus, ConditionType};
pub use declared::Declared;
pub use duration::GoDuration;
pub use facts::{
    AppWrapperKey, Completion, ComponentFacts, ComponentRef, ControllerRef, Lineage, OwnCounts, PodFacts, PodPhase, Rv,
    TypeRef, Uid,
};
pub use phase::Phase;
pub use rules::Violation;
pub use slot::Slot;
pub use template::{Template, TemplateError, TemplateHead};

/// Group of the AppWrapper API.
pub const GROUP: &str = "workload.codeflare.dev";
/// The one version of the AppWrapper API.
pub const VERSION: &str = "v1beta2";
/// `apiVersion` of an AppWrapper.
pub const API_VERSION: &str = "workload.codeflare.dev/v1beta2";
/// Kind of an AppWrapper.
pub const KIND: &str = "AppWrapper";
/// Plural of the kind, as in request paths.
pub const PLURAL: &str = "appwrappers";
/// Label on every component and pod template; its value is the name of the AppWrapper (spec/api.md section 6).
pub const APPWRAPPER_LABEL: &str = "workload.codeflare.dev/appwrapper";
/// Label that says which slot, and so which shard, looks after an object. Given once at admission, never changed.
pub const SLOT_LABEL: &str = "workload.codeflare.dev/slot";
/// Label with the sanitised name of the creator.
pub const USER_LABEL: &str = "workload.codeflare.dev/user";
/// Label with the sanitised uid of the creator.
pub const USER_ID_LABEL: &str = "workload.codeflare.dev/userid";
/// Kueue's queue label.
pub const QUEUE_NAME_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// Finalizer of an AppWrapper: added before anything is deployed, removed when nothing is left.
pub const FINALIZER: &str = "workload.codeflare.dev/finalizer";
/// Value of `spec.managedBy` that means this controller.
pub const CONTROLLER_NAME: &str = "workload.codeflare.dev/appwrapper-controller";
/// `reportingController` of events.
pub const EVENT_REPORTER: &str = "workload.codeflare.dev/appwrapper";
/// Prefix of the names of the controller's Leases.
pub const RING: &str = "appwrapper";
/// Prefix of the annotations read from the AppWrapper's own metadata.
pub const ANNOTATION_PREFIX: &str = "workload.codeflare.dev.appwrapper/";

//! Label values as closed enums.
//!
//! A free string never becomes a label value: what is not listed here folds into one value of its set. So the number of
//! series is bounded by this file, by the shard count and by the cap on namespaces (`capped.rs`), and the table of metrics
//! can name every value a query may ask for.

/// Declares an enum whose variants are the values of one label.
macro_rules! label_values {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $variant),+
        }

        impl $name {
            /// All variants, in the order of [`Self::VALUES`].
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// All values as they appear in the exposition.
            pub const VALUES: &'static [&'static str] = &[$($text),+];

            /// The value as it appears in the exposition.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+};
}

label_values! {
    /// What is watched or wrapped, as plural resource with group.
    ///
    /// Everything up to `Other` can be a component; the rest is watched for other reasons.
    Resource {
        Pods = "pods",
        Services = "services",
        Deployments = "deployments.apps",
        StatefulSets = "statefulsets.apps",
        Jobs = "jobs.batch",
        JobSets = "jobsets.jobset.x-k8s.io",
        PyTorchJobs = "pytorchjobs.kubeflow.org",
        RayClusters = "rayclusters.ray.io",
        RayJobs = "rayjobs.ray.io",
        PodGroups = "podgroups.scheduling.x-k8s.io",
        SigPodGroups = "podgroups.scheduling.sigs.k8s.io",
        Other = "other",
        AppWrappers = "appwrappers.workload.codeflare.dev",
        ReplicaSets = "replicasets.apps",
        Nodes = "nodes",
    }

    /// Phase of an AppWrapper. `Empty` is the one before the first reconcile.
    Phase {
        Empty = "Empty",
        Suspended = "Suspended",
        Resuming = "Resuming",
        Running = "Running",
        Resetting = "Resetting",
        Suspending = "Suspending",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Terminating = "Terminating",
    }

    /// What a cached read of one component answered.
    Cached {
        Hit = "hit",
        Miss = "miss",
        Terminating = "terminating",
        Unsynced = "unsynced",
    }

    /// What an uncached read said about a component that the cache did not show.
    ///
    /// `Live` is a race survived. `Replaced` is the name with another UID or owner. `Deferred` is a read that the limiter
    /// held back.
    Outcome {
        Live = "live",
        Missing = "missing",
        Terminating = "terminating",
        Replaced = "replaced",
        Error = "error",
        Deferred = "deferred",
    }

    /// Controllers, named as the Go controller names them.
    Controller {
        AppWrapper = "AppWrapper",
        NodeMonitor = "NodeMonitor",
    }

    /// How a reconcile ended, in controller-runtime's words.
    ReconcileResult {
        Success = "success",
        Requeue = "requeue",
        RequeueAfter = "requeue_after",
        Error = "error",
    }

    /// Why an AppWrapper was reset or failed: the reason of its `Unhealthy` condition.
    Reason {
        MissingComponent = "MissingComponent",
        FailedComponent = "FailedComponent",
        FoundFailedPods = "FoundFailedPods",
        InsufficientPodsReady = "InsufficientPodsReady",
        CreateFailed = "CreateFailed",
        AutopilotNoExecute = "AutopilotNoExecute",
        Other = "Other",
    }

    /// What was done to a component.
    Operation {
        Create = "create",
        Delete = "delete",
    }

    /// How an operation on a component ended.
    OperationResult {
        Success = "success",
        Exists = "exists",
        NotFound = "not_found",
        Refused = "refused",
        Error = "error",
    }

    /// What was deleted by force, when the time for a graceful deletion was over.
    Forced {
        Pod = "pod",
        Component = "component",
    }

    /// Why an object that claims to belong to an AppWrapper was not counted as such.
    Foreign {
        OwnerUid = "owner_uid",
        LabelClaim = "label_claim",
        NameTaken = "name_taken",
    }

    /// What a watch delivered.
    WatchEvent {
        Applied = "applied",
        Deleted = "deleted",
        Listed = "listed",
        Bookmark = "bookmark",
    }

    /// Why a watch began anew.
    WatchRestart {
        Expired = "expired",
        Closed = "closed",
        Error = "error",
        Timeout = "timeout",
    }

    /// How an attempt to renew a Lease ended.
    Renewal {
        Renewed = "renewed",
        Conflict = "conflict",
        Error = "error",
        Timeout = "timeout",
    }

    /// A change of ownership of a shard, as this replica saw it.
    Transition {
        Acquired = "acquired",
        Released = "released",
        Lost = "lost",
    }

    /// Which layer refused a write that was no longer safe (write guard, version in the patch, precondition of the delete,
    /// admission policy on the Lease).
    Fence {
        Guard = "guard",
        Version = "version",
        Precondition = "precondition",
        Policy = "policy",
    }

    /// Leader elections of the process.
    Election {
        Leader = "f134c674.codeflare.dev",
    }

    /// HTTP methods of requests to the API server.
    Method {
        Get = "GET",
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Delete = "DELETE",
    }

    /// The two webhooks by path, as controller-runtime labels them.
    Webhook {
        Mutating = "/mutate-workload-codeflare-dev-v1beta2-appwrapper",
        Validating = "/validate-workload-codeflare-dev-v1beta2-appwrapper",
    }

    /// Admission operations that the webhooks are registered for.
    AdmissionOperation {
        Create = "CREATE",
        Update = "UPDATE",
    }

    /// What became of an admission request. `Errored` is a denial for want of an answer, not for a fault of the object.
    Decision {
        Allowed = "allowed",
        Denied = "denied",
        Errored = "errored",
    }

    /// Why: one reason per rule of admission.
    DecisionReason {
        Accepted = "accepted",
        Malformed = "malformed",
        ComponentCount = "component_count",
        PodSets = "pod_sets",
        Namespace = "namespace",
        ClusterScoped = "cluster_scoped",
        KindNotAllowed = "kind_not_allowed",
        Nested = "nested",
        Metadata = "metadata",
        Immutable = "immutable",
        Identity = "identity",
        AccessDenied = "access_denied",
        AccessReviewFailed = "access_review_failed",
        DiscoveryFailed = "discovery_failed",
        Timeout = "timeout",
    }

    /// HTTP status of a webhook's own answer.
    WebhookCode {
        Ok = "200",
        BadRequest = "400",
        TooLarge = "413",
        Failed = "500",
        Busy = "503",
    }

    /// Answer to one SubjectAccessReview.
    AccessReview {
        Allowed = "allowed",
        Denied = "denied",
        Cached = "cached",
        Error = "error",
    }

    /// Where a question to discovery was answered from.
    Discovery {
        Cached = "cached",
        Fetched = "fetched",
        Unknown = "unknown",
        Error = "error",
    }

    /// Certificates of the webhook.
    Certificate {
        Serving = "serving",
        Ca = "ca",
    }

    /// How a reload of the certificate pair ended.
    Reload {
        Unchanged = "unchanged",
        Reloaded = "reloaded",
        Error = "error",
    }

    /// Level of a log line.
    Level {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }

    /// Metrics whose namespaces are capped.
    CappedMetric {
        Phase = "appwrapper_phase_total",
        Verdicts = "appwrapper_missing_component_verdicts_total",
        Failures = "appwrapper_failures_total",
    }
}

impl Resource {
    /// Number of resources that can be a component; they come first in [`Self::ALL`].
    const COMPONENTS: usize = Self::Other as usize + 1;

    /// Values for metrics that only speak of components.
    pub const COMPONENT_VALUES: &'static [&'static str] = Self::VALUES.split_at(Self::COMPONENTS).0;

    /// The value for a kind in a group (`""` for the core group); [`Self::Other`] for kinds without a row.
    pub fn of_kind(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Pod") => Self::Pods,
            ("", "Service") => Self::Services,
            ("apps", "Deployment") => Self::Deployments,
            ("apps", "StatefulSet") => Self::StatefulSets,
            ("batch", "Job") => Self::Jobs,
            ("jobset.x-k8s.io", "JobSet") => Self::JobSets,
            ("kubeflow.org", "PyTorchJob") => Self::PyTorchJobs,
            ("ray.io", "RayCluster") => Self::RayClusters,
            ("ray.io", "RayJob") => Self::RayJobs,
            ("scheduling.x-k8s.io", "PodGroup") => Self::PodGroups,
            ("scheduling.sigs.k8s.io", "PodGroup") => Self::SigPodGroups,
            ("workload.codeflare.dev", "AppWrapper") => Self::AppWrappers,
            ("apps", "ReplicaSet") => Self::ReplicaSets,
            ("", "Node") => Self::Nodes,
            _ => Self::Other,
        }
    }

    /// The value for an `apiVersion` and a kind.
    pub fn of_type(api_version: &str, kind: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self::of_kind(group, kind)
    }

    /// The same, with what is no component folded into [`Self::Other`]: an AppWrapper or a node inside an AppWrapper is
    /// refused elsewhere and must not open a series here.
    #[must_use]
    pub fn component(self) -> Self {
        if (self as usize) < Self::COMPONENTS {
            self
        } else {
            Self::Other
        }
    }
}

impl Phase {
    /// Phases that upstream's transition counter knows: neither the empty one nor `Terminating`.
    pub const ENTERED_VALUES: &'static [&'static str] = Self::VALUES.split_at(1).1.split_at(7).0;
}

impl DecisionReason {
    /// The decision that this reason stands for.
    pub const fn decision(self) -> Decision {
        match self {
            Self::Accepted => Decision::Allowed,
            Self::AccessReviewFailed | Self::DiscoveryFailed | Self::Timeout => Decision::Errored,
            _ => Decision::Denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_a_row_is_other() {
        assert_eq!(Resource::of_type("batch/v1", "Job"), Resource::Jobs);
        assert_eq!(Resource::of_type("v1", "Pod"), Resource::Pods);
        assert_eq!(Resource::of_type("example.org/v1", "Job"), Resource::Other);
        assert_eq!(Resource::AppWrappers.component(), Resource::Other);
    }

    #[test]
    fn component_values_end_with_other() {
        assert_eq!(Resource::COMPONENT_VALUES.len(), 12);
        assert_eq!(Resource::COMPONENT_VALUES.last(), Some(&"other"));
    }
}

//! What is watched, and the limits and times of the caches.

use std::time::Duration;

use appwrapper_api::APPWRAPPER_LABEL;

/// Which objects are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(String);

impl Selector {
    /// Every object with the label of an AppWrapper.
    pub fn all() -> Self {
        Self(APPWRAPPER_LABEL.to_owned())
    }

    /// Those of them that `requirement` selects as well, in the syntax of label selectors.
    #[must_use]
    pub fn and(self, requirement: &str) -> Self {
        Self(format!("{},{requirement}", self.0))
    }

    /// The selector as the API server reads it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Limits and times of the caches. The defaults suit production.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long the server keeps a watch open. Five seconds more and a dead connection is noticed.
    pub watch_timeout: Duration,
    /// How long the start of a watch may take.
    pub watch_start: Duration,
    /// How long one page of a list may take.
    pub list_limit: Duration,
    /// Objects to a page where whole objects are read.
    pub page_size: u32,
    /// Objects to a page where only metadata is read.
    pub metadata_page_size: u32,
    /// How long errors may last until a cache is no longer read.
    pub blind_after: Duration,
    /// How long a kind stays watched after its last use.
    pub idle: Duration,
    /// Names per kind that are remembered after their object is gone.
    pub tombstones: usize,
    /// How long it is remembered how a kind is served.
    pub discovery_hit: Duration,
    /// How long it is remembered that a kind is not served.
    pub discovery_miss: Duration,
    /// How long discovery may take.
    pub discovery_limit: Duration,
    /// Look-ups of a pod's controllers at once.
    pub lookups: usize,
    /// How long one of them may take.
    pub lookup_limit: Duration,
    /// How long a controller of a watched kind may take to come through its watch before it is looked up.
    pub lookup_grace: Duration,
    /// Controllers that are remembered.
    pub links: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            watch_timeout: Duration::from_secs(60),
            watch_start: Duration::from_secs(10),
            list_limit: Duration::from_secs(60),
            page_size: 100,
            metadata_page_size: 500,
            blind_after: Duration::from_secs(60),
            idle: Duration::from_secs(600),
            tombstones: 8192,
            discovery_hit: Duration::from_secs(600),
            discovery_miss: Duration::from_secs(10),
            discovery_limit: Duration::from_secs(5),
            lookups: 8,
            lookup_limit: Duration::from_secs(5),
            lookup_grace: Duration::from_secs(1),
            links: 16_384,
        }
    }
}

//! Builds metrics from their rows in the table, and writes the exposition.
//!
//! The only place that talks to the `prometheus` registry. A metric cannot be exported without a row, since everything here
//! takes a [`Descriptor`]; that every row is exported is shown by a test that compares the table with a scrape.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, TextEncoder,
};

use crate::descriptor::{Descriptor, Kind, Start};

/// Media type of the exposition.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Runs before each scrape, for values that are cheaper to compute then.
type Hook = Box<dyn Fn() + Send + Sync>;

/// All metrics of a process. Clones share the same metrics.
#[derive(Clone)]
pub struct Registry {
    inner: prometheus::Registry,
    hooks: Arc<Mutex<Vec<Hook>>>,
    shards: u32,
}

impl Registry {
    /// An empty registry; `shards` is the number of shards for which series start at 0.
    pub fn new(shards: u32) -> Self {
        Self {
            inner: prometheus::Registry::new(),
            hooks: Arc::default(),
            shards,
        }
    }

    /// Writes all metrics in Prometheus' text format.
    pub fn encode(&self) -> Result<String, prometheus::Error> {
        for hook in self.hooks.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            hook();
        }
        let mut page = Vec::with_capacity(256 * 1024);
        TextEncoder::new().encode(&self.inner.gather(), &mut page)?;
        String::from_utf8(page).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }

    /// Runs `hook` before each scrape. It must not block.
    pub fn before_scrape(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.hooks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Box::new(hook));
    }

    /// Adds a collector made elsewhere (that of the process).
    pub(crate) fn add(&self, collector: impl Collector + 'static) {
        // Fails only for two metrics of one name or a name that is not valid: the tests of the table exclude both.
        self.inner
            .register(Box::new(collector))
            .expect("the table holds each metric once");
    }

    pub(crate) fn counter(&self, row: &Descriptor) -> IntCounter {
        self.counters(row).with_label_values::<&str>(&[])
    }

    pub(crate) fn counters(&self, row: &Descriptor) -> IntCounterVec {
        debug_assert_eq!(row.kind, Kind::Counter, "{}", row.name);
        let vec = IntCounterVec::new(opts(row), &row.label_names()).expect("valid row");
        self.start(row, |values| drop(vec.with_label_values(values)));
        self.add(vec.clone());
        vec
    }

    pub(crate) fn gauge(&self, row: &Descriptor) -> IntGauge {
        self.gauges(row).with_label_values::<&str>(&[])
    }

    pub(crate) fn gauges(&self, row: &Descriptor) -> IntGaugeVec {
        debug_assert_eq!(row.kind, Kind::Gauge, "{}", row.name);
        let vec = IntGaugeVec::new(opts(row), &row.label_names()).expect("valid row");
        self.start(row, |values| drop(vec.with_label_values(values)));
        self.add(vec.clone());
        vec
    }

    pub(crate) fn float_gauge(&self, row: &Descriptor) -> Gauge {
        self.float_gauges(row).with_label_values::<&str>(&[])
    }

    pub(crate) fn float_gauges(&self, row: &Descriptor) -> GaugeVec {
        debug_assert_eq!(row.kind, Kind::Gauge, "{}", row.name);
        let vec = GaugeVec::new(opts(row), &row.label_names()).expect("valid row");
        self.start(row, |values| drop(vec.with_label_values(values)));
        self.add(vec.clone());
        vec
    }

    pub(crate) fn float_counter(&self, row: &Descriptor) -> prometheus::Counter {
        debug_assert_eq!(row.kind, Kind::Counter, "{}", row.name);
        let counter = prometheus::Counter::with_opts(opts(row)).expect("valid row");
        self.add(counter.clone());
        counter
    }

    pub(crate) fn histogram(&self, row: &Descriptor) -> Histogram {
        self.histograms(row).with_label_values::<&str>(&[])
    }

    pub(crate) fn histograms(&self, row: &Descriptor) -> HistogramVec {
        let Kind::Histogram(buckets) = row.kind else {
            // A row of another type: the scrape test finds the wrong type before anybody else does.
            debug_assert!(false, "{} is no histogram", row.name);
            return HistogramVec::new(HistogramOpts::from(opts(row)), &row.label_names()).expect("valid row");
        };
        let opts = HistogramOpts::from(opts(row)).buckets(buckets.to_vec());
        let vec = HistogramVec::new(opts, &row.label_names()).expect("valid row");
        self.start(row, |values| drop(vec.with_label_values(values)));
        self.add(vec.clone());
        vec
    }

    fn start(&self, row: &Descriptor, create: impl Fn(&[&str])) {
        if row.start != Start::Zero {
            return;
        }
        for values in row.combinations(self.shards).unwrap_or_default() {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            create(&values);
        }
    }
}

fn opts(row: &Descriptor) -> Opts {
    Opts::new(row.name, row.help)
}

//! Whether the API server trusts what this replica serves: the condition for readiness, and a metric.
//!
//! A replica is ready once it is trusted and stays so: a bundle that is damaged later strikes every replica alike, and
//! leaving the Service would only add to it.

use appwrapper_metrics::{Admission, Health, health::NotReady};
use kube::Client;

use super::{
    bundle::{Configuration, Configurations},
    clock::ServerClock,
    material::Pair,
};

/// Watches over trust.
pub struct Gate {
    client: Client,
    configurations: Configurations,
    clock: ServerClock,
    metrics: Admission,
    waiting: Option<NotReady>,
    /// The fault that was logged last: one line per fault, not per look.
    logged: Option<String>,
}

impl Gate {
    /// Not ready until the certificate is trusted.
    pub fn new(
        client: Client,
        configurations: Configurations,
        clock: ServerClock,
        metrics: Admission,
        health: &Health,
    ) -> Self {
        let waiting = Some(health.not_ready("certificate", "no certificate is loaded yet"));
        Self {
            client,
            configurations,
            clock,
            metrics,
            waiting,
            logged: None,
        }
    }

    /// Reads what is trusted.
    pub async fn read(&self) -> Result<[Configuration; 2], kube::Error> {
        self.configurations.read(&self.client, &self.clock).await
    }

    /// Whether both configurations trust the pair.
    pub fn trusts(&self, configurations: &[Configuration; 2], pair: &Pair) -> Result<(), String> {
        configurations
            .iter()
            .try_for_each(|configuration| configuration.trusts(pair, self.clock.now()))
    }

    /// Tells what was found out about the pair that is served.
    pub fn tell(&mut self, configurations: &[Configuration; 2], pair: &Pair) {
        for configuration in configurations {
            let trusted = configuration.trusts(pair, self.clock.now());
            self.metrics.set_ca_current(configuration.webhook(), trusted.is_ok());
        }
        match self.trusts(configurations, pair) {
            Ok(()) => {
                self.logged = None;
                if self.waiting.take().is_some() {
                    tracing::info!("both webhook configurations trust the certificate: ready");
                }
            }
            Err(fault) => {
                self.wait(&format!("not trusted: {fault}"));
                if self.logged.as_ref() != Some(&fault) {
                    tracing::warn!(fault, "the API server does not trust the certificate that is served");
                    self.logged = Some(fault);
                }
            }
        }
    }

    /// Says what is waited for, while anything is.
    pub fn wait(&self, because: &str) {
        if let Some(waiting) = &self.waiting {
            waiting.because(because);
        }
    }
}

//! The way out: keys of AppWrappers that should be looked at.

use std::sync::{Arc, RwLock};

use appwrapper_api::AppWrapperKey;
use tokio::sync::mpsc;

use crate::lock::{read, write};

/// Where triggers go at the moment. Watches outlive a tenure, so the channel can be replaced.
#[derive(Clone, Debug)]
pub(crate) struct Triggers {
    sender: Arc<RwLock<mpsc::Sender<AppWrapperKey>>>,
}

impl Triggers {
    pub(crate) fn new(sender: mpsc::Sender<AppWrapperKey>) -> Self {
        Self {
            sender: Arc::new(RwLock::new(sender)),
        }
    }

    pub(crate) fn route(&self, sender: mpsc::Sender<AppWrapperKey>) {
        *write(&self.sender) = sender;
    }

    /// Sends every key. A full channel slows the caller; a channel without a receiver takes nothing, since whoever
    /// opens the next one starts by looking at everything.
    pub(crate) async fn send(&self, keys: impl IntoIterator<Item = AppWrapperKey>) {
        for key in keys {
            let mut key = key;
            loop {
                let sender = read(&self.sender).clone();
                let Err(refused) = sender.send(key).await else { break };
                if read(&self.sender).same_channel(&sender) {
                    break;
                }
                key = refused.0;
            }
        }
    }
}

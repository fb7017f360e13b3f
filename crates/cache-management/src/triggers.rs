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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_that_waits_for_a_full_channel_is_not_lost_when_it_is_replaced() {
        let (sender, old) = mpsc::channel(1);
        let triggers = Triggers::new(sender);
        let keys = ["a", "b"].map(|name| AppWrapperKey::new("n", name));
        let sending = tokio::spawn({
            let (triggers, keys) = (triggers.clone(), keys.clone());
            async move { triggers.send(keys).await }
        });
        while old.is_empty() {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        let (sender, mut new) = mpsc::channel(1);
        triggers.route(sender);
        drop(old);
        let received = timeout(Duration::from_secs(1), new.recv()).await.unwrap();
        assert_eq!(received.as_ref(), Some(&keys[1]));
        sending.await.unwrap();
    }
}

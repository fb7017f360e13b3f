//! Ports for one cluster, which no other cluster on the machine gets meanwhile.
//!
//! kwokctl looks for free ports and uses them seconds later, so two clusters started together could pick the same. Here
//! a block of ports is reserved by a lock file for as long as the process lives, and taken only when every port of it
//! is free, as a kept cluster's are not. Each process begins its search elsewhere, which keeps users apart who do not
//! see each other's locks. The blocks lie below the range from which the kernel takes the ports of outgoing connections.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use anyhow::{Context as _, Result};
use rustix::process::getuid;

const FIRST: u16 = 18_000;
const BLOCK: u16 = 8;
const BLOCKS: u16 = 400;

/// A reserved block of ports.
pub struct Ports {
    base: u16,
    _lock: File,
}

impl Ports {
    pub fn reserve() -> Result<Self> {
        // Not in the cache: processes with different caches share the machine's ports all the same.
        let folder = std::env::temp_dir().join(format!("appwrapper-ports-{}", getuid().as_raw()));
        std::fs::create_dir_all(&folder)?;
        let start = std::process::id() % u32::from(BLOCKS);
        let blocks = (0..BLOCKS).cycle().skip(start as usize).take(usize::from(BLOCKS));
        for base in blocks.map(|block| FIRST + block * BLOCK) {
            let path = folder.join(base.to_string());
            let lock = File::options().create(true).append(true).open(path)?;
            if lock.try_lock().is_ok() && block(base).all(is_free) {
                return Ok(Self { base, _lock: lock });
            }
        }
        None.context("no block of free ports for a cluster")
    }

    pub fn etcd(&self) -> u16 {
        self.base
    }

    pub fn etcd_peer(&self) -> u16 {
        self.base + 1
    }

    pub fn kube_apiserver(&self) -> u16 {
        self.base + 2
    }

    pub fn kube_controller_manager(&self) -> u16 {
        self.base + 3
    }

    pub fn kube_scheduler(&self) -> u16 {
        self.base + 4
    }

    pub fn kwok_controller(&self) -> u16 {
        self.base + 5
    }
}

fn block(base: u16) -> Range<u16> {
    base..base + BLOCK
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reservations_at_once_never_share_a_port() {
        let (one, other) = (Ports::reserve().unwrap(), Ports::reserve().unwrap());
        assert!(block(one.base).all(|port| !block(other.base).contains(&port)));
    }

    #[test]
    fn a_port_in_use_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }
}

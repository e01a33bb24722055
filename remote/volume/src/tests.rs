//! Tests of whole volumes. A test of one file's code is in that file.
//!
//! | file | subject |
//! |---|---|
//! | `basic` | volumes on a store without faults, against bytes in memory |
//! | `shared` | snapshots, clones, collection, cleaning, audits |
//! | `snapshots` | snapshots and clones of open volumes; new volumes that are given up |
//! | `hostile` | damaged objects, short and corrupt replies |
//! | `replies` | requests of one kind that are refused, or whose replies are lost |
//! | `latency` | requests that are sent at the same time, in virtual time |
//! | `crash` | a power cut at every request |
//! | `model` | the protocol without the code, in very many schedules |
//! | `claims` | several writers that take over from each other, on a store with faults, in simulated schedules |

mod basic;
#[cfg(debug_assertions)]
mod claims;
#[cfg(debug_assertions)]
mod crash;
mod hostile;
#[cfg(debug_assertions)]
mod latency;
mod model;
mod replies;
mod shared;
mod snapshots;

use std::sync::Arc;
use std::time::Duration;

use base::random::Random;
use block::{Device, Durability};
use store::{MemoryStore, Store};

use crate::segment::BLOCK;
use crate::{ObjectDevice, ObjectOptions};

/// Options with everything small, so that a short test reaches every path.
fn small(seed: u64) -> ObjectOptions {
    ObjectOptions {
        timeout: Duration::from_secs(60),
        uploads: 2,
        map_pages: 2,
        frame_cache: 64 << 10,
        checkpoint_segments: 5,
        grace: Duration::ZERO,
        random: Arc::new(Random::with_sequences(1, seed)),
        ..ObjectOptions::default()
    }
}

fn shared(store: &MemoryStore) -> Arc<dyn Store> {
    Arc::new(store.clone())
}

/// A block that contains a number.
fn block(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(BLOCK / 8)
}

fn write(device: &ObjectDevice, at: u64, value: u64) {
    device.write_at(at * BLOCK as u64, &block(value), Durability::Buffered).unwrap();
}

/// The number that a block contains, whole or as zero.
fn read(device: &ObjectDevice, at: u64) -> u64 {
    let mut bytes = vec![0xff; BLOCK];
    device.read_at(at * BLOCK as u64, &mut bytes).unwrap();
    let value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, block(value), "block {at} is torn");
    value
}

/// A new volume of some blocks.
fn make(store: &MemoryStore, blocks: u64, seed: u64) {
    ObjectDevice::create(shared(store), blocks * BLOCK as u64, 512, small(seed)).unwrap().close().unwrap();
}

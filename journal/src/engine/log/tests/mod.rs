//! The journal on memory devices: what it writes, the reader of this crate reads.
//!
//! | file | subject |
//! |---|---|
//! | `without_threads` | a journal without background threads |
//! | `recovered_intents` | intents found by recovery are finished even in a full log |
//! | `basics` | forced changes are in the log; an unmounted log is clean; records of all sizes are read back |
//! | `reservation` | every byte of the log is reserved, whatever is committed |
//! | `churn` | many threads in a nearly full log: no ticket runs out, no thread hangs |
//! | `without_journal` | everything is written back without log records |
//! | `inflight_writes` | freed blocks wait for writes in flight |
//! | `memory` | log vectors, intents and dirty metadata are counted and limited |
//! | `reuse` | a freed address can get another kind of block, whatever still refers to the old one |
//! | `waiting` | no thread waits for the device with locks that others want |
//! | `faults` | failures of the log or data device |
//! | `power_cuts` | everything forced is there after a power cut |
//! | `unmounting` | the unmount record is the last |

mod basics;
mod churn;
mod faults;
mod inflight_writes;
mod memory;
mod power_cuts;
mod recovered_intents;
mod reservation;
mod reuse;
mod unmounting;
mod waiting;
mod without_journal;
mod without_threads;

use std::sync::Arc;
use std::time::Duration;

use base::Daddr;
use base::lock::Rank;
use block::{Device, Durability, MemoryDevice};
use format::btree::{BnoBt, Btree, ShortHeader};
use format::ondisk::{OnDisk, U32, U64};
use format::superblock::Superblock;
use zerocopy::{FromZeros, IntoBytes};

use super::{Log, Options};
use crate::engine::buffer::DiskExtent;
use crate::engine::commit_target::{CommitTarget, LogReservation};
use crate::engine::transaction::Transaction;
use crate::tests::volume::{UUID, superblock};
use crate::{Journal, OnDamage, ReplayRegistry, State, recover};

/// Bytes of a test's buffer.
const BYTES: u32 = 4096;
/// Offset of its counter, behind the header.
const COUNTER: usize = 512;
const RESERVATION: LogReservation = LogReservation { bytes: 16 << 10, transactions: 2 };

impl Log {
    /// Bytes reserved and not written: 0 while no transaction is open and nothing waits to be pushed.
    fn reserved(&self) -> u64 {
        self.shared.grant.drain_cpu_caches();
        self.shared.grant.head().saturating_sub(self.shared.iclogs.next())
    }
}

/// A volume of 16 MiB whose blocks look like B+tree blocks, so that they are stamped and verified.
struct Volume {
    device: Arc<MemoryDevice>,
    superblock: Superblock,
}

impl Volume {
    /// A log with this many blocks of 512 bytes, all zero.
    fn new(log_blocks: u32) -> Self {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        let sector = superblock(4096, log_blocks / 8, 0);
        device.write_at(0, &sector, Durability::Buffered).unwrap();
        Self { device, superblock: Superblock::parse(&sector).unwrap() }
    }

    fn open(&self, options: &Options) -> Arc<Log> {
        self.open_on(self.device.clone(), options)
    }

    fn open_on(&self, device: Arc<dyn Device>, options: &Options) -> Arc<Log> {
        Log::open(&self.superblock, device, None, None, options).unwrap()
    }

    fn state(&self) -> State {
        state(&self.superblock, &*self.device)
    }
}

fn state(superblock: &Superblock, device: &dyn Device) -> State {
    Journal::open(superblock, device, None).unwrap().state().clone()
}

/// Replays a dirty log in place.
fn replay(superblock: &Superblock, device: &dyn Device) {
    let journal = Journal::open(superblock, device, None).unwrap();
    let options = crate::Options { on_damage: OnDamage::Stop, ..crate::Options::default() };
    recover(&journal, superblock, device, &ReplayRegistry::default(), &options).unwrap();
}

/// Options without timers.
fn options(shards: usize) -> Options {
    Options { shards: Some(shards), interval: Duration::from_secs(3600), ..Options::default() }
}

fn place(n: u64) -> DiskExtent {
    DiskExtent { daddr: Daddr(n * 8), bytes: BYTES }
}

/// Writes blocks 1 to `count` that look like leaves of a B+tree, each with counter 0.
fn make_blocks(device: &dyn Device, count: u64) {
    for n in 1..=count {
        let mut header = ShortHeader::new_zeroed();
        header.magic = U32::new(BnoBt::MAGIC);
        header.bno = U64::new(n * 8);
        header.uuid = UUID;
        let mut block = header.as_bytes().to_vec();
        block.resize(BYTES as usize, 0);
        format::checksum::store(&mut block, 52);
        device.write_at(n * u64::from(BYTES), &block, Durability::Buffered).unwrap();
    }
}

/// Increments the counter of a block; returns the new value.
fn count_up(tx: &mut Transaction, n: u64) -> Result<u64, error::Error> {
    let id = tx.read(place(n), Rank::Buffer, |_| Ok(()))?;
    let bytes = tx.bytes_mut(id, COUNTER..COUNTER + 8);
    let value = U64::view(bytes).unwrap().get() + 1;
    bytes.copy_from_slice(&value.to_be_bytes());
    Ok(value)
}

/// Increments the counter of a block in its own transaction.
fn bump(log: &Arc<Log>, n: u64) -> u64 {
    let mut tx = log.begin(RESERVATION).unwrap();
    let value = count_up(&mut tx, n).unwrap();
    tx.commit(&mut []).unwrap();
    value
}

/// The counter of a block on the device.
fn on_disk(device: &dyn Device, n: u64) -> u64 {
    let mut bytes = [0; 8];
    device.read_at(n * u64::from(BYTES) + COUNTER as u64, &mut bytes).unwrap();
    u64::from_be_bytes(bytes)
}

//! Transactions on a memory device, with a commit target without a journal.

mod sizes;

use std::sync::Arc;

use base::lock::Rank;
use base::memory::Share;
use base::percpu;
use base::{Daddr, Lsn};
use block::{Device, Durability, MemoryDevice};
use format::damage::Damage;
use format::log::item::ItemType;
use format::metadata_header::HeaderLayout;
use parking_lot::Mutex;

use super::buffer::{BufferExtents, DiskExtent};
use super::cache::BufferCache;
use super::commit_target::{CommitTarget, LogReservation, Ticket, TransactionContext};
use super::defer::{DeferredKind, DeferredOperation, DeferredProgress};
use super::item::{CommitPosition, LogItem as _};
use super::no_journal::NoJournal;
use super::transaction::{Loggable, Transaction};
use super::transaction_items::TransactionItems;
use super::tuning::SCAN;
use error::Error;

struct Fixture {
    device: Arc<MemoryDevice>,
    cache: Arc<BufferCache>,
    no_journal: Arc<NoJournal>,
    target: Arc<dyn CommitTarget>,
}

/// Budget of the cache: some blocks.
const BUDGET: u64 = 64 << 10;

const RESERVATION: LogReservation = LogReservation { bytes: 64 << 10, transactions: 2 };

impl Fixture {
    fn new() -> Self {
        let device = Arc::new(MemoryDevice::new(1 << 20));
        let cache = BufferCache::new(device.clone(), Share::alone(BUDGET));
        let no_journal = Arc::new(NoJournal::new(None));
        Self { device, cache, target: no_journal.clone(), no_journal }
    }

    fn begin(&self) -> Transaction {
        Transaction::begin(&TransactionContext::new(&self.target, &self.cache), RESERVATION).unwrap()
    }

    fn on_disk(&self, at: DiskExtent) -> Vec<u8> {
        let mut bytes = vec![0; at.bytes as usize];
        self.device.read_at(at.daddr.get() * 512, &mut bytes).unwrap();
        bytes
    }
}

fn block(n: u64) -> DiskExtent {
    DiskExtent { daddr: Daddr(n * 8), bytes: 4096 }
}

fn good(_: &[u8]) -> Result<(), Damage> {
    Ok(())
}

#[test]
fn a_change_is_written_back_sealed() {
    let fixture = Fixture::new();
    let mut tx = fixture.begin();
    let id = tx.fresh(block(3), Rank::Buffer).unwrap();
    tx.bytes_mut(id, 0..4).copy_from_slice(b"XAGI");
    tx.bytes_mut(id, 1000..1004).copy_from_slice(b"text");
    tx.commit(&mut []).unwrap();
    assert_eq!(fixture.on_disk(block(3)), vec![0; 4096]);
    assert_eq!(fixture.no_journal.write_back(&*fixture.device).unwrap(), 0);
    let bytes = fixture.on_disk(block(3));
    assert_eq!(&bytes[1000..1004], b"text");
    assert!(HeaderLayout::of(&bytes).unwrap().checksum_holds(&bytes));
}

#[test]
fn a_buffer_is_verified_once() {
    let fixture = Fixture::new();
    fixture.device.write_at(8 * 512, b"good", Durability::Buffered).unwrap();
    let refuse = |_: &[u8]| Err(Damage::new("block", "magic", "good", "bad"));
    let mut tx = fixture.begin();
    assert!(matches!(tx.read(block(1), Rank::Buffer, refuse), Err(Error::Damaged { .. })));
    let id = tx.read(block(1), Rank::Buffer, good).unwrap();
    assert_eq!(&tx.bytes(id)[..4], b"good");
    assert_eq!(tx.read(block(1), Rank::Buffer, refuse).unwrap(), id);
    drop(tx);
    let mut tx = fixture.begin();
    tx.read(block(1), Rank::Buffer, refuse).unwrap();
}

#[test]
fn a_held_buffer_stays_locked_over_a_roll() {
    let fixture = Fixture::new();
    let mut tx = fixture.begin();
    let held = tx.read(block(1), Rank::Buffer, good).unwrap();
    let other = tx.read(block(2), Rank::Buffer, good).unwrap();
    tx.hold(held);
    tx.bytes_mut(other, 0..1)[0] = 7;
    let mut second = fixture.begin();
    assert!(second.try_read(block(2), Rank::Buffer, good).unwrap().is_none());
    tx.roll(&mut []).unwrap();
    assert!(second.try_read(block(2), Rank::Buffer, good).unwrap().is_some());
    assert!(second.try_read(block(1), Rank::Buffer, good).unwrap().is_none());
    tx.bytes_mut(held, 0..1)[0] = 8;
    tx.commit(&mut []).unwrap();
    assert!(second.try_read(block(1), Rank::Buffer, good).unwrap().is_some());
}

#[test]
fn dropping_a_changed_transaction_shuts_the_volume_down() {
    let fixture = Fixture::new();
    let mut tx = fixture.begin();
    tx.read(block(1), Rank::Buffer, good).unwrap();
    drop(tx);
    fixture.target.check().unwrap();
    let mut tx = fixture.begin();
    let id = tx.read(block(1), Rank::Buffer, good).unwrap();
    tx.bytes_mut(id, 0..1)[0] = 1;
    drop(tx);
    assert!(matches!(fixture.target.check(), Err(Error::ShutDown { .. })));
    assert!(
        Transaction::begin(&TransactionContext::new(&fixture.target, &fixture.cache), RESERVATION).is_err()
    );
}

/// A thread met a block that another one had left half changed when its device failed, and reported damage.
#[test]
fn changes_of_a_failed_transaction_are_not_read() {
    let fixture = Fixture::new();
    let mut given_up = fixture.begin();
    let id = given_up.read(block(3), Rank::Buffer, good).unwrap();
    given_up.bytes_mut(id, 0..1)[0] = 1;
    let mut waiting = fixture.begin();
    drop(given_up);
    let seen = waiting.read(block(3), Rank::Buffer, |_| unreachable!("it was read before"));
    assert!(matches!(seen, Err(Error::ShutDown { .. })));
    assert!(matches!(waiting.fresh(block(4), Rank::Buffer), Err(Error::ShutDown { .. })));
}

/// With blocks of 16 KiB, an inode cluster is as large as a directory block. A cluster that was freed and became such a
/// block kept the rank of its lock, and a debug build saw the AGI locked out of order behind it.
#[test]
fn a_fresh_block_has_the_rank_of_its_new_use() {
    let fixture = Fixture::new();
    let mut tx = fixture.begin();
    let id = tx.fresh(block(5), Rank::Buffer).unwrap();
    tx.bytes_mut(id, 0..4).copy_from_slice(b"IN__");
    tx.commit(&mut []).unwrap();
    let mut tx = fixture.begin();
    let id = tx.read(block(5), Rank::Buffer, good).unwrap();
    tx.invalidate(id);
    tx.commit(&mut []).unwrap();
    fixture.no_journal.write_back(&*fixture.device).unwrap();
    let mut tx = fixture.begin();
    tx.fresh(block(5), Rank::Fork).unwrap();
    tx.read(block(1), Rank::Agi(0), good).unwrap();
}

#[test]
fn a_freed_block_is_not_written_back_and_is_reused_empty() {
    let fixture = Fixture::new();
    let mut tx = fixture.begin();
    let id = tx.fresh(block(5), Rank::Buffer).unwrap();
    tx.bytes_mut(id, 0..4096).fill(9);
    tx.commit(&mut []).unwrap();
    let mut tx = fixture.begin();
    let id = tx.read(block(5), Rank::Buffer, good).unwrap();
    assert_eq!(tx.bytes(id)[0], 9);
    tx.invalidate(id);
    tx.commit(&mut []).unwrap();
    fixture.no_journal.write_back(&*fixture.device).unwrap();
    assert_eq!(fixture.on_disk(block(5)), vec![0; 4096]);
    // The same address, another length.
    let longer = DiskExtent { daddr: block(5).daddr, bytes: 8192 };
    let mut tx = fixture.begin();
    let id = tx.fresh(longer, Rank::Buffer).unwrap();
    assert_eq!(tx.bytes(id), vec![0; 8192]);
}

#[test]
fn the_cache_drops_clean_buffers_only() {
    let fixture = Fixture::new();
    let mut tx = fixture.begin();
    let dirty = tx.fresh(block(0), Rank::Buffer).unwrap();
    tx.bytes_mut(dirty, 0..1)[0] = 1;
    tx.commit(&mut []).unwrap();
    for n in 1..200 {
        fixture.begin().read(block(n), Rank::Buffer, good).unwrap();
        // The budget, an eighth of it for a scan that found none, and two new buffers with what describes them.
        assert!(fixture.cache.bytes() <= BUDGET + BUDGET / 8 + 2 * 6144, "{n}: {}", fixture.cache.bytes());
    }
    let mut tx = fixture.begin();
    let id = tx.read(block(0), Rank::Buffer, good).unwrap();
    assert_eq!(tx.bytes(id)[0], 1);
}

/// A thread that added a buffer looked at all others, with the locks of an AG.
#[test]
fn a_new_buffer_looks_at_some_others_only() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let cache = BufferCache::new(device, Share::alone(1 << 20));
    percpu::override_current(Some(0));
    let buffers: Vec<_> =
        (0..2000).map(|n| cache.get(&BufferExtents::from(block(n)), Rank::Buffer)).collect();
    // None can be dropped.
    buffers.iter().for_each(|buffer| buffer.core().pin());
    let looked = || buffers.iter().filter(|buffer| !buffer.forget_use()).count();
    buffers.iter().for_each(|buffer| buffer.touch());
    cache.shrink(0);
    assert_eq!(looked(), SCAN);
    let mut calls = 0;
    while cache.shrink(0) {
        calls += 1;
    }
    assert!(calls <= 2 * 2000 / SCAN + 1, "{calls}: it ends when all were looked at twice");
    buffers.iter().for_each(|buffer| assert!(buffer.core().unpin()));
    while cache.shrink(1 << 20) && cache.bytes() > (1 << 20) + (1 << 20) / 8 {}
    assert!(cache.bytes() <= (1 << 20) + (1 << 20) / 8, "{}", cache.bytes());
    assert!(cache.bytes() > 1 << 19, "{}", cache.bytes());
    percpu::override_current(None);
}

/// Records when it is performed; may defer another operation or need several calls.
struct Noted {
    name: &'static str,
    turns: u32,
    then: Option<Box<Noted>>,
    notes: Arc<Mutex<Vec<&'static str>>>,
}

impl DeferredOperation for Noted {
    fn kind(&self) -> DeferredKind {
        DeferredKind::new(ItemType::Efi, ItemType::Efd, 2)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        let mut name = [0; 16];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        out.extend_from_slice(&name);
    }
    fn perform(
        &mut self,
        tx: &mut Transaction,
        _: &mut [&mut dyn Loggable],
    ) -> Result<DeferredProgress, Error> {
        self.notes.lock().push(self.name);
        self.turns -= 1;
        if self.turns > 0 {
            return Ok(DeferredProgress::Again);
        }
        if let Some(then) = self.then.take() {
            tx.defer(then);
        }
        Ok(DeferredProgress::Done)
    }
}

#[test]
fn deferred_operations_run_in_order_and_nested_ones_next() {
    let fixture = Fixture::new();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let noted = |name, turns, then: Option<Noted>| Noted {
        name,
        turns,
        then: then.map(Box::new),
        notes: Arc::clone(&notes),
    };
    let mut tx = fixture.begin();
    let id = tx.read(block(1), Rank::Buffer, good).unwrap();
    tx.bytes_mut(id, 0..1)[0] = 1;
    tx.defer(Box::new(noted("first", 1, Some(noted("of first", 1, None)))));
    tx.defer(Box::new(noted("second", 3, None)));
    tx.defer(Box::new(noted("third", 1, None)));
    tx.commit(&mut []).unwrap();
    fixture.target.check().unwrap();
    assert_eq!(*notes.lock(), ["first", "second", "of first", "second", "second", "third"]);
}

/// A log of intents and done items only, as recovery reads it: after each commit, the operations without a done item,
/// in order.
#[derive(Debug)]
struct Intents {
    inner: NoJournal,
    unanswered: Mutex<Vec<(Vec<u8>, Vec<String>)>>,
    after_each: Mutex<Vec<Vec<String>>>,
}

impl CommitTarget for Intents {
    fn commit(&self, _: &mut Ticket, mut commits: TransactionItems<'_, '_>) -> Result<(), Error> {
        let mut unanswered = self.unanswered.lock();
        commits.for_each(|commit| {
            let at = CommitPosition { checkpoint: 1, order: 0 };
            commit.log(at);
            let Some((_, vector)) = commit.item().core().fetch(1) else { return };
            vector.for_each(|region| {
                let (kind, id) = (u16::from_le_bytes([region[0], region[1]]), region[8..16].to_vec());
                if kind == ItemType::Efi.code() {
                    let name = |op: &[u8]| String::from_utf8_lossy(op).trim_end_matches('\0').to_owned();
                    unanswered.push((id, region[16..].chunks(16).map(name).collect()));
                } else if kind == ItemType::Efd.code() {
                    unanswered.retain(|(intent, _)| *intent != id);
                }
            });
        });
        self.after_each.lock().push(unanswered.iter().flat_map(|(_, names)| names.clone()).collect());
        Ok(())
    }
    fn begin(&self, reservation: LogReservation) -> Result<Ticket, Error> {
        self.inner.begin(reservation)
    }
    fn roll(&self, ticket: &mut Ticket) -> Result<(), Error> {
        self.inner.roll(ticket)
    }
    fn end(&self, ticket: Ticket) {
        self.inner.end(ticket);
    }
    fn note_unlogged_write(&self) -> u64 {
        self.inner.note_unlogged_write()
    }
    fn unlogged_writes(&self) -> u64 {
        self.inner.unlogged_writes()
    }
    fn force(&self) -> Result<(), Error> {
        self.inner.force()
    }
    fn flush_busy(&self) -> Result<(), Error> {
        self.inner.flush_busy()
    }
    fn is_near_tail(&self, lsn: Lsn) -> bool {
        self.inner.is_near_tail(lsn)
    }
    fn intent_id(&self) -> u64 {
        self.inner.intent_id()
    }
    fn shut_down(&self, cause: &str) {
        self.inner.shut_down(cause);
    }
    fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }
}

/// A mapping was to be removed and its extent then freed. The removal met a lock and was logged anew, behind the free.
/// After a crash the extent was freed first, with its mapping, and the removal found none.
#[test]
fn intents_logged_anew_keep_their_order() {
    let fixture = Fixture::new();
    let intents = Arc::new(Intents {
        inner: NoJournal::new(None),
        unanswered: Mutex::default(),
        after_each: Mutex::default(),
    });
    let target: Arc<dyn CommitTarget> = intents.clone();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut tx = Transaction::begin(&TransactionContext::new(&target, &fixture.cache), RESERVATION).unwrap();
    for (name, turns) in [("a", 2), ("b", 1), ("c", 3), ("d", 1), ("e", 1)] {
        tx.defer(Box::new(Noted { name, turns, then: None, notes: Arc::clone(&notes) }));
    }
    tx.commit(&mut []).unwrap();
    assert_eq!(*notes.lock(), ["a", "a", "b", "c", "c", "c", "d", "e"]);
    let expected: [&[&str]; 7] = [
        &["a", "b", "c", "d", "e"],
        &["a", "b", "c", "d", "e"],
        &["c", "d", "e"],
        &["c", "d", "e"],
        &["c", "d", "e"],
        &["e"],
        &[],
    ];
    assert_eq!(*intents.after_each.lock(), expected);
}

//! A volume in memory that tracks the owner of each block: the [`Backing`] of the tests.
//!
//! It panics if a block gets two owners, if data is written to a block that is neither claimed nor mapped, and if more
//! is claimed than is reserved. Freed blocks stay busy until the log is forced, and all maps since then are kept: a
//! power cut may leave any of them. Any call, read or write can be made to fail.

mod claim;
mod device;
mod fuse;
mod hook;
mod rmap;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use base::{FileBlock, FsBlock, Ino, errno};
use block::{Device, MemoryDevice};
use error::Error;

use crate::contents::Contents;
use backing::{Backing, Mapping, MappingState, WriteCompletion};
use fuse::Fuse;

pub use claim::TestClaim;
pub use fuse::{OPS, Op};
pub use hook::Hooks;
pub use rmap::TestRmap;

/// Owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Free,
    Busy,
    Claimed,
    /// Mapped this number of times.
    Mapped(u32),
}

/// Blocks of a file: block of the volume, and whether it was written.
type Map = BTreeMap<u64, (u64, bool)>;

/// A file on disk.
#[derive(Clone, Debug, Default)]
pub struct OnDisk {
    pub map: Map,
    pub size: u64,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, OnDisk>,
    owners: Vec<Owner>,
    reserved: u64,
    /// The files as of every transaction since the last force: a power cut may leave any of these.
    history: Vec<BTreeMap<u64, OnDisk>>,
}

/// State shared by all parts of the volume.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    fuses: [Fuse; OPS.len()],
    medium: MemoryDevice,
    block_log: u32,
    /// Reserved rmap changes.
    rmap: AtomicU64,
    /// Number of device writes.
    writes: AtomicU64,
    /// Their offsets.
    offsets: Mutex<Vec<u64>>,
    /// Whether each state that a power cut may leave is checked.
    judged: AtomicBool,
    /// Writes that touch these bytes of the device fail.
    bad: Mutex<std::ops::Range<u64>>,
    hooks: Hooks,
    /// Writes that were noted.
    noted: AtomicU64,
    /// Threads that have written data and not noted it yet.
    untold: Mutex<HashSet<ThreadId>>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Volume {
    shared: Arc<Shared>,
    /// Longest claim in blocks.
    longest_claim: u64,
    keeps_history: bool,
}

/// Returns the byte that is written at an offset of a file if power cuts are checked. Files with even numbers are only
/// appended to, and so have no holes.
pub fn pattern(ino: u64, at: u64) -> u8 {
    (base::random::mix(ino << 40 | at) % 255) as u8 + 1
}

fn failure() -> Error {
    Error::Refused { errno: errno::EIO, why: "a test makes it fail" }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn untold(&self) -> MutexGuard<'_, HashSet<ThreadId>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strike(&self, op: Op) -> Result<(), Error> {
        let fuse = &self.fuses[op as usize];
        fuse.calls.fetch_add(1, SeqCst);
        if fuse.left.fetch_sub(1, SeqCst) <= 0 && fuse.failing.fetch_sub(1, SeqCst) > 0 {
            return Err(failure());
        }
        Ok(())
    }

    /// Returns the contents of a file on disk.
    fn contents(&self, file: &OnDisk) -> Vec<u8> {
        let block = 1usize << self.block_log;
        let mut bytes = vec![0; file.size as usize];
        for (n, piece) in bytes.chunks_mut(block).enumerate() {
            if let Some((place, true)) = file.map.get(&(n as u64)) {
                self.medium.read_at(place << self.block_log, piece).unwrap();
            }
        }
        bytes
    }

    /// Checks every state that a power cut may leave now: see [`pattern`].
    fn judge(&self) {
        let cuts: Vec<_> = {
            let state = self.lock();
            state.history.iter().cloned().chain([state.files.clone()]).collect()
        };
        for (ino, file) in cuts.iter().flatten() {
            for (at, byte) in self.contents(file).into_iter().enumerate() {
                let right = byte == pattern(*ino, at as u64);
                let appended = ino % 2 == 0;
                assert!(
                    right || byte == 0 && !appended,
                    "file {ino} of {} bytes shows {byte} at {at}",
                    file.size
                );
            }
        }
    }
}

impl Volume {
    /// Returns the device, which checks each write.
    pub fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.shared) as Arc<dyn Device>
    }

    /// Returns a volume with this number of blocks of `1 << block_log` bytes.
    pub fn new(block_log: u32, blocks: u64) -> Self {
        let fuse =
            || Fuse { left: AtomicI64::new(i64::MAX), failing: AtomicI64::new(0), calls: AtomicU64::new(0) };
        // The first block is never free, as on every volume.
        let mut owners = vec![Owner::Free; blocks as usize];
        owners[0] = Owner::Busy;
        let state = State { owners, ..State::default() };
        let shared = Shared {
            state: Mutex::new(state),
            fuses: std::array::from_fn(|_| fuse()),
            medium: MemoryDevice::new(blocks << block_log),
            block_log,
            rmap: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            offsets: Mutex::default(),
            judged: AtomicBool::new(false),
            bad: Mutex::new(0..0),
            hooks: Hooks::default(),
            noted: AtomicU64::new(0),
            untold: Mutex::default(),
        };
        Self { shared: Arc::new(shared), longest_claim: u64::MAX, keeps_history: false }
    }

    /// Limits the length of claims.
    pub fn with_longest_claim(self, longest_claim: u64) -> Self {
        Self { longest_claim, ..self }
    }

    /// Checks what a power cut would leave at each write and each transaction: files contain only their [`pattern`].
    pub fn judged(self) -> Self {
        self.shared.judged.store(true, SeqCst);
        Self { keeps_history: true, ..self }
    }

    /// Makes `times` calls fail after `after` more calls.
    pub fn fail(&self, op: Op, after: i64, times: i64) {
        let fuse = &self.shared.fuses[op as usize];
        fuse.failing.store(times, SeqCst);
        fuse.left.store(after, SeqCst);
    }

    /// Makes writes fail that touch these bytes of the device.
    pub fn fail_within(&self, offset: u64, length: u64) {
        *self.shared.bad.lock().unwrap_or_else(PoisonError::into_inner) = offset..offset + length;
    }

    /// Hooks at chosen moments.
    pub fn hooks(&self) -> &Hooks {
        &self.shared.hooks
    }

    /// Ends all failures.
    pub fn heal(&self) {
        self.fail_within(0, 0);
        OPS.iter().for_each(|op| self.fail(*op, i64::MAX, 0));
    }

    /// Returns the number of calls of a kind.
    pub fn calls(&self, op: Op) -> u64 {
        self.shared.fuses[op as usize].calls.load(SeqCst)
    }

    /// Returns the number of device writes.
    pub fn writes(&self) -> u64 {
        self.shared.writes.load(SeqCst)
    }

    /// Returns the offsets of the device writes since the last call, in the order of the writes.
    pub fn take_offsets(&self) -> Vec<u64> {
        std::mem::take(&mut *self.shared.offsets.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file on disk.
    pub fn on_disk(&self, ino: u64) -> OnDisk {
        self.shared.lock().files.get(&ino).cloned().unwrap_or_default()
    }

    /// Returns the contents of a file on disk.
    pub fn contents(&self, file: &OnDisk) -> Vec<u8> {
        self.shared.contents(file)
    }

    /// Forces the log: freed blocks can be used again.
    pub fn force(&self) {
        let mut state = self.shared.lock();
        state.history.clear();
        state
            .owners
            .iter_mut()
            .skip(1)
            .filter(|owner| **owner == Owner::Busy)
            .for_each(|owner| *owner = Owner::Free);
    }

    /// Checks that nothing is reserved or claimed, and that the owners of blocks match the maps.
    pub fn check_quiet(&self) {
        assert!(self.shared.untold().is_empty(), "a write was not noted");
        let state = self.shared.lock();
        assert_eq!(state.reserved, 0, "blocks stay reserved");
        assert_eq!(self.shared.rmap.load(SeqCst), 0, "rmap changes stay reserved");
        let mut counts = vec![0; state.owners.len()];
        state
            .files
            .values()
            .flat_map(|file| file.map.values())
            .for_each(|(place, _)| counts[*place as usize] += 1);
        for (block, owner) in state.owners.iter().enumerate() {
            match owner {
                Owner::Mapped(count) => assert_eq!(*count, counts[block], "owners of block {block}"),
                Owner::Claimed => panic!("block {block} stays claimed"),
                Owner::Free | Owner::Busy => {
                    assert_eq!(counts[block], 0, "block {block} is mapped and {owner:?}")
                }
            }
        }
    }

    fn look_up(&self, file: u64, at: u64, count: u64) -> Result<Mapping, Error> {
        self.shared.strike(Op::Map)?;
        base::lock::might_lock(base::lock::Rank::Inode);
        let state = self.shared.lock();
        let none = Map::new();
        let map = state.files.get(&file).map_or(&none, |file| &file.map);
        let Some((place, written)) = map.get(&at).copied() else {
            let next = map.range(at..).next().map_or(at + count, |(next, _)| *next);
            let count = (next - at).min(count);
            let (offset, state) = (FileBlock(at), MappingState::Hole);
            return Ok(Mapping { offset, count, state, start: FsBlock(0), shared: false });
        };
        let is_shared = |place: u64| matches!(state.owners[place as usize], Owner::Mapped(2..));
        let alike = |n: &u64| {
            map.get(&(at + n)).is_some_and(|(next, as_written)| {
                *next == place + n && *as_written == written && is_shared(*next) == is_shared(place)
            })
        };
        let count = (1..count).take_while(alike).count() as u64 + 1;
        let state = if written { MappingState::Written } else { MappingState::Unwritten };
        let (offset, start) = (FileBlock(at), FsBlock(place));
        Ok(Mapping { offset, count, state, start, shared: is_shared(place) })
    }

    /// Changes the map of a file as one transaction.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let is_told = !self.shared.untold().contains(&thread::current().id());
        assert!(is_told, "a transaction may become stable before data that was written before it");
        let mut state = self.shared.lock();
        if self.keeps_history {
            let now = state.files.clone();
            state.history.push(now);
            // The latest are enough: the work at each write must not grow.
            let surplus = state.history.len().saturating_sub(6);
            state.history.drain(..surplus);
        }
        let result = change(&mut state);
        drop(state);
        if self.keeps_history {
            self.shared.judge();
        }
        result
    }

    /// Unmaps blocks of a file.
    pub fn punch(&self, ino: u64, from: u64, to: u64) {
        self.change(|state| state.unmap(ino, from, to));
    }

    /// Maps unwritten blocks where a file has a hole.
    pub fn allocate(&self, ino: u64, from: u64, to: u64) -> bool {
        self.change(|state| {
            for block in from..to {
                if state.files.entry(ino).or_default().map.contains_key(&block) {
                    continue;
                }
                let free = state.owners.iter().filter(|owner| **owner == Owner::Free).count() as u64;
                let place = state.owners.iter().position(|owner| *owner == Owner::Free);
                let Some(place) = place.filter(|_| free > state.reserved) else { return false };
                state.owners[place] = Owner::Mapped(1);
                state.files.entry(ino).or_default().map.insert(block, (place as u64, false));
            }
            true
        })
    }

    /// Lets the second file share blocks of the first at the same offsets.
    pub fn share(&self, from_ino: u64, to_ino: u64, from: u64, to: u64) {
        self.punch(to_ino, from, to);
        self.change(|state| {
            let source: Vec<_> = state
                .files
                .entry(from_ino)
                .or_default()
                .map
                .range(from..to)
                .collect::<Vec<_>>()
                .into_iter()
                .map(|(block, place)| (*block, *place))
                .collect();
            for (block, (place, written)) in source.into_iter().filter(|(_, (_, written))| *written) {
                let Owner::Mapped(count) = &mut state.owners[place as usize] else { panic!("not mapped") };
                *count += 1;
                state.files.entry(to_ino).or_default().map.insert(block, (place, written));
            }
        });
    }
}

impl State {
    fn unmap(&mut self, ino: u64, from: u64, to: u64) {
        let file = self.files.entry(ino).or_default();
        let blocks: Vec<u64> = file.map.range(from..to.max(from)).map(|(block, _)| *block).collect();
        let places: Vec<_> = blocks.iter().filter_map(|block| file.map.remove(block)).collect();
        places.into_iter().for_each(|(place, _)| self.free(place));
    }

    fn free(&mut self, place: u64) {
        let owner = &mut self.owners[place as usize];
        *owner = match *owner {
            Owner::Mapped(1) => Owner::Busy,
            Owner::Mapped(count) => Owner::Mapped(count - 1),
            other => panic!("block {place} is unmapped, and was {other:?}"),
        };
    }

    fn usable(&self) -> u64 {
        let usable = |owner: &&Owner| matches!(owner, Owner::Free | Owner::Busy | Owner::Claimed);
        self.owners.iter().skip(1).filter(usable).count() as u64
    }
}

impl Backing for Volume {
    type File = u64;
    type Claim = TestClaim;
    type RmapReservations = TestRmap;

    fn block_log(&self) -> u32 {
        self.shared.block_log
    }

    fn note_unlogged_write(&self) -> u64 {
        self.shared.untold().remove(&thread::current().id());
        self.shared.noted.fetch_add(1, SeqCst) + 1
    }

    fn unlogged_writes(&self) -> u64 {
        self.shared.noted.load(SeqCst)
    }

    fn device_offset(&self, block: FsBlock) -> u64 {
        block.get() << self.shared.block_log
    }

    fn ino(&self, file: &u64) -> Ino {
        Ino(*file)
    }

    fn group(&self, file: &u64) -> u64 {
        self.shared.hooks.begun.run();
        self.shared.hooks.each_begun.run();
        file >> 20
    }

    fn groups(&self) -> u64 {
        8
    }

    fn group_of_block(&self, _: FsBlock) -> u64 {
        0
    }

    fn size(&self, file: &u64) -> Result<u64, Error> {
        Ok(self.on_disk(*file).size)
    }

    fn map(&self, file: &u64, offset: FileBlock, count: u64) -> Result<Mapping, Error> {
        let found = self.look_up(*file, offset.get(), count)?;
        self.shared.hooks.mapped.run();
        Ok(found)
    }

    fn reserve(&self, blocks: u64) -> Result<(), Error> {
        let no_space = Error::NoSpace { what: "a test" };
        self.shared.hooks.reserve.run();
        self.shared.strike(Op::Reserve).map_err(|_| no_space.clone())?;
        let mut state = self.shared.lock();
        if state.usable() < state.reserved + blocks {
            return Err(no_space);
        }
        state.reserved += blocks;
        Ok(())
    }

    fn unreserve(&self, blocks: u64) {
        let mut state = self.shared.lock();
        assert!(state.reserved >= blocks, "{blocks} of {} are released", state.reserved);
        state.reserved -= blocks;
    }

    fn reserve_rmap_for_write(&self, _: &Mapping, writes: u64) -> Result<TestRmap, Error> {
        base::lock::might_lock(base::lock::Rank::Agf(0));
        self.shared.strike(Op::ReserveRmap).map_err(|_| Error::NoSpace { what: "a test" })?;
        Ok(TestRmap::new(&self.shared, writes))
    }

    fn extents(&self, _: &u64, _: u64) -> Result<u64, Error> {
        Ok(0)
    }

    fn tree_blocks(&self, _: Option<u64>, records: u64) -> u64 {
        if records == 0 { 0 } else { 2 + records / 8 }
    }

    fn claim(&self, _file: &u64, near: Option<FsBlock>, max: u64) -> Result<TestClaim, Error> {
        self.shared.strike(Op::Claim)?;
        base::lock::might_lock(base::lock::Rank::Agf(0));
        assert!(max > 0);
        for forced in [false, true] {
            if forced {
                self.force();
            }
            let mut state = self.shared.lock();
            let total = state.owners.len();
            let near = near.map_or(1, |near| near.get() as usize);
            let start = (near..total).chain(1..near.min(total)).find(|at| state.owners[*at] == Owner::Free);
            let Some(start) = start else { continue };
            let max = max.min(self.longest_claim) as usize;
            let count =
                state.owners[start..].iter().take(max).take_while(|owner| **owner == Owner::Free).count();
            state.owners[start..start + count].fill(Owner::Claimed);
            let claimed = state.owners.iter().filter(|owner| **owner == Owner::Claimed).count() as u64;
            let reserved = state.reserved;
            assert!(claimed <= reserved, "{claimed} blocks are claimed, and {reserved} reserved");
            let shared = Arc::clone(&self.shared);
            return Ok(TestClaim { shared, start: start as u64, count: count as u64 });
        }
        panic!("nothing is free, though {} blocks are reserved", self.shared.lock().reserved);
    }

    fn finish(&self, files: &mut [WriteCompletion<'_, Self>]) -> Result<(), Error> {
        base::lock::might_lock(base::lock::Rank::Inode);
        self.shared.hooks.finish.run();
        if let Err(error) = self.shared.strike(Op::Finish) {
            files.iter_mut().for_each(|finish| finish.written.clear());
            // Some volumes release what was reserved themselves.
            if self.longest_claim % 2 == 1 {
                let taken: u64 = files.iter_mut().map(|finish| std::mem::take(&mut finish.reserved)).sum();
                self.unreserve(taken);
            }
            return Err(error);
        }
        for finish in files.iter_mut() {
            finish.refused = self.shared.strike(Op::FinishOne).err().map(Box::new);
        }
        self.change(|state| {
            for finish in files.iter_mut().filter(|finish| finish.refused.is_none()) {
                let mut end = None;
                for mut part in std::mem::take(&mut finish.written) {
                    // Contiguous ranges split the records there once.
                    let at = part.offset.get();
                    let goes_on = end.replace(at + part.count) == Some(at);
                    let Some(claim) = &mut part.claim else {
                        let file = state.files.entry(*finish.file).or_default();
                        finish.rmap.spend(u64::from(!goes_on));
                        for block in at..at + part.count {
                            file.map.get_mut(&block).expect("an unwritten block").1 = true;
                        }
                        continue;
                    };
                    assert_eq!(claim.count, part.count);
                    for n in 0..part.count {
                        let place = claim.start + n;
                        let owner = &mut state.owners[place as usize];
                        assert_eq!(*owner, Owner::Claimed, "block {place} becomes a file's");
                        *owner = Owner::Mapped(1);
                        let file = state.files.entry(*finish.file).or_default();
                        if let Some((old, _)) = file.map.insert(at + n, (place, true)) {
                            finish.rmap.spend(u64::from(n == 0 && !goes_on));
                            state.free(old);
                        }
                    }
                    claim.count = 0;
                    assert!(finish.reserved >= part.count, "mapped blocks were not reserved");
                    finish.reserved -= part.count;
                    state.reserved -= part.count;
                }
                let file = state.files.entry(*finish.file).or_default();
                file.size = finish.size.unwrap_or(file.size);
            }
        });
        self.shared.hooks.finished.run();
        Ok(())
    }

    fn set_size(&self, file: &u64, size: u64, shrinks: bool) -> Result<(), Error> {
        self.shared.strike(Op::SetSize)?;
        let first = size.div_ceil(1 << self.shared.block_log);
        self.change(|state| {
            if shrinks {
                state.unmap(*file, first, u64::MAX);
            }
            state.files.entry(*file).or_default().size = size;
        });
        Ok(())
    }

    fn free_written_beyond(&self, file: &u64, size: u64) -> Result<(), Error> {
        self.shared.strike(Op::SetSize)?;
        let first = size.div_ceil(1 << self.shared.block_log);
        self.change(|state| {
            let map = &state.files.entry(*file).or_default().map;
            let written = map.range(first..).filter(|(_, (_, written))| *written);
            let written: Vec<u64> = written.map(|(block, _)| *block).collect();
            written.into_iter().for_each(|block| state.unmap(*file, block, block + 1));
        });
        Ok(())
    }
}

impl<B: Backing> Contents<B> {
    /// Writes back a range, and waits.
    pub fn flush(&self, range: Range<u64>) -> Result<(), Error> {
        self.flush_range(range.start, range.end)
    }

    /// Writes back a range and drops it from memory.
    pub fn invalidate(&self, range: Range<u64>) -> Result<(), Error> {
        self.flush(range.clone())?;
        self.drop_range(range.start, range.end, false);
        Ok(())
    }
}

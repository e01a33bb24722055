//! A small volume in memory for tests of this crate: 1 KiB blocks, inodes of 512 bytes, two AGs, an allocator that is
//! a bitmap. The AGs have headers, but no btrees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::lock::{Locks, Mutex, Rank};
use base::memory::Share;
use base::random::Random;
use base::time::{FixedClock, Time};
use base::{AgIno, AgNumber, Daddr, FsBlock, Ino};
use block::{Device, Durability, MemoryDevice};
use error::{Error, Result};
use format::agi::RawAgi;
use format::checksum;
use format::extent::Extent;
use format::features::incompat;
use format::ondisk::{U16, U32, U64};
use format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock, Superblock};
use journal::engine::NoJournal;
use journal::engine::{BufferCache, DiskExtent, LogReservation, Transaction};
use zerocopy::{FromZeros, IntoBytes};

use crate::extents::ExtentLimits;
use crate::inode::{InodeRef, LockedInode};
use crate::inode_cache::{InodeCache, inode_bytes};
use crate::new_inode::NewInode;
use crate::shared::Shared;
use crate::space::{
    BlockRequest, BlockRun, ChunkInodes, ForkOwner, FreedInodes, GroupOperations, SpaceAllocator,
};
use crate::state::InodeState;

const UUID: [u8; 16] = *b"xebec-ino-tests!";
const AG_BLOCKS: u32 = 4096;
/// The first inode, in AG block 32 of both AGs.
pub(crate) const FIRST_INO: u32 = 64;
const INODES: u32 = 256;
/// The log: 512 KiB at the end of AG 0.
const LOG_START: u32 = 3500;
const LOG_BLOCKS: u32 = 512;
/// The blocks of the allocator in each AG.
const SPACE: std::ops::Range<u32> = 200..LOG_START;
/// More than any test logs.
pub(crate) const PLENTY: LogReservation = LogReservation { bytes: 1 << 20, transactions: 2 };

pub(crate) fn superblock(features: u32) -> [u8; 512] {
    let mut raw = RawSuperblock::new_zeroed();
    raw.magicnum = U32::new(MAGIC);
    (raw.blocksize, raw.blocklog) = (U32::new(1024), 10);
    raw.dblocks = U64::new((2 * AG_BLOCKS).into());
    (raw.agblocks, raw.agblklog, raw.agcount) = (U32::new(AG_BLOCKS), 12, U32::new(2));
    (raw.logstart, raw.logblocks) = (U64::new(LOG_START.into()), U32::new(LOG_BLOCKS));
    raw.rootino = U64::new(FIRST_INO.into());
    raw.versionnum = U16::new(0xb4a5);
    (raw.sectsize, raw.sectlog) = (U16::new(512), 9);
    (raw.inodesize, raw.inodelog) = (U16::new(512), 9);
    (raw.inopblock, raw.inopblog) = (U16::new(2), 1);
    (raw.uuid, raw.inoalignmt) = (UUID, U32::new(16));
    (raw.features2, raw.logsunit) = (U32::new(0x18a), U32::new(1));
    raw.features_incompat = U32::new(incompat::FTYPE | features);
    raw.dirblklog = 2;
    let mut sector = [0; 512];
    sector[..size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
    checksum::store(&mut sector, CRC_OFFSET);
    sector
}

#[derive(Debug, Default)]
struct Ledger {
    /// Blocks in use, with their owners.
    used: BTreeMap<u64, ForkOwner>,
    /// Mapped blocks.
    mapped: BTreeSet<u64>,
    free_inodes: BTreeSet<u64>,
    removes_chunks: bool,
    /// Number of blocks that can still be allocated.
    allowance: Option<u64>,
}

/// An allocator with a bitmap.
#[derive(Debug)]
pub(crate) struct TestGroups(Mutex<Ledger>);

impl TestGroups {
    pub fn used(&self) -> usize {
        self.0.lock().used.len()
    }

    pub fn mapped(&self) -> usize {
        self.0.lock().mapped.len()
    }

    pub fn allow(&self, blocks: Option<u64>) {
        self.0.lock().allowance = blocks;
    }

    pub fn remove_chunks(&self) {
        self.0.lock().removes_chunks = true;
    }

    pub fn is_free(&self, ino: Ino) -> bool {
        self.0.lock().free_inodes.contains(&ino.get())
    }

    pub fn take_inode(&self) -> Ino {
        Ino(self.0.lock().free_inodes.pop_first().unwrap())
    }

    pub fn take_that_inode(&self, ino: Ino) -> Ino {
        assert!(self.0.lock().free_inodes.remove(&ino.get()));
        ino
    }
}

struct TestSpace<'a>(&'a TestGroups);

impl SpaceAllocator for TestSpace<'_> {
    fn allocate(&mut self, _: &mut Transaction, owner: ForkOwner, want: BlockRequest) -> Result<BlockRun> {
        let mut ledger = self.0.0.lock();
        if let Some(left) = &mut ledger.allowance {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => return Err(Error::NoSpace { what: "a test" }),
            }
        }
        let near = want.near.map_or(0, FsBlock::get);
        let all = || (0..2u64).flat_map(|ag| SPACE.map(move |block| ag << 12 | u64::from(block)));
        let after = all().filter(|at| *at >= near);
        let fits = |at: &u64| (0..u64::from(want.min)).all(|n| !ledger.used.contains_key(&(at + n)));
        let start = after.chain(all()).find(fits).ok_or(Error::NoSpace { what: "a test" })?;
        let most =
            (0..want.max).take_while(|n| !ledger.used.contains_key(&(start + u64::from(*n)))).count() as u64;
        let last = (start >> 12 << 12) + u64::from(SPACE.end);
        let count = most.min(last - start);
        ledger.used.extend((start..start + count).map(|at| (at, owner)));
        Ok(BlockRun { start: FsBlock(start), count: count as u32 })
    }

    fn mapped(&mut self, _: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<()> {
        let mut ledger = self.0.0.lock();
        for at in (extent.start.get()..).take(extent.count as usize) {
            // Blocks that were unmapped from another fork still have that owner.
            let before = ledger.used.insert(at, owner);
            if before.is_none_or(|before| before.tree) || !ledger.mapped.insert(at) {
                // A recovered intent may be wrong.
                return Err(Error::Refused { errno: base::errno::EFSCORRUPTED, why: "not mapped to be" });
            }
        }
        Ok(())
    }

    fn marked(&mut self, _: &mut Transaction, _: ForkOwner, extent: &Extent) -> Result<()> {
        let ledger = self.0.0.lock();
        assert!((extent.start.get()..).take(extent.count as usize).all(|at| ledger.mapped.contains(&at)));
        Ok(())
    }

    fn unmapped(&mut self, _: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<()> {
        let mut ledger = self.0.0.lock();
        for at in (extent.start.get()..).take(extent.count as usize) {
            assert_eq!(ledger.used.get(&at).map(|used| (used.fork, used.tree)), Some((owner.fork, false)));
            assert!(ledger.mapped.remove(&at));
        }
        Ok(())
    }

    fn promise(&mut self, blocks: u32) -> u32 {
        blocks
    }

    fn release(
        &mut self,
        _: &mut Transaction,
        owner: ForkOwner,
        extent: &Extent,
        shared: bool,
    ) -> Result<()> {
        assert!(!shared);
        let mut ledger = self.0.0.lock();
        for at in (extent.start.get()..).take(extent.count as usize) {
            assert_eq!(ledger.used.remove(&at), Some(owner));
            assert!(ledger.mapped.remove(&at));
        }
        Ok(())
    }

    fn take_claimed(&mut self, _: &mut Transaction) -> Result<()> {
        Ok(())
    }

    fn free_tree_block(&mut self, _: &mut Transaction, owner: ForkOwner, block: FsBlock) -> Result<()> {
        assert!(owner.tree);
        assert_eq!(self.0.0.lock().used.remove(&block.get()), Some(owner));
        Ok(())
    }
}

impl GroupOperations for TestGroups {
    fn space(&self, _: u32) -> Result<Box<dyn SpaceAllocator + '_>> {
        Ok(Box::new(TestSpace(self)))
    }

    fn promised(&self, _: u32) -> Box<dyn SpaceAllocator + '_> {
        Box::new(TestSpace(self))
    }

    fn free_inodes(&self, tx: &mut Transaction, inos: &[Ino]) -> Result<FreedInodes> {
        let mut ledger = self.0.lock();
        let ino = inos[0];
        let first = ino.get() & !63;
        let of_chunk = inos.iter().take_while(|ino| ino.get() & !63 == first);
        let count = of_chunk
            .inspect(|ino| assert!(ledger.free_inodes.insert(ino.get()), "{ino} is free already"))
            .count();
        if !ledger.removes_chunks || ledger.free_inodes.range(first..first + 64).count() < 64 {
            return Ok(FreedInodes { count, removed: None });
        }
        drop(ledger);
        let at = DiskExtent { daddr: Daddr(2 + (ino.get() >> 13) * u64::from(AG_BLOCKS) * 2), bytes: 512 };
        tx.read(at, Rank::Agi((ino.get() >> 13) as u32), |_| Ok(()))?;
        // A cluster of 32 inodes takes 16 KiB.
        for ino in [first, first + 32] {
            let daddr = Daddr((ino & 0x1fff) + (ino >> 13) * u64::from(AG_BLOCKS) * 2);
            let id = tx.read(DiskExtent { daddr, bytes: 16 << 10 }, Rank::Buffer, |_| Ok(()))?;
            tx.invalidate(id);
        }
        let removed = ChunkInodes { first: Ino(first), present: u64::MAX };
        Ok(FreedInodes { count, removed: Some(removed) })
    }

    fn chunk_inodes(&self, _: &mut Transaction, ino: Ino) -> Result<Option<ChunkInodes>> {
        let first = ino.get() & !63;
        let ledger = self.0.lock();
        let gone = ledger.removes_chunks && ledger.free_inodes.range(first..first + 64).count() == 64;
        Ok((!gone).then_some(ChunkInodes { first: Ino(first), present: u64::MAX }))
    }
}

/// A volume with an inode cache. All inodes are free at first.
pub(crate) struct Fixture {
    pub device: Arc<MemoryDevice>,
    pub superblock: Superblock,
    pub unlogged: Arc<NoJournal>,
    pub groups: Arc<TestGroups>,
    pub cache: InodeCache,
    limits: ExtentLimits,
}

impl Fixture {
    /// A volume with the usual features.
    pub fn new() -> Self {
        Self::with_features(incompat::BIGTIME | incompat::NREXT64)
    }

    pub fn with_features(features: u32) -> Self {
        let device = Arc::new(MemoryDevice::new(u64::from(2 * AG_BLOCKS) << 10));
        let sector = superblock(features);
        device.write_at(0, &sector, Durability::Buffered).unwrap();
        let superblock = Superblock::parse(&sector).unwrap();
        let geometry = &superblock.geometry;
        let mut free_inodes = BTreeSet::new();
        for ag in geometry.ags() {
            let mut agi = RawAgi::new_zeroed();
            (agi.magicnum, agi.versionnum) = (U32::new(format::agi::MAGIC), U32::new(1));
            (agi.seqno, agi.length) = (U32::new(ag.get()), U32::new(AG_BLOCKS));
            (agi.count, agi.root, agi.level) = (U32::new(INODES), U32::new(5), U32::new(1));
            (agi.unlinked, agi.uuid) = ([U32::new(u32::MAX); 64], UUID);
            let mut sector = [0; 512];
            sector[..size_of::<RawAgi>()].copy_from_slice(agi.as_bytes());
            checksum::store(&mut sector, 312);
            let at = geometry.ag_header_daddr(ag, 2).get() * 512;
            device.write_at(at, &sector, Durability::Buffered).unwrap();
            for within in FIRST_INO..FIRST_INO + INODES {
                let ino = geometry.ino(ag, AgIno(within));
                free_inodes.insert(ino.get());
                let state = InodeState::blank(ino, geometry, 7);
                let slot = slot_of(&state);
                device.write_at(inode_offset(geometry, ino), &slot, Durability::Buffered).unwrap();
            }
        }
        let ledger = Ledger { free_inodes, ..Ledger::default() };
        let groups = Arc::new(TestGroups(Mutex::new(Rank::Leaf, ledger)));
        let limits = ExtentLimits::USUAL;
        let (unlogged, cache) = open(&superblock, &device, &groups, limits);
        Self { device, superblock, unlogged, groups, cache, limits }
    }

    /// Opens the volume again with other limits for the extents of a fork that are in memory.
    pub fn limited(self, limits: ExtentLimits) -> Self {
        let (unlogged, cache) = open(&self.superblock, &self.device, &self.groups, limits);
        Self { unlogged, cache, limits, ..self }
    }

    pub fn shared(&self) -> &Arc<Shared> {
        self.cache.shared()
    }

    pub fn begin(&self) -> Transaction {
        self.shared().begin(PLENTY).unwrap()
    }

    pub fn space(&self) -> impl SpaceAllocator + '_ {
        TestSpace(&self.groups)
    }

    /// Creates an inode and commits it.
    pub fn create(&self, mode: u16) -> (InodeRef, LockedInode) {
        self.create_as(self.groups.take_inode(), mode, 1)
    }

    pub fn create_as(&self, ino: Ino, mode: u16, nlink: u32) -> (InodeRef, LockedInode) {
        let tx = self.begin();
        let new = NewInode { mode, uid: 10, gid: 20, nlink, device: 0, parent: None };
        let mut locked = self.cache.create(ino, &new).unwrap();
        let inode = locked.reference();
        tx.commit(&mut [&mut locked]).unwrap();
        (inode, locked)
    }

    /// Writes all committed changes back.
    pub fn write_back(&self) {
        for _ in 0..100 {
            if self.unlogged.write_back(&*self.device).unwrap() == 0 {
                return;
            }
            std::thread::yield_now();
        }
        panic!("items stay dirty");
    }

    /// Opens the volume again, with empty caches.
    pub fn reopen(&mut self) {
        self.write_back();
        (self.unlogged, self.cache) = open(&self.superblock, &self.device, &self.groups, self.limits);
    }

    pub fn slot(&self, ino: Ino) -> Vec<u8> {
        let mut slot = vec![0; 512];
        self.device.read_at(inode_offset(&self.superblock.geometry, ino), &mut slot).unwrap();
        slot
    }

    pub fn agi(&self, ag: u32) -> RawAgi {
        let mut sector = [0; 512];
        let at = self.superblock.geometry.ag_header_daddr(AgNumber(ag), 2).get() * 512;
        self.device.read_at(at, &mut sector).unwrap();
        *RawAgi::verify(&sector, &self.superblock.geometry, AgNumber(ag)).unwrap()
    }
}

/// Offset of an inode on the device.
pub(crate) fn inode_offset(geometry: &format::Geometry, ino: Ino) -> u64 {
    let place = crate::cluster::locate(geometry, ino).unwrap();
    place.cluster.daddr.get() * 512 + u64::from(place.offset)
}

/// The bytes of an inode with a valid checksum.
pub(crate) fn slot_of(state: &InodeState) -> Vec<u8> {
    let (core, literal) = state.parts();
    let mut slot = [core.as_bytes(), literal].concat();
    checksum::store(&mut slot, format::inode::CRC_OFFSET);
    slot
}

fn open(
    superblock: &Superblock,
    device: &Arc<MemoryDevice>,
    groups: &Arc<TestGroups>,
    limits: ExtentLimits,
) -> (Arc<NoJournal>, InodeCache) {
    let buffers = BufferCache::new(device.clone(), Share::alone(4 << 20));
    let unlogged = Arc::new(NoJournal::new(None));
    let clock = Arc::new(FixedClock(Time { seconds: 1_700_000_000, nanos: 5 }));
    let memory = Share::alone((1 << 20) * inode_bytes(&superblock.geometry));
    let mut shared = Shared::new(
        superblock.geometry.clone(),
        unlogged.clone(),
        buffers,
        groups.clone(),
        clock,
        Random::seeded(1),
    )
    .with_cache(Locks::default(), memory);
    shared.extent_limits = limits;
    (unlogged, InodeCache::new(Arc::new(shared)))
}

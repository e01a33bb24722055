//! A test volume: formatted by `mkfs` in memory, changed by transactions that are written back when the test calls for
//! it, and checked by `check`.
//!
//! The inodes that the test allocates have no names. In the copy that is checked they are put on the unlinked lists,
//! where inodes without names belong.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use base::memory::Share;
use base::{AgIno, AgNumber, FsBlock, Ino};
use block::{Device, Durability, MemoryDevice};
use error::Result;
use format::Geometry;
use format::agi::{NULL_AG_INO, RawAgi, UNLINKED_BUCKETS};
use format::btree::InoBt;
use format::inode::{CRC_OFFSET, RawInode};
use format::metadata_header::HeaderLayout;
use format::ondisk::{U16, U32, U64};
use format::superblock::RawSuperblock;
use journal::engine::NoJournal;
use journal::engine::{BufferCache, CommitTarget, LogReservation, Transaction, TransactionContext};
use zerocopy::FromBytes;

use crate::inodes::search::ChunkCursor;
use crate::inodes::tree::InodeBtreeCursor;
use crate::inodes::{ChunkRecord, FreedInodes, InodeAllocRequest, InodeOptions};
use crate::{AgLogCosts, AllocRequest, AllocTarget, BlockReservation, ExtentOwner, Groups};

/// A test volume.
pub struct Fixture {
    pub device: Arc<MemoryDevice>,
    pub target: Arc<NoJournal>,
    pub cache: Arc<BufferCache>,
    pub groups: Arc<Groups>,
    /// Inodes that the test has allocated and not freed.
    pub used: BTreeSet<Ino>,
    /// Inodes that `mkfs` created.
    pub first: BTreeSet<Ino>,
    options: InodeOptions,
}

/// Collects the checker's findings.
#[derive(Default)]
struct Findings(Mutex<Vec<String>>);

impl check::Observer for Findings {
    fn finding(&self, finding: &check::Finding) {
        self.0.lock().unwrap().push(finding.to_string());
    }
}

impl Fixture {
    /// A volume of `size` bytes, used by one CPU, all of which may hold inodes.
    pub fn new(size: u64, options: &mkfs::Options) -> Self {
        Self::with(size, options, InodeOptions { cpus: 1, ..InodeOptions::default() })
    }

    pub fn with(size: u64, options: &mkfs::Options, inodes: InodeOptions) -> Self {
        let device = Arc::new(MemoryDevice::new(size));
        let geometry = mkfs::format(&*device, options).unwrap();
        Self::open(device, geometry, inodes)
    }

    /// Opens a volume as after a mount.
    pub fn open(device: Arc<MemoryDevice>, geometry: Geometry, options: InodeOptions) -> Self {
        let cache = BufferCache::new(device.clone(), Share::alone(256 << 20));
        let nowhere: Arc<dyn CommitTarget> = Arc::new(NoJournal::new(None));
        let mut reader = Transaction::reader(&TransactionContext::new(&nowhere, &cache));
        let groups = Arc::new(Groups::open(&mut reader, &geometry, &options).unwrap());
        drop(reader);
        let target = Arc::new(NoJournal::new(Some(groups.clone())));
        let mut fixture =
            Self { device, target, cache, groups, used: BTreeSet::new(), first: BTreeSet::new(), options };
        fixture.first = fixture.in_use();
        fixture
    }

    /// Unmounts and mounts again: no in-core state is left.
    pub fn reopen(&mut self) {
        self.write_back();
        let geometry = self.geometry().clone();
        let again = Self::open(self.device.clone(), geometry, self.options.clone());
        let kept = std::mem::take(&mut self.used);
        *self = Self { first: &again.first - &kept, used: kept, ..again };
    }

    /// A transaction that may log as much as creating an inode.
    pub fn begin(&self) -> Transaction {
        let reservation =
            LogReservation { bytes: AgLogCosts::derive(self.geometry()).largest(), transactions: 3 };
        let target: Arc<dyn CommitTarget> = self.target.clone();
        Transaction::begin(&TransactionContext::new(&target, &self.cache), reservation).unwrap()
    }

    pub fn geometry(&self) -> &Geometry {
        self.groups.geometry()
    }

    /// Allocates an inode in a transaction of its own; returns the number of buffers it touched.
    pub fn alloc_counting(&mut self, parent: Ino) -> Result<(Ino, usize)> {
        let mut blocks = self.groups.reserve_blocks(self.groups.blocks_for_inode())?;
        let mut tx = self.begin();
        let wanted = InodeAllocRequest { parent, is_dir: false, blocks: 0 };
        let ino = self.groups.alloc_inode(&mut tx, &mut blocks, wanted)?;
        let touched = tx.buffers();
        tx.commit(&mut [])?;
        self.used.insert(ino);
        Ok((ino, touched))
    }

    /// Allocates blocks of the volume, at most `count` of them in one extent.
    pub fn take_blocks_near(&self, target: AllocTarget, count: u32) -> Option<(FsBlock, u32)> {
        let mut blocks = self.groups.reserve_blocks(count).or_else(|_| self.groups.reserve_blocks(1)).ok()?;
        let mut tx = self.begin();
        let owner = ExtentOwner::Mapped;
        let request = AllocRequest { target, min: 1, max: blocks.left(), align: 1, owner, data: false };
        let found = self.groups.alloc_extent(&mut tx, &mut blocks, &request).ok();
        tx.commit(&mut []).unwrap();
        found
    }

    /// Allocates a run of `count` blocks, if there is one.
    pub fn take_run_of(&self, count: u32) -> Option<(FsBlock, u32)> {
        let mut blocks = self.groups.reserve_blocks(count).ok()?;
        let mut tx = self.begin();
        let (near, owner) = (AllocTarget::Ag(AgNumber(0)), ExtentOwner::Mapped);
        let request = AllocRequest { target: near, min: count, max: count, align: 1, owner, data: false };
        let found = self.groups.alloc_extent(&mut tx, &mut blocks, &request).ok();
        tx.commit(&mut []).unwrap();
        found
    }

    /// Allocates blocks of an AG.
    pub fn take_blocks_in(&self, ag: AgNumber, count: u32) -> Option<(FsBlock, u32)> {
        self.take_blocks_near(AllocTarget::OnlyAg(ag), count)
    }

    /// Allocates all free blocks.
    pub fn take_all(&self) -> Vec<(FsBlock, u32)> {
        std::iter::from_fn(|| self.take_blocks_near(AllocTarget::Ag(AgNumber(0)), 1024)).collect()
    }

    /// Frees blocks that were allocated.
    pub fn give_blocks(&self, (start, count): (FsBlock, u32)) {
        let mut tx = self.begin();
        self.groups.free_extent_later(&mut tx, start, count, ExtentOwner::Mapped).unwrap();
        tx.commit(&mut []).unwrap();
    }

    /// Allocates all inodes that are free now.
    pub fn drain_free_inodes(&mut self) {
        let root = self.geometry().root;
        for _ in 0..self.groups.inodes().counts().free {
            self.alloc(root, false).unwrap();
        }
    }

    /// Reserves blocks for an inode. If there are fewer, the inode can still come from an existing chunk.
    fn reserve(&self) -> BlockReservation<'_> {
        let blocks = self.groups.reserve_blocks(self.groups.blocks_for_inode());
        blocks.or_else(|_| self.groups.reserve_blocks(0)).unwrap()
    }

    /// Allocates an inode in a transaction of its own.
    pub fn alloc(&mut self, parent: Ino, is_dir: bool) -> Result<Ino> {
        let ino = self.alloc_shared(parent, is_dir)?;
        assert!(self.used.insert(ino), "inode {ino} was in use");
        Ok(ino)
    }

    /// Does the same without recording the inode in the test.
    pub fn alloc_shared(&self, parent: Ino, is_dir: bool) -> Result<Ino> {
        let mut blocks = self.reserve();
        let mut tx = self.begin();
        let wanted = InodeAllocRequest { parent, is_dir, blocks: 0 };
        let ino = self.groups.alloc_inode(&mut tx, &mut blocks, wanted)?;
        tx.commit(&mut [])?;
        Ok(ino)
    }

    /// Frees an inode in a transaction of its own.
    pub fn free(&mut self, ino: Ino) -> FreedInodes {
        assert!(self.used.remove(&ino), "inode {ino} was not in use");
        self.free_shared(ino).unwrap()
    }

    /// Does the same without recording the inode in the test.
    pub fn free_shared(&self, ino: Ino) -> Result<FreedInodes> {
        let mut tx = self.begin();
        let freed = self.groups.free_inodes(&mut tx, &[ino])?;
        tx.commit(&mut [])?;
        Ok(freed)
    }

    /// All chunks of the volume, from the inode trees.
    pub fn chunks(&self) -> Vec<(AgNumber, ChunkRecord)> {
        let mut found = Vec::new();
        for ag in self.geometry().ags() {
            let mut tx = self.begin();
            let agi = self.groups.lock_agi(&mut tx, ag).unwrap();
            let mut chunks = InodeBtreeCursor::<InoBt>::new(&self.groups, agi);
            assert!(chunks.le(&mut tx, AgIno(0)).unwrap().is_none());
            found.extend(std::iter::from_fn(|| chunks.next(&mut tx).unwrap()).map(|chunk| (ag, chunk)));
        }
        found
    }

    /// Inodes in use, from the inode trees.
    pub fn in_use(&self) -> BTreeSet<Ino> {
        let of = |(ag, chunk): (AgNumber, ChunkRecord)| {
            let used = chunk.present_mask() & !chunk.free;
            let bits = (0..64).filter(move |n| used & 1 << n != 0);
            bits.map(move |n| (ag, AgIno(chunk.start.get() + n))).collect::<Vec<_>>()
        };
        self.chunks().into_iter().flat_map(of).map(|(ag, ino)| self.geometry().ino(ag, ino)).collect()
    }

    /// Writes all metadata back and runs the checker on the whole volume.
    pub fn check(&self) {
        let found = self.findings();
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Does the same for a volume with blocks that the test has allocated without an owner.
    pub fn check_without_owners(&self) {
        let mut found = self.findings();
        found.retain(|finding| !finding.contains("expected an owner, or free space"));
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Ignores stale buffers of blocks that were freed and reused.
    fn write_back(&self) {
        self.target.write_back(&*self.device).unwrap();
    }

    fn findings(&self) -> Vec<String> {
        self.write_back();
        let copy = MemoryDevice::new(self.device.size());
        let mut bytes = vec![0; 1 << 20];
        for at in (0..self.device.size()).step_by(bytes.len()) {
            self.device.read_at(at, &mut bytes).unwrap();
            if bytes.iter().any(|byte| *byte != 0) {
                copy.write_at(at, &bytes, Durability::Buffered).unwrap();
            }
        }
        self.settle(&copy);
        let findings = Findings::default();
        check::check(&copy, &check::Options { threads: 1, ..Default::default() }, &findings).unwrap();
        let mut found = findings.0.into_inner().unwrap();
        // The test has put them there.
        found.retain(|finding| !finding.contains("unlinked list: members"));
        found
    }

    /// Completes the device's metadata: counters, and unlinked lists for the inodes in use.
    fn settle(&self, copy: &MemoryDevice) {
        let counts = self.groups.inodes().counts();
        let free = self.groups.free_blocks();
        patch(copy, 0, 512, |bytes| {
            let (raw, _) = RawSuperblock::mut_from_prefix(bytes).unwrap();
            raw.icount = U64::new(counts.allocated);
            raw.ifree = U64::new(counts.free);
            raw.fdblocks = U64::new(free);
        });
        for ag in self.geometry().ags() {
            let mut heads = [NULL_AG_INO; UNLINKED_BUCKETS];
            for ino in &self.used {
                let (of, within) = self.geometry().split_ino(*ino).unwrap();
                if of == ag {
                    let head = &mut heads[within.get() as usize % UNLINKED_BUCKETS];
                    self.fill(copy, *ino, std::mem::replace(head, within.get()));
                }
            }
            let at = self.geometry().ag_header_daddr(ag, 2).get() * 512;
            patch(copy, at, self.geometry().sector_size as usize, |bytes| {
                let (raw, _) = RawAgi::mut_from_prefix(bytes).unwrap();
                raw.unlinked = heads.map(U32::new);
            });
        }
    }

    /// Turns a free inode into a file without links.
    fn fill(&self, copy: &MemoryDevice, ino: Ino, next: u32) {
        let geometry = self.geometry();
        let (ag, within) = geometry.split_ino(ino).unwrap();
        let block = geometry.ag_block_offset(ag, geometry.ag_ino_block(within));
        let at = block + geometry.ino_offset_in_block(within) as u64;
        let mut slot = vec![0; geometry.inode_size as usize];
        copy.read_at(at, &mut slot).unwrap();
        let found = format::inode::Dinode::verify(&slot, geometry, ino).unwrap();
        assert!(found.is_free(), "inode {ino}");
        let (raw, _) = RawInode::mut_from_prefix(&mut slot).unwrap();
        (raw.mode, raw.format, raw.aformat) = (U16::new(0o100_600), 2, 2);
        raw.next_unlinked = U32::new(next);
        assert!(format::checksum::store(&mut slot, CRC_OFFSET));
        copy.write_at(at, &slot, Durability::Buffered).unwrap();
    }
}

/// Changes a block that has a checksum.
fn patch(device: &MemoryDevice, at: u64, len: usize, change: impl FnOnce(&mut [u8])) {
    let mut bytes = vec![0; len];
    device.read_at(at, &mut bytes).unwrap();
    let stamp = HeaderLayout::of(&bytes).unwrap();
    let lsn = stamp.lsn(&bytes).unwrap_or_default();
    change(&mut bytes);
    assert!(stamp.seal(&mut bytes, lsn));
    device.write_at(at, &bytes, Durability::Buffered).unwrap();
}

//! A volume under test: made by `mkfs` in memory, changed by transactions that are written home when the test says so,
//! judged by `check`.
//!
//! Inodes that the test allocates have no names. On the copy that is judged they are put on the lists of unlinked
//! inodes, where inodes without names belong.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use base::{AgIno, AgNumber, FsBlock, Ino};
use block::{Device, Durability, MemoryDevice};
use format::Geometry;
use format::agi::{NULL_AG_INO, RawAgi, UNLINKED_BUCKETS};
use format::inode::{CRC_OFFSET, RawInode};
use format::metadata_header::HeaderLayout;
use format::ondisk::{U16, U32, U64};
use format::superblock::RawSuperblock;
use journal::engine::NoJournal;
use journal::engine::{BufferCache, CommitTarget, Error, LogReservation, Transaction};
use zerocopy::FromBytes;

use crate::inodes::{ChunkRecord, FreedInodes, InodeAllocRequest, InodeOptions};
use crate::{AgLogCosts, AllocRequest, AllocTarget, BlockReservation, ExtentOwner, Groups};

/// A volume under test.
pub struct Bed {
    pub device: Arc<MemoryDevice>,
    pub target: Arc<NoJournal>,
    pub cache: Arc<BufferCache>,
    pub groups: Arc<Groups>,
    /// Inodes that the test has allocated and not freed.
    pub used: BTreeSet<Ino>,
    /// Inodes that `mkfs` made.
    pub first: BTreeSet<Ino>,
    options: InodeOptions,
}

/// What the checker finds.
#[derive(Default)]
struct Findings(Mutex<Vec<String>>);

impl check::Observer for Findings {
    fn finding(&self, finding: &check::Finding) {
        self.0.lock().unwrap().push(finding.to_string());
    }
}

impl Bed {
    /// A volume of `size` bytes, of which one CPU makes use and all may hold inodes.
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
        let cache = Arc::new(BufferCache::new(device.clone(), 256 << 20));
        let nowhere: Arc<dyn CommitTarget> = Arc::new(NoJournal::new(None));
        let mut reader = Transaction::reader(&nowhere, &cache);
        let groups = Arc::new(Groups::open_with(&mut reader, &geometry, &options).unwrap());
        drop(reader);
        let target = Arc::new(NoJournal::new(Some(groups.clone())));
        let mut bed =
            Self { device, target, cache, groups, used: BTreeSet::new(), first: BTreeSet::new(), options };
        bed.first = bed.in_use();
        bed
    }

    /// Unmounts and mounts again: nothing in memory stays.
    pub fn reopen(&mut self) {
        self.write_home();
        let geometry = self.geometry().clone();
        let again = Self::open(self.device.clone(), geometry, self.options.clone());
        let kept = std::mem::take(&mut self.used);
        *self = Self { first: &again.first - &kept, used: kept, ..again };
    }

    /// A transaction that may log as much as creating an inode may.
    pub fn begin(&self) -> Transaction {
        let reservation =
            LogReservation { bytes: AgLogCosts::derive(self.geometry()).largest(), transactions: 3 };
        let target: Arc<dyn CommitTarget> = self.target.clone();
        Transaction::begin(&target, &self.cache, reservation).unwrap()
    }

    pub fn geometry(&self) -> &Geometry {
        self.groups.geometry()
    }

    /// Allocates an inode in a transaction of its own, and counts the buffers that it touched.
    pub fn alloc_counting(&mut self, parent: Ino) -> Result<(Ino, usize), Error> {
        let mut blocks = self.groups.reserve_blocks(self.groups.blocks_for_inode())?;
        let mut tx = self.begin();
        let wanted = InodeAllocRequest { parent, is_dir: false, blocks: 0 };
        let ino = self.groups.alloc_inode(&mut tx, &mut blocks, wanted)?;
        let touched = tx.buffers();
        tx.commit(&mut [])?;
        self.used.insert(ino);
        Ok((ino, touched))
    }

    /// Takes blocks away from the volume, at most `count` of them in one extent.
    pub fn take_blocks_near(&self, target: AllocTarget, count: u32) -> Option<(FsBlock, u32)> {
        let mut blocks = self.groups.reserve_blocks(count).or_else(|_| self.groups.reserve_blocks(1)).ok()?;
        let mut tx = self.begin();
        let owner = ExtentOwner::Mapped;
        let request = AllocRequest { target, min: 1, max: blocks.left(), align: 1, owner, data: false };
        let found = self.groups.alloc_extent(&mut tx, &mut blocks, &request).ok();
        tx.commit(&mut []).unwrap();
        found
    }

    /// Takes a run of that many blocks away, if there is one.
    pub fn take_run_of(&self, count: u32) -> Option<(FsBlock, u32)> {
        let mut blocks = self.groups.reserve_blocks(count).ok()?;
        let mut tx = self.begin();
        let (near, owner) = (AllocTarget::Ag(AgNumber(0)), ExtentOwner::Mapped);
        let request = AllocRequest { target: near, min: count, max: count, align: 1, owner, data: false };
        let found = self.groups.alloc_extent(&mut tx, &mut blocks, &request).ok();
        tx.commit(&mut []).unwrap();
        found
    }

    /// Takes blocks away from an AG.
    pub fn take_blocks_in(&self, ag: AgNumber, count: u32) -> Option<(FsBlock, u32)> {
        self.take_blocks_near(AllocTarget::OnlyAg(ag), count)
    }

    /// Takes all free blocks away.
    pub fn take_all(&self) -> Vec<(FsBlock, u32)> {
        std::iter::from_fn(|| self.take_blocks_near(AllocTarget::Ag(AgNumber(0)), 1024)).collect()
    }

    /// Gives blocks back that were taken.
    pub fn give_blocks(&self, (start, count): (FsBlock, u32)) {
        let mut tx = self.begin();
        self.groups.free_extent_later(&mut tx, start, count, ExtentOwner::Mapped).unwrap();
        tx.commit(&mut []).unwrap();
    }

    /// Uses up the inodes that are free now.
    pub fn drain_free_inodes(&mut self) {
        let root = self.geometry().root;
        for _ in 0..self.groups.inodes().counts().free {
            self.alloc(root, false).unwrap();
        }
    }

    /// Blocks for an inode; where there are not so many, it can still come from a chunk that has one.
    fn reserve(&self) -> BlockReservation<'_> {
        let blocks = self.groups.reserve_blocks(self.groups.blocks_for_inode());
        blocks.or_else(|_| self.groups.reserve_blocks(0)).unwrap()
    }

    /// Allocates an inode in a transaction of its own.
    pub fn alloc(&mut self, parent: Ino, is_dir: bool) -> Result<Ino, Error> {
        let ino = self.alloc_shared(parent, is_dir)?;
        assert!(self.used.insert(ino), "inode {ino} was in use");
        Ok(ino)
    }

    /// The same, without noting it.
    pub fn alloc_shared(&self, parent: Ino, is_dir: bool) -> Result<Ino, Error> {
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

    /// The same, without noting it.
    pub fn free_shared(&self, ino: Ino) -> Result<FreedInodes, Error> {
        let mut tx = self.begin();
        let freed = self.groups.free_inodes(&mut tx, &[ino])?;
        tx.commit(&mut [])?;
        Ok(freed)
    }

    /// Every chunk of the volume, as the inode trees have them.
    pub fn chunks(&self) -> Vec<(AgNumber, ChunkRecord)> {
        let mut found = Vec::new();
        for ag in self.geometry().ags() {
            let (mut tx, mut from) = (self.begin(), Some(AgIno(0)));
            while let Some(start) = from {
                let chunk = self.groups.chunk_from(&mut tx, ag, start).unwrap();
                found.extend(chunk.map(|chunk| (ag, chunk)));
                from = chunk.and_then(|chunk| chunk.start.checked_add(1));
            }
        }
        found
    }

    /// Inodes in use, as the trees have them.
    pub fn in_use(&self) -> BTreeSet<Ino> {
        let of = |(ag, chunk): (AgNumber, ChunkRecord)| {
            let used = chunk.present() & !chunk.free;
            let bits = (0..64).filter(move |n| used & 1 << n != 0);
            bits.map(move |n| (ag, AgIno(chunk.start.get() + n))).collect::<Vec<_>>()
        };
        self.chunks().into_iter().flat_map(of).map(|(ag, ino)| self.geometry().ino(ag, ino)).collect()
    }

    /// Writes everything home, and asks the checker about the whole volume.
    pub fn judge(&self) {
        let found = self.findings();
        assert!(found.is_empty(), "{found:#?}");
    }

    /// The same for a volume from which the test took blocks, which nobody owns.
    pub fn judge_without_owners(&self) {
        let mut found = self.findings();
        found.retain(|finding| !finding.contains("blocks free or owned"));
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Buffers of blocks that were freed and used again stay behind: others stand for them now.
    fn write_home(&self) {
        self.target.write_back(&*self.device).unwrap();
    }

    fn findings(&self) -> Vec<String> {
        self.write_home();
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
        // That is where the test put them.
        found.retain(|finding| !finding.contains("unlinked list: members"));
        found
    }

    /// Makes a volume of what lies on the device: counters, and names for the inodes in use.
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

    /// Makes a file of a free inode, without links.
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

/// Changes a block that has a stamp.
fn patch(device: &MemoryDevice, at: u64, len: usize, change: impl FnOnce(&mut [u8])) {
    let mut bytes = vec![0; len];
    device.read_at(at, &mut bytes).unwrap();
    let stamp = HeaderLayout::of(&bytes).unwrap();
    let lsn = stamp.lsn(&bytes).unwrap_or_default();
    change(&mut bytes);
    assert!(stamp.seal(&mut bytes, lsn));
    device.write_at(at, &bytes, Durability::Buffered).unwrap();
}

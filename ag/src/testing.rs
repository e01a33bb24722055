//! Shared by the tests of this crate: volumes made by `mkfs.xfs`, in memory, with transactions that need no journal.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use base::lock::{Mutex, Rank};
use base::memory::Share;
use base::{AgBlock, AgNumber, FsBlock, Ino};
use block::{Device, Durability, MemoryDevice};
use check::{Finding, Observer, Options};
use error::{Error, Result};
use format::btree::{BnoBt, CntBt};
use format::superblock::Superblock;
use format::{Geometry, checksum};
use journal::engine::BusyExtentHook;
use journal::engine::NoJournal;
use journal::engine::{
    BufferCache, BusyExtent, CommitTarget, LogReservation, Transaction, TransactionContext,
};

use crate::ExtentOwner;
use crate::group::{Groups, LockedAg, agf};
use crate::inodes::InodeOptions;

/// Reports freed blocks as stable at once, or when the test calls [`release`](Self::release).
#[derive(Debug)]
pub struct LateHook {
    groups: OnceLock<Arc<Groups>>,
    pub late: AtomicBool,
    waiting: Mutex<Vec<BusyExtent>>,
}

impl LateHook {
    /// Reports everything that was freed so far as stable.
    pub fn release(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        self.groups.get().unwrap().clear_busy(&waiting);
    }
}

impl BusyExtentHook for LateHook {
    fn clear_busy(&self, extents: &[BusyExtent]) {
        self.waiting.lock().extend_from_slice(extents);
        if !self.late.load(Relaxed) {
            self.release();
        }
    }
}

/// A volume made by `mkfs.xfs`.
pub struct Volume {
    pub device: Arc<MemoryDevice>,
    pub geometry: Geometry,
    pub groups: Arc<Groups>,
    pub hook: Arc<LateHook>,
    pub unlogged: Arc<NoJournal>,
    target: Arc<dyn CommitTarget>,
    cache: Arc<BufferCache>,
}

/// Log space of one transaction. A deferred batch frees four extents.
pub const LOG_BYTES: u32 = 256 << 10;

impl Volume {
    /// Runs `mkfs.xfs`; `None` if it is not installed: the test is skipped.
    pub fn make(megabytes: u64, options: &str) -> Option<Self> {
        let mut mkfs = needs::met(needs::newest("mkfs.xfs"))?;
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        // With these, mkfs.xfs accepts sizes below its minimum.
        mkfs.envs([("TEST_DIR", "x"), ("TEST_DEV", "x"), ("QA_CHECK_FS", "x")]);
        let done = mkfs.arg("-q").args(options.split_whitespace()).arg(&image).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Some(Self::open(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap())))
    }

    /// Opens the volume on a device.
    pub fn open(device: MemoryDevice) -> Self {
        Self::try_open(device).unwrap()
    }

    /// Opens the volume on a device, which may be damaged.
    pub fn try_open(device: MemoryDevice) -> Result<Self> {
        let device = Arc::new(device);
        let mut sector = [0; 4096];
        device.read_at(0, &mut sector).unwrap();
        let geometry = Superblock::parse(&sector).unwrap().geometry;
        let cache = BufferCache::new(device.clone(), Share::alone(1 << 30));
        let hook = Arc::new(LateHook {
            groups: OnceLock::new(),
            late: AtomicBool::new(false),
            waiting: Mutex::new(Rank::Leaf, Vec::new()),
        });
        let unlogged = Arc::new(NoJournal::new(Some(hook.clone())));
        let target: Arc<dyn CommitTarget> = unlogged.clone();
        let reservation = LogReservation { bytes: LOG_BYTES, transactions: 1 };
        let mut tx = Transaction::begin(&TransactionContext::new(&target, &cache), reservation).unwrap();
        let groups = Arc::new(Groups::open(&mut tx, &geometry, &InodeOptions::default())?);
        hook.groups.set(groups.clone()).unwrap();
        Ok(Self { device, geometry, groups, hook, unlogged, target, cache })
    }

    pub fn begin(&self) -> Transaction {
        self.try_begin().unwrap()
    }

    /// Begins a transaction, unless the volume was shut down.
    pub fn try_begin(&self) -> Result<Transaction> {
        let reservation = LogReservation { bytes: LOG_BYTES, transactions: 1 };
        Transaction::begin(&TransactionContext::new(&self.target, &self.cache), reservation)
    }

    /// Runs `change` in a transaction of its own, which is committed even if there was no space.
    pub fn run<R>(&self, change: impl FnOnce(&mut Transaction) -> Result<R>) -> Result<R> {
        let mut tx = self.begin();
        let done = change(&mut tx);
        assert!(matches!(done, Ok(_) | Err(Error::NoSpace { .. })), "{}", done.err().unwrap());
        tx.commit(&mut []).unwrap();
        done
    }

    /// The free extents of an AG, which must be equal in both trees.
    pub fn free_extents(&self, ag: AgNumber) -> BTreeSet<(u32, u32)> {
        let mut tx = self.begin();
        let locked = self.groups.get(ag).unwrap().lock(&mut tx).unwrap();
        let mut bno = locked.cursor::<BnoBt>();
        let (mut by_block, mut by_size) = (BTreeSet::new(), BTreeSet::new());
        let mut next = bno.first(&mut tx).unwrap();
        while let Some(free) = next {
            by_block.insert((free.startblock.get(), free.blockcount.get()));
            next = bno.next(&mut tx).unwrap();
        }
        let mut cnt = locked.cursor::<CntBt>();
        let mut next = cnt.first(&mut tx).unwrap();
        while let Some(free) = next {
            by_size.insert((free.startblock.get(), free.blockcount.get()));
            next = cnt.next(&mut tx).unwrap();
        }
        assert_eq!(by_block, by_size);
        by_block
    }

    /// A field of an AGF.
    pub fn agf(&self, ag: AgNumber, field: usize) -> u32 {
        let mut tx = self.begin();
        let locked: LockedAg<'_> = self.groups.get(ag).unwrap().lock(&mut tx).unwrap();
        locked.get(&tx, field)
    }

    /// Writes all metadata back, with the superblock's counters.
    pub fn write_back(&self) {
        // Only intents are left: they wait for their done items and have no place on disk.
        self.unlogged.write_back(&*self.device).unwrap();
        let mut sector = vec![0; self.geometry.sector_size as usize];
        self.device.read_at(0, &mut sector).unwrap();
        let at = std::mem::offset_of!(format::superblock::RawSuperblock, fdblocks);
        sector[at..at + 8].copy_from_slice(&self.groups.free_blocks().to_be_bytes());
        assert!(checksum::store(&mut sector, format::superblock::CRC_OFFSET));
        self.device.write_at(0, &sector, Durability::Buffered).unwrap();
    }

    /// Runs the checker, which must find nothing but the extents that the test holds.
    pub fn check(&self, held: &[(FsBlock, u32)]) {
        self.write_back();
        let listener = Listener { findings: std::sync::Mutex::default() };
        check::check(&*self.device, &Options { threads: 1, ..Options::default() }, &listener).unwrap();
        let held = held.iter().flat_map(|(start, count)| {
            let (ag, at) = self.geometry.split_fs_block(*start).unwrap();
            (at.get()..at.get() + count).map(move |block| (Some(ag), Some(AgBlock(block))))
        });
        let held: BTreeSet<_> = held.collect();
        let mut findings = listener.findings.into_inner().unwrap();
        findings.retain(|finding| !held.contains(&(finding.place.ag, finding.place.block)));
        assert!(findings.is_empty(), "{}", findings.iter().map(|f| format!("{f}\n")).collect::<String>());
    }

    /// Runs `xfs_repair -n`, which must find nothing. Skipped if it is not installed.
    pub fn repair(&self) {
        self.write_back();
        let Some(mut repair) = needs::met(needs::newest("xfs_repair")) else { return };
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let mut bytes = vec![0; self.device.size() as usize];
        self.device.read_at(0, &mut bytes).unwrap();
        std::fs::write(&image, bytes).unwrap();
        let done = repair.args(["-n", "-o", "force_geometry"]).arg(&image).output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
    }

    /// All blocks that are free, in AGFLs or in free-space trees, and those that the test holds.
    pub fn total(&self, held: &[(FsBlock, u32)]) -> u64 {
        let fields = [agf!(freeblks), agf!(flcount), agf!(btreeblks)];
        let ags = self.geometry.ags().flat_map(|ag| fields.map(|field| u64::from(self.agf(ag, field))));
        let free: u64 = ags.sum();
        assert_eq!(free, self.groups.free_blocks());
        free + held.iter().map(|(_, count)| u64::from(*count)).sum::<u64>()
    }
}

struct Listener {
    findings: std::sync::Mutex<Vec<Finding>>,
}

impl Observer for Listener {
    fn finding(&self, finding: &Finding) {
        self.findings.lock().unwrap().push(finding.clone());
    }
}

/// Owner of the extents that tests allocate, by which the checker recognizes them.
pub const OWNER: ExtentOwner = ExtentOwner::BmapBlock { ino: Ino(12345), attr: false };

/// Pseudorandom numbers, the same in each run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(limit.max(1))) as u32
    }
}

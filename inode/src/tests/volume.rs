//! Files on complete volumes made by `mkfs`, with real allocation groups, verified by the checker. The files are
//! unlinked: they are on the unlinked lists.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ag::{AgLogCosts, Groups, InodeAllocRequest, InodeOptions};
use base::memory::Share;
use base::random::Random;
use base::time::SystemClock;
use base::{FileBlock, Ino, errno, percpu};
use block::{Device, Durability, MemoryDevice};
use format::Geometry;
use format::inode::ForkKind;
use format::metadata_header::HeaderLayout;
use format::ondisk::U64;
use format::superblock::RawSuperblock;
use journal::engine::BusyExtentHook;
use journal::engine::NoJournal;
use journal::engine::{
    BufferCache, BusyExtent, CommitTarget, LogReservation, Loggable, Transaction, TransactionContext,
};
use zerocopy::FromBytes;

use crate::fork::Fork;
use crate::group_space::GroupSpace;
use crate::inactive::{self, BACKLOG_MAX, Workers};
use crate::inode::InodeRef;
use crate::{InodeCache, NewInode, Shared, symlink, unlinked};

pub(crate) struct Volume {
    pub device: Arc<MemoryDevice>,
    pub target: Arc<NoJournal>,
    pub groups: Arc<Groups>,
    /// Competing writers.
    pub others: Arc<Others>,
    pub cache: InodeCache,
}

/// Writers that reserve all blocks as soon as they become free, while `take` is set.
#[derive(Debug)]
pub(crate) struct Others {
    groups: Arc<Groups>,
    take: AtomicBool,
}

impl Others {
    /// Runs `work` while they reserve all free blocks.
    pub fn take_all<R>(&self, work: impl FnOnce() -> R) -> R {
        self.take.store(true, SeqCst);
        let before = self.groups.available();
        self.take();
        let done = work();
        self.take.store(false, SeqCst);
        drop(self.groups.attach_blocks(u32::try_from(before).unwrap()));
        done
    }

    fn take(&self) {
        while let most @ 1.. = self.groups.available() as u32
            && let Ok(mut reserved) = self.groups.reserve_blocks(most)
        {
            reserved.detach(most);
        }
    }
}

impl BusyExtentHook for Others {
    fn clear_busy(&self, extents: &[BusyExtent]) {
        self.groups.clear_busy(extents);
        if self.take.load(SeqCst) {
            self.take();
        }
    }
}

#[derive(Default)]
struct Findings(Mutex<Vec<String>>);

impl check::Observer for Findings {
    fn finding(&self, finding: &check::Finding) {
        self.0.lock().unwrap().push(finding.to_string());
    }
}

impl Volume {
    pub fn new(options: &mkfs::Options) -> Self {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let geometry = mkfs::format(&*device, options).unwrap();
        Self::open(device, geometry)
    }

    fn open(device: Arc<MemoryDevice>, geometry: Geometry) -> Self {
        Self::open_on(device.clone(), device, geometry)
    }

    /// Like it, with reads through another device.
    pub fn open_on(reads: Arc<dyn Device>, device: Arc<MemoryDevice>, geometry: Geometry) -> Self {
        let cache = BufferCache::new(reads, Share::alone(64 << 20));
        let nowhere: Arc<dyn CommitTarget> = Arc::new(NoJournal::new(None));
        let mut reader = Transaction::reader(&TransactionContext::new(&nowhere, &cache));
        let groups = Groups::open(&mut reader, &geometry, &InodeOptions::default()).unwrap();
        drop(reader);
        let groups = Arc::new(groups);
        let others = Arc::new(Others { groups: groups.clone(), take: AtomicBool::new(false) });
        let target = Arc::new(NoJournal::new(Some(others.clone())));
        let (clock, random) = (Arc::new(SystemClock), Random::seeded(3));
        let shared = Shared::new(geometry, target.clone(), cache, groups.clone(), clock, random);
        Self { device, target, groups, others, cache: InodeCache::new(Arc::new(shared)) }
    }

    pub fn reopened(self) -> Self {
        self.target.write_back(&*self.device).unwrap();
        let geometry = self.groups.geometry().clone();
        Self::open(self.device.clone(), geometry)
    }

    pub fn shared(&self) -> &Arc<Shared> {
        self.cache.shared()
    }

    pub fn begin(&self) -> Transaction {
        let bytes = AgLogCosts::derive(self.groups.geometry()).largest() + (128 << 10);
        self.shared().begin(LogReservation { bytes, transactions: 3 }).unwrap()
    }

    /// Creates an unlinked file.
    pub fn create(&self, mode: u16) -> InodeRef {
        let mut blocks = self.groups.reserve_blocks(self.groups.blocks_for_inode()).unwrap();
        let mut tx = self.begin();
        let parent = self.groups.geometry().root;
        let wanted = InodeAllocRequest { parent, is_dir: false, blocks: 0 };
        let ino = self.groups.alloc_inode(&mut tx, &mut blocks, wanted).unwrap();
        let new = NewInode { mode, uid: 1, gid: 2, nlink: 0, device: 5, parent: None };
        let mut locked = self.cache.create(ino, &new).unwrap();
        let inode = locked.reference();
        unlinked::insert(self.shared(), &mut tx, &mut locked).unwrap();
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
        inode
    }

    /// Maps `count` single blocks, with holes between them.
    fn scatter(&self, inode: &InodeRef, count: u64) {
        let mut locked = inode.lock();
        for n in 0..count {
            let mut blocks = self.groups.reserve_blocks(10).unwrap();
            let mut space = GroupSpace::for_data(&self.groups, &mut blocks);
            let mut tx = self.begin();
            let mut fork = Fork::open(self.shared(), &mut locked, ForkKind::Data).unwrap();
            fork.allocate(&mut tx, &mut space, FileBlock(n * 7 % count * 2), 1..=1, n % 5 == 0).unwrap();
            let size = count * 2 * u64::from(self.groups.geometry().block_size);
            locked.set_size(size);
            tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
        }
    }

    fn link(&self, inode: &InodeRef, target: &[u8]) {
        let mut locked = inode.lock();
        let mut blocks = self.groups.reserve_blocks(10).unwrap();
        let mut space = GroupSpace::for_metadata(&self.groups, &mut blocks);
        let mut tx = self.begin();
        symlink::write(self.shared(), &mut tx, &mut space, &mut locked, target).unwrap();
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
    }

    /// Writes all metadata back, and runs the checker.
    pub fn check(&self) {
        // Without a journal, intents get no done items.
        self.target.write_back(&*self.device).unwrap();
        let counts = self.groups.inodes().counts();
        let mut sector = vec![0; 512];
        self.device.read_at(0, &mut sector).unwrap();
        let (raw, _) = RawSuperblock::mut_from_prefix(&mut sector).unwrap();
        (raw.icount, raw.ifree) = (U64::new(counts.allocated), U64::new(counts.free));
        raw.fdblocks = U64::new(self.groups.free_blocks());
        let stamp = HeaderLayout::of(&sector).unwrap();
        let lsn = stamp.lsn(&sector).unwrap_or_default();
        assert!(stamp.seal(&mut sector, lsn));
        self.device.write_at(0, &sector, Durability::Buffered).unwrap();
        let findings = Findings::default();
        let options = check::Options { threads: 1, ..Default::default() };
        check::check(&*self.device, &options, &findings).unwrap();
        let mut found = findings.0.into_inner().unwrap();
        found.retain(|finding| !finding.contains("unlinked list: members"));
        assert!(found.is_empty(), "{found:#?}");
    }
}

pub(crate) fn options(block_size: u32, change: impl FnOnce(&mut mkfs::Options)) -> mkfs::Options {
    let mut options = mkfs::Options { block_size, ag_count: Some(2), ..mkfs::Options::default() };
    change(&mut options);
    options
}

fn volumes() -> Vec<mkfs::Options> {
    vec![
        options(1024, |_| {}),
        options(4096, |_| {}),
        options(1024, |options| (options.rmapbt, options.reflink) = (false, false)),
        options(4096, |options| {
            (options.bigtime, options.nrext64, options.finobt, options.inobtcount) =
                (false, false, false, false);
        }),
        options(2048, |options| (options.inode_size, options.sparse) = (1024, false)),
    ]
}

#[test]
fn the_checker_agrees_with_files_of_every_form_and_with_their_end() {
    for options in volumes() {
        let volume = Volume::new(&options);
        let free = volume.groups.free_blocks();
        volume.check();
        let mut files = Vec::new();
        for (mode, extents) in [
            (0o100_600, 0),
            (0o100_600, 5),
            (0o100_600, 250),
            (0o100_600, 1500),
            (0o060_600, 0),
            (0o140_600, 0),
        ] {
            let inode = volume.create(mode);
            volume.scatter(&inode, extents);
            files.push(inode);
        }
        for length in [7, 1000] {
            let inode = volume.create(0o120_777);
            volume.link(&inode, &vec![b'x'; length]);
            files.push(inode);
        }
        // More than a chunk.
        files.extend((0..150).map(|_| volume.create(0o100_644)));
        volume.check();

        let inos: Vec<Ino> = files.iter().map(|file| file.ino()).collect();
        drop(files);
        let volume = volume.reopened();
        let workers = Workers::start(volume.shared(), false).unwrap();
        let loaded = unlinked::load(&volume.cache).unwrap();
        assert_eq!((loaded.inodes as usize, loaded.damaged.len()), (inos.len(), 0));
        crate::inactive::drain(volume.shared());
        assert_eq!(volume.shared().inactive.unfreed(), 0);
        drop(workers);
        volume.check();
        assert!(inos.iter().all(|ino| volume.cache.get(*ino).is_err()));
        // Only the blocks of an inode chunk and a few btree blocks stay in use.
        assert!(free - volume.groups.free_blocks() <= 64, "{free} and {}", volume.groups.free_blocks());
    }
}

/// A lookup of an inode whose chunk was removed reported damage if the blocks had been reused, and otherwise found the
/// old inode.
#[test]
fn a_number_whose_chunk_is_gone_leads_to_no_inode() {
    for used_again in [false, true] {
        let volume = Volume::new(&options(4096, |_| {}));
        let workers = Workers::start(volume.shared(), false).unwrap();
        let files: Vec<_> = (0..200).map(|_| volume.create(0o100_644)).collect();
        let inos: Vec<Ino> = files.iter().map(|file| file.ino()).collect();
        volume.target.write_back(&*volume.device).unwrap();
        drop(files);
        crate::inactive::drain(volume.shared());
        assert_eq!(volume.shared().inactive.unfreed(), 0);
        drop(workers);
        volume.target.write_back(&*volume.device).unwrap();
        volume.cache.shrink();
        assert!(volume.cache.is_empty());
        for ino in inos {
            if used_again {
                let place = crate::cluster::locate(volume.groups.geometry(), ino).unwrap();
                let at = place.cluster.daddr.get() * 512 + u64::from(place.offset);
                volume.device.write_at(at, &[0xda; 512], Durability::Buffered).unwrap();
            }
            let found = volume.cache.get(ino).map(|inode| inode.read().mode());
            assert_eq!(found.map_err(|error| error.errno()), Err(errno::ENOENT), "{ino}");
        }
    }
}

/// Threads that unlink files faster than the workers free them were not limited: the queues grew without bound, with
/// each queued file in memory.
#[test]
fn threads_that_unlink_files_bound_the_backlog() {
    let volume = Volume::new(&options(4096, |_| {}));
    // There is one queue per CPU, and this thread may migrate.
    percpu::override_current(Some(0));
    // No worker runs.
    for n in 0..BACKLOG_MAX + 1000 {
        inactive::throttle(volume.shared());
        drop(volume.create(0o100_644));
        assert!(volume.shared().unlinked.len() <= BACKLOG_MAX, "file {n}");
    }
    percpu::override_current(None);
    inactive::drain(volume.shared());
    assert!(volume.shared().unlinked.is_empty());
    volume.check();
}

//! From a device to an open volume.
//!
//! | step | |
//! |---|---|
//! | 1 | verify the superblock, and that this version can write the volume |
//! | 2 | recover a dirty log: write its changes to their blocks |
//! | 3 | start the journal, then the allocation groups and the inode cache |
//! | 4 | finish unfinished intents, free copy-on-write staging extents and unlinked inodes |
//!
//! A power cut may interrupt each step: the next open starts again.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ag::Groups;
use base::lock::{Mutex, Rank};
use base::percpu::CpuRefs;
use base::{AgNumber, Ino};
use block::{Device, OverlayDevice};
use cache::{Cache, Flusher};
use format::superblock::Superblock;
use format::{Damage, features};
use inode::InodeCache;
use inode::contents::VolumeBacking;
use inode::inactive::Workers;
use journal::engine::BusyExtentHook;
use journal::engine::{BusyExtent, CommitTarget, Transaction, TransactionContext};
use journal::engine::{Log, LogBounds};
use journal::recovery::Intent;
use journal::{Journal, RecoveryReport};

use crate::image::expect_replayable;
use crate::memory::Memory;
use crate::names::Names;
use crate::options::Options;
use crate::recover::UnfinishedIntent;
use crate::reservations::Reservations;
use crate::superblock::{read_superblock, update_copies};
use crate::{Error, Result, Volume, recover};

/// What recovery did when the volume was opened.
#[derive(Debug)]
pub struct Recovery {
    /// Log replay.
    pub report: RecoveryReport,
    /// Number of copy-on-write staging blocks that were freed.
    pub staging: u64,
    /// Number of unlinked inodes that were freed.
    pub unlinked: u64,
    /// Damaged unlinked lists: their inodes are lost until a repair.
    pub damaged: Vec<(AgNumber, Damage)>,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} items replayed, {} unfinished operations finished, {} removed files freed",
            self.report.items_total(),
            self.report.unfinished.len(),
            self.unlinked
        )
    }
}

/// Passes busy extents that the journal clears to the allocation groups, which are opened after it.
#[derive(Debug, Default)]
struct BusyExtentsHook(OnceLock<Arc<Groups>>);

impl BusyExtentHook for BusyExtentsHook {
    fn clear_busy(&self, extents: &[BusyExtent]) {
        if let Some(groups) = self.0.get() {
            groups.clear_busy(extents);
        }
    }
}

impl Volume {
    /// Opens the volume at the start of a device. Recovers it first if it was not cleanly unmounted.
    ///
    /// # Errors
    /// `EROFS` if the superblock or the device forbids writing; those of [`LogError`](journal::LogError) if the
    /// log cannot be replayed.
    pub fn open(device: Arc<dyn Device>, options: Options) -> Result<Self> {
        // Before the volume has threads: it takes longer then.
        base::rcu::is_asymmetric();
        let external = options.log_device.clone();
        let superblock = read_superblock(&*device)?;
        expect_writable(&superblock, &*device)?;
        let (superblock, report, bounds) = replay(superblock, &device, external.as_deref())?;
        update_copies(&*device, &superblock)?;
        let intents = report.as_ref().map_or(&[][..], |report| &report.unfinished);
        let bounds = bounds.keeping(recover::intent_lsns(intents));
        let (mut volume, unfinished) =
            Self::start(&superblock, (device, external), bounds, intents, &options)?;
        volume.finish_intents(unfinished)?;
        let staging = if report.is_some() { volume.free_staging()? } else { 0 };
        // A clean volume has none, unless it was unmounted without freeing them.
        let loaded = inode::unlinked::load(&volume.inode_cache)?;
        volume.recovered = report.map(|report| Recovery {
            report,
            staging,
            unlinked: loaded.inodes,
            damaged: loaded.damaged,
        });
        Ok(volume)
    }

    /// Opens a volume without writing to the device: changes are kept in memory and are lost with the volume.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in_memory(device: Arc<dyn Device>, options: Options) -> Result<Self> {
        Self::open(Arc::new(OverlayDevice::new(device)), options)
    }

    /// Starts a volume whose log was replayed. The records of these intents are kept in the log.
    pub(crate) fn start(
        superblock: &Superblock,
        (device, external): (Arc<dyn Device>, Option<Arc<dyn Device>>),
        bounds: LogBounds,
        intents: &[Intent],
        options: &Options,
    ) -> Result<(Self, Vec<UnfinishedIntent>)> {
        let hook = Arc::new(BusyExtentsHook::default());
        let hook_for_log = Some(hook.clone() as Arc<dyn BusyExtentHook>);
        let memory = Memory::of(options);
        let log_options = options.log(&memory);
        let log = Log::start(superblock, Arc::clone(&device), external, bounds, hook_for_log, &log_options)?;
        let unfinished = Self::adopt(&log, intents);
        Ok((Self::assemble(superblock, (log, device), &hook, memory, options)?, unfinished))
    }

    fn assemble(
        superblock: &Superblock,
        (log, device): (Arc<Log>, Arc<dyn Device>),
        hook: &BusyExtentsHook,
        memory: Memory,
        options: &Options,
    ) -> Result<Self> {
        let geometry = superblock.geometry.clone();
        let target: Arc<dyn CommitTarget> = log.clone();
        let buffers = Arc::clone(log.buffers());
        let mut reader = Transaction::reader(&TransactionContext::new(&target, &buffers));
        let groups = Arc::new(Groups::open(&mut reader, &geometry, &options.for_inodes(&superblock.raw))?);
        drop(reader);
        // It is set only here.
        let _ = hook.0.set(Arc::clone(&groups));
        let shared = inode::Shared::new(
            geometry.clone(),
            target,
            buffers,
            groups.clone(),
            Arc::clone(&options.clock),
            options.random(),
        )
        .with_cache(options.locks, Arc::clone(&memory.inodes));
        let inode_cache = InodeCache::new(Arc::new(shared));
        let geometry_version = geometry.features.version;
        let raw = &superblock.raw;
        let internal = [raw.rbmino, raw.rsumino, raw.uquotino, raw.gquotino, raw.pquotino, raw.metadirino];
        let backing = VolumeBacking::new(inode_cache.shared(), &groups);
        let cache = Cache::new(backing, device, Arc::clone(&memory.contents), options.for_contents());
        let flusher = options.background.then(|| Flusher::start(&cache)).transpose().map_err(|error| {
            Error::unwritable(format!("no thread can be started to write contents back: {error}"))
        })?;
        let workers = Workers::start(inode_cache.shared(), !options.background).map_err(|error| {
            Error::unwritable(format!("no thread can be started to free removed files: {error}"))
        })?;
        let names = Arc::new(Names::new(&geometry, &memory.inodes, options));
        let weak = Arc::downgrade(&names);
        inode_cache.shared().set_names(weak);
        Ok(Self {
            reservations: Reservations::of(&geometry, &groups),
            names,
            internal: internal.map(|ino| Ino(ino.get())).into(),
            geometry,
            inode_cache,
            groups,
            log,
            has_attributes: (geometry_version & format::features::version::ATTR != 0).into(),
            resize_lock: Mutex::new(Rank::Volume, ()),
            rename_lock: Mutex::new(Rank::Rename, ()),
            recovered: None,
            cache_references: CpuRefs::new(&cache),
            cache,
            flusher,
            workers,
            watches: Arc::default(),
            memory,
        })
    }
}

/// Refuses a read-only device and unknown read-only-compatible features, by name.
fn expect_writable(superblock: &Superblock, device: &dyn Device) -> Result<()> {
    let features = superblock.raw.features();
    let unknown = features.ro_compat & !features::RO_COMPAT_KNOWN;
    let why = if device.is_read_only() {
        "the device can only be read".to_owned()
    } else if unknown != 0 {
        let names = features::names(unknown, features::ro_compat::ALL);
        format!("the volume uses features that this version can only read: {names}")
    } else {
        return Ok(());
    };
    Err(Error::unwritable(format!("{}: {why}", device.describe())))
}

/// Recovers a dirty log in place. Returns the bounds of the log, which recovery does not change.
fn replay(
    superblock: Superblock,
    device: &Arc<dyn Device>,
    external: Option<&dyn Device>,
) -> Result<(Superblock, Option<RecoveryReport>, LogBounds)> {
    let journal = Journal::open(&superblock, &**device, external)?;
    let bounds = LogBounds::of(&journal);
    if journal.dirty().is_none() {
        return Ok((superblock, None, bounds));
    }
    expect_replayable(&superblock)?;
    let (registry, options) = (journal::ReplayRegistry::default(), journal::Options::default());
    let report = journal::recover(&journal, &superblock, &**device, &registry, &options)?;
    let superblock = if report.superblock_replayed { read_superblock(&**device)? } else { superblock };
    Ok((superblock, Some(report), bounds))
}

//! An open volume: sync, writeback, unmount.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ag::Groups;
use base::Ino;
use base::lock::Mutex;
use base::lock::Rank;
use base::percpu::CpuRefs;
use base::time::Time;
use cache::{Cache, Flusher};
use format::Geometry;
use format::agf::RawAgf;
use format::agi::RawAgi;
use format::ondisk::{OnDisk, U64};
use format::superblock::RawSuperblock;
use inode::InodeCache;
use inode::contents::VolumeBacking;
use inode::inactive::{self, Workers};
use journal::engine::Log;
use journal::engine::{BufferId, DiskExtent, Transaction};
use zerocopy::FromBytes;

use crate::memory::Memory;
use crate::names::Names;
use crate::open::Recovery;
use crate::reservations::Reservations;
use crate::superblock::lock_superblock;
use crate::watch::Watches;
use crate::{Error, Result};

/// An open volume, shared by reference between any number of threads.
///
/// [`unmount`](Self::unmount) closes it cleanly. Dropping it instead is like a power cut: what was synced is in the
/// log, and the next open recovers it.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{NewFile, Options, Volume};
///
/// let volume = Volume::open(device.clone(), Options::default())?;
/// let var = volume.create_dir_all(b"/srv/www", &NewFile::directory())?;
/// volume.create(var, b"index.html", &NewFile::regular())?;
/// volume.sync()?; // from here on it survives a power cut
/// drop(volume); // like a power cut
///
/// let volume = Volume::open(device, Options::default())?;
/// assert!(volume.recovered().is_some());
/// assert!(volume.resolve(b"/srv/www/index.html", true).is_ok());
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Volume {
    /// Threads that free removed files. They end before the cache of inodes is dropped, which collects the counts of
    /// references that they have not collected.
    pub(crate) workers: Workers,
    /// Names in memory. They reference inodes, so they are dropped before the cache of inodes.
    pub(crate) names: Arc<Names>,
    /// The memory of the caches.
    pub(crate) memory: Memory,
    pub(crate) geometry: Geometry,
    pub(crate) inode_cache: InodeCache,
    pub(crate) groups: Arc<Groups>,
    pub(crate) log: Arc<Log>,
    pub(crate) reservations: Reservations,
    /// Internal inodes, such as those of quotas. They have no directory entry.
    pub(crate) internal: Box<[Ino]>,
    /// The superblock's attribute flag is set.
    pub(crate) has_attributes: AtomicBool,
    /// Serializes changes of the size and the label.
    pub(crate) resize_lock: Mutex<()>,
    /// Serializes renames that give a directory another parent.
    pub(crate) rename_lock: Mutex<()>,
    pub(crate) recovered: Option<Recovery>,
    /// File contents.
    pub(crate) cache: Arc<Cache<VolumeBacking>>,
    /// References to it, for the contents of files.
    pub(crate) cache_references: CpuRefs<Cache<VolumeBacking>>,
    /// Writes file contents back. `None` without background threads: writers do it.
    pub(crate) flusher: Option<Flusher<VolumeBacking>>,
    /// Directories that are watched for changes.
    pub(crate) watches: Arc<Watches>,
}

impl Volume {
    /// Sizes and features of the volume.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What log recovery did when the volume was opened; `None` if it was cleanly unmounted before.
    pub fn recovered(&self) -> Option<&Recovery> {
        self.recovered.as_ref()
    }

    /// Makes all earlier changes stable: they survive a power cut.
    ///
    /// # Errors
    /// The first error of data writeback. The data stays in memory and is written again later; everything else is
    /// stable. `EIO` if the log cannot be written; the volume is then shut down.
    pub fn sync(&self) -> Result<()> {
        let data = self.cache.sync_all().map_err(Error::from);
        data.and(self.sync_metadata())
    }

    /// Makes all earlier changes of metadata stable, without writing file data back.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn sync_metadata(&self) -> Result<()> {
        Ok(self.log.force_all()?)
    }

    /// The current time, as file times are set to it.
    pub fn now(&self) -> Time {
        self.inode_cache.shared().clock.now()
    }

    /// Writes all data and metadata back to its own place, so that a reader of the device needs no log replay until the
    /// next change. Only the superblock's counters are written later, by [`unmount`](Self::unmount).
    ///
    /// # Errors
    /// As [`sync`](Self::sync). A removed file that cannot be freed is not an error.
    pub fn write_back_all(&self) -> Result<()> {
        let synced = self.sync();
        inactive::drain(self.inode_cache.shared());
        synced.and(self.log.push_all().map_err(Error::from))
    }

    /// Shuts the volume down at once, like a power cut: nothing more is written.
    pub fn shut_down(&self) {
        self.inode_cache.shared().target.shut_down("shutdown was requested");
    }

    /// Closes the volume cleanly: writes data and metadata back, frees removed files, and empties the log.
    ///
    /// After an error the other steps are still done, to save as much as possible.
    ///
    /// # Errors
    /// The first error of any step. Data that could not be written is lost. Removed files that could not be freed stay
    /// on their unlinked lists until the next open. If the log could not be emptied or the superblock's counters not
    /// written, the next open recovers the log.
    pub fn unmount(mut self) -> Result<()> {
        self.names.clear();
        self.watches.end();
        let data = self.cache.sync_all().map_err(Error::from);
        // Nothing may be logged after the unmount record: no other attempt of writeback, and no removed file may be
        // freed because its last reference is dropped now.
        drop(self.flusher.take());
        let freed = self.workers.end().map_err(Error::from);
        let counted = self.write_counters();
        if cfg!(debug_assertions) && data.is_ok() && freed.is_ok() && counted.is_ok() {
            self.expect_all_returned();
        }
        let ended = match &counted {
            Ok(()) => self.log.unmount(),
            // Linux trusts the counters if the log is clean; log recovery sums the AG headers.
            Err(_) => self.log.push_all(),
        };
        data.and(freed).and(counted).and(ended.map_err(Error::from))
    }

    /// Panics in debug builds if an operation did not return its reservations. To be called when all data is written
    /// and no other thread uses the volume.
    fn expect_all_returned(&self) {
        self.cache.release_preallocations();
        let unreturned = self.reader().map(|mut reader| self.groups.unreturned(&mut reader.tx));
        if let Ok(Ok(unreturned)) = unreturned {
            debug_assert_eq!(unreturned, None, "not all reservations were returned");
        }
    }

    /// Writes the superblock's counters of inodes and free blocks. They are updated only here: while a volume is open,
    /// the AG headers have the counts.
    fn write_counters(&self) -> Result<()> {
        let mut operation = self.begin(self.reservations.superblock)?;
        let counts = self.sum_ag_headers(&mut operation.tx)?;
        operation.tx.release_clean();
        let id = lock_superblock(&mut operation.tx, &self.geometry)?;
        let wanted = [counts.inodes, counts.inodes_free, counts.blocks_free].map(U64::new);
        let raw = view::<RawSuperblock>(&operation.tx, id);
        if raw.is_some_and(|raw| [raw.icount, raw.ifree, raw.fdblocks] != wanted) {
            let first = std::mem::offset_of!(RawSuperblock, icount);
            let end = std::mem::offset_of!(RawSuperblock, fdblocks) + 8;
            let edit = operation.tx.buffer_mut(id);
            edit.log(first..end);
            if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(edit.all_mut()) {
                [raw.icount, raw.ifree, raw.fdblocks] = wanted;
            }
        }
        operation.commit(&mut [])
    }

    fn sum_ag_headers(&self, tx: &mut Transaction) -> Result<Counts> {
        let mut counts = Counts::default();
        for ag in self.geometry.ags() {
            let header = |sector| DiskExtent {
                daddr: self.geometry.ag_header_daddr(ag, sector),
                bytes: self.geometry.sector_size,
            };
            let id = tx.read(header(2), Rank::Agi(ag.get()), |bytes| {
                RawAgi::verify(bytes, &self.geometry, ag).map(drop)
            })?;
            if let Some(agi) = view::<RawAgi>(tx, id) {
                counts.inodes += u64::from(agi.count.get());
                counts.inodes_free += u64::from(agi.freecount.get());
            }
            tx.release(id);
            let id = tx.read(header(1), Rank::Agf(ag.get()), |bytes| {
                RawAgf::verify(bytes, &self.geometry, ag).map(drop)
            })?;
            if let Some(agf) = view::<RawAgf>(tx, id) {
                let blocks = [agf.freeblks, agf.flcount, agf.btreeblks];
                counts.blocks_free += blocks.iter().map(|blocks| u64::from(blocks.get())).sum::<u64>();
            }
            tx.release(id);
        }
        Ok(counts)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.log.abandon();
        self.cache.abandon();
        // Watches may outlive the volume, and their references would keep its device open.
        self.watches.end();
    }
}

/// Sums over all AGs.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    inodes: u64,
    inodes_free: u64,
    /// Including the blocks of the free-space btrees and the AGFLs, as in the superblock.
    blocks_free: u64,
}

fn view<T: OnDisk>(tx: &Transaction, id: BufferId) -> Option<&T> {
    T::view(tx.bytes(id))
}

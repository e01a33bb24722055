//! An open volume, and its end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ag::Groups;
use base::Ino;
use base::lock::Mutex;
use base::lock::Rank;
use base::time::Time;
use cache::{Cache, Flusher};
use format::Geometry;
use format::agf::RawAgf;
use format::agi::RawAgi;
use format::ondisk::{OnDisk, U64};
use format::superblock::RawSuperblock;
use inode::InodeCache;
use inode::inactive::{self, Workers};
use journal::engine::Log;
use journal::engine::{BufferId, DiskExtent, Transaction};
use zerocopy::FromBytes;

use crate::contents::Below;
use crate::open::Recovery;
use crate::reservations::Reservations;
use crate::superblock::lock_superblock;
use crate::{Error, Result};

/// An open volume: shared by reference between any number of threads.
///
/// [`unmount`](Self::unmount) ends it cleanly. Dropping it instead leaves the volume as a power cut would: what was
/// synced is in the log, and the next opening recovers it.
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
/// drop(volume); // which this is one of
///
/// let volume = Volume::open(device, Options::default())?;
/// assert!(volume.recovered().is_some());
/// assert!(volume.resolve(b"/srv/www/index.html", true).is_ok());
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Volume {
    pub(crate) geometry: Geometry,
    pub(crate) inode_cache: InodeCache,
    pub(crate) groups: Arc<Groups>,
    pub(crate) log: Arc<Log>,
    pub(crate) reservations: Reservations,
    /// Inodes of the volume itself, such as those of quotas: no directory names them.
    pub(crate) internal: Box<[Ino]>,
    /// The superblock says that there are extended attributes.
    pub(crate) has_attributes: AtomicBool,
    /// Changes of its size take turns.
    pub(crate) resize_lock: Mutex<()>,
    /// Renames of directories across parents take turns.
    pub(crate) rename_lock: Mutex<()>,
    pub(crate) recovered: Option<Recovery>,
    /// Contents of files.
    pub(crate) cache: Arc<Cache<Below>>,
    /// Writes them back, unless who writes does; ends when the volume does.
    pub(crate) flusher: Option<Flusher<Below>>,
    /// Free removed files; end when the volume does.
    pub(crate) workers: Workers,
}

impl Volume {
    /// Its shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What opening had to put in order; `None` where the volume was cleanly unmounted.
    pub fn recovered(&self) -> Option<&Recovery> {
        self.recovered.as_ref()
    }

    /// Returns when everything that was done before survives a power cut.
    ///
    /// # Errors
    /// The first error of writing back contents, which are still in memory then, and tried again later: everything else
    /// is stable. `EIO` where the log cannot be written: the volume is then shut down.
    pub fn sync(&self) -> Result<()> {
        let contents = self.cache.sync_all().map_err(Error::from);
        contents.and(self.sync_metadata())
    }

    /// The same for changes of names and of what is known of files, without what was written to files.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn sync_metadata(&self) -> Result<()> {
        Ok(self.log.force_all()?)
    }

    /// The present, as files are stamped with it.
    pub fn now(&self) -> Time {
        self.inode_cache.shared().clock.now()
    }

    /// Returns when everything that was done is in its place on the device, and not in the log alone. Whoever reads the
    /// device itself sees it, as long as nothing else is changed. Only the superblock's counters follow later, with
    /// [`unmount`](Self::unmount).
    ///
    /// # Errors
    /// As [`sync`](Self::sync). A removed file that cannot be freed is no error here.
    pub fn write_back_all(&self) -> Result<()> {
        let synced = self.sync();
        inactive::drain(self.inode_cache.shared());
        synced.and(self.log.push_all().map_err(Error::from))
    }

    /// Stops everything at once, as a power cut would: nothing more is written.
    pub fn shut_down(&self) {
        self.inode_cache.shared().target.shut_down("it was asked for");
    }

    /// Ends cleanly: contents are written, files that were removed are freed, everything is in its place, and the log
    /// is empty.
    ///
    /// No step is left out because another failed: what can be saved is saved.
    ///
    /// # Errors
    /// The first error that any step met. Contents that could not be written are lost. Removed files that could not be
    /// freed stay on their lists of unlinked inodes, for the next opening. Where the log could not be emptied, or the
    /// superblock's counters not be written, the next opening recovers the volume from its log.
    pub fn unmount(mut self) -> Result<()> {
        let contents = self.cache.sync_all().map_err(Error::from);
        // Behind the unmount record nothing may be logged: neither by another attempt to write contents back, nor
        // because somebody drops the last reference to a removed file now.
        drop(self.flusher.take());
        let freed = self.workers.end().map_err(Error::from);
        let counted = self.write_counters();
        if cfg!(debug_assertions) && contents.is_ok() && freed.is_ok() && counted.is_ok() {
            self.expect_all_returned();
        }
        let ended = match &counted {
            Ok(()) => self.log.unmount(),
            // Linux believes the counters of a volume whose log is clean. Recovery sums up the AG headers.
            Err(_) => self.log.push_all(),
        };
        contents.and(freed).and(counted).and(ended.map_err(Error::from))
    }

    /// Debug builds panic where a change kept what it had reserved. Nobody changes the volume, and all contents are
    /// written.
    fn expect_all_returned(&self) {
        self.cache.give_back_ahead();
        let unreturned = self.reader().map(|mut reader| self.groups.unreturned(&mut reader.tx));
        if let Ok(Ok(unreturned)) = unreturned {
            debug_assert_eq!(unreturned, None, "not all reservations were returned");
        }
    }

    /// The superblock's counts of inodes and free blocks are kept up only here: in between, the AG headers have them.
    fn write_counters(&self) -> Result<()> {
        let mut change = self.begin(self.reservations.superblock)?;
        let counts = self.sum(&mut change.tx)?;
        change.tx.release_clean();
        let id = lock_superblock(&mut change.tx, &self.geometry)?;
        let wanted = [counts.inodes, counts.inodes_free, counts.blocks_free].map(U64::new);
        let raw = view::<RawSuperblock>(&change.tx, id);
        if raw.is_some_and(|raw| [raw.icount, raw.ifree, raw.fdblocks] != wanted) {
            let first = std::mem::offset_of!(RawSuperblock, icount);
            let end = std::mem::offset_of!(RawSuperblock, fdblocks) + 8;
            let edit = change.tx.buffer_mut(id);
            edit.log(first..end);
            if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(edit.all_mut()) {
                [raw.icount, raw.ifree, raw.fdblocks] = wanted;
            }
        }
        change.commit(&mut [])
    }

    /// Sums up what the AG headers say.
    fn sum(&self, tx: &mut Transaction) -> Result<Counts> {
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
    }
}

/// Sums over all AGs.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    inodes: u64,
    inodes_free: u64,
    /// With what the free-space trees hold, which they give back as they become smaller.
    blocks_free: u64,
}

fn view<T: OnDisk>(tx: &Transaction, id: BufferId) -> Option<&T> {
    T::view(tx.bytes(id))
}

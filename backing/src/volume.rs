//! What the cache needs of a volume.

use std::fmt::Debug;

use base::{FileBlock, FsBlock, Ino};
use error::Error;

use crate::{ClaimedBlocks, Mapping, ReservedRmap, WriteCompletion};

/// Contents change mtime and ctime at most once per tick: as often as the kernel's coarse clock advances.
pub const TIMESTAMP_TICK_NANOS: u64 = 4_000_000;

/// A volume, as file contents in memory need it. A trait, so that the cache is tested on a simple volume in memory.
///
/// # Locking
/// Calls may block on inodes and AGs unless they say otherwise. The caller holds no folio.
pub trait Backing: Send + Sync + Debug + Sized + 'static {
    /// A file, by a reference that does not keep its inode in memory. Calls fail if the inode has been dropped.
    type File: Send + Sync + Debug;
    /// Claimed blocks.
    type Claim: ClaimedBlocks;
    /// Space reserved in the reverse-mapping btrees.
    type RmapReservations: ReservedRmap;

    /// Base-2 logarithm of the block size in bytes: 10 to 16.
    fn block_log(&self) -> u32;

    /// Returns the byte offset of a block on the device.
    fn device_offset(&self, block: FsBlock) -> u64;

    /// Notes that data was written to the device, perhaps only into its cache. A transaction that commits from now on
    /// becomes stable after this data. Returns the number of the write. Does not block.
    fn note_unlogged_write(&self) -> u64;

    /// Number of the last such write. Does not block.
    fn unlogged_writes(&self) -> u64;

    /// Requests that the changes of metadata so far, and data that was written, become stable soon. Does not block.
    fn request_commit(&self) {}

    /// Inode number. Does not block.
    fn ino(&self, file: &Self::File) -> Ino;

    /// Returns the file's placement group: files of one group are allocated together. Does not block.
    fn group(&self, file: &Self::File) -> u64;

    /// Returns the number of placement groups, which are numbered from 0. It may grow. Does not block.
    fn groups(&self) -> u64;

    /// Returns the placement group in which a block lies. Does not block.
    fn group_of_block(&self, block: FsBlock) -> u64;

    /// Size on disk in bytes.
    ///
    /// # Errors
    /// The inode has been dropped.
    fn size(&self, file: &Self::File) -> Result<u64, Error>;

    /// Maps the start of a range of `count` blocks.
    ///
    /// # Errors
    /// Damage; I/O errors.
    fn map(&self, file: &Self::File, offset: FileBlock, count: u64) -> Result<Mapping, Error>;

    /// Reserves free blocks of the volume. Takes no inode lock and no AG lock.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    fn reserve(&self, blocks: u64) -> Result<(), Error>;

    /// Releases reserved blocks. Takes no inode lock and no AG lock.
    fn unreserve(&self, blocks: u64);

    /// Reserves rmapbt space for `writes` writes to parts of a mapping: see [`Mapping::is_split`].
    ///
    /// # Errors
    /// [`Error::NoSpace`]; damage; I/O errors.
    fn reserve_rmap_for_write(&self, mapping: &Mapping, writes: u64)
    -> Result<Self::RmapReservations, Error>;

    /// Returns the number of extents of a file.
    ///
    /// # Errors
    /// `EFBIG` if its extent counter cannot count `more`; the inode has been dropped.
    fn extents(&self, file: &Self::File, more: u64) -> Result<u64, Error>;

    /// Returns how many blocks a file's extent btree may take when `records` records are added to `extents` extents, at
    /// worst each to another leaf. `None`: for any number of extents. Does not block.
    fn tree_blocks(&self, extents: Option<u64>, records: u64) -> u64;

    /// Claims 1 to `max` free blocks at or after `near`; without it, in the file's own AG. The caller has reserved
    /// `max` blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; damage; I/O errors.
    fn claim(&self, file: &Self::File, near: Option<FsBlock>, max: u64) -> Result<Self::Claim, Error>;

    /// Finishes writes: allocates claimed blocks and maps them as written, frees what was mapped there, marks unwritten
    /// blocks as written, and raises sizes. Small files share transactions, most of them if the files are in ascending
    /// order of their inode numbers and their claims are contiguous. A file may occur again after others. Where a range
    /// cannot be mapped for lack of rmapbt space, it is refused ([`WriteCompletion::refused`]); the rest is finished.
    ///
    /// # Errors
    /// Errors of transactions. Claims are gone then; unused reservations stay in `files` as after success.
    fn finish(&self, files: &mut [WriteCompletion<'_, Self>]) -> Result<(), Error>;

    /// Sets the size on disk. With `shrinks`, frees the blocks beyond it, even if the size on disk was smaller.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    fn set_size(&self, file: &Self::File, size: u64, shrinks: bool) -> Result<(), Error>;

    /// Frees written blocks beyond `size`: their data was written, but a power cut came before the new size was stable.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    fn free_written_beyond(&self, file: &Self::File, size: u64) -> Result<(), Error>;

    /// Returns the file's allocation unit in blocks (its extent size hint); 1 for none.
    ///
    /// # Errors
    /// The inode has been dropped.
    fn alloc_unit(&self, file: &Self::File) -> Result<u64, Error> {
        let _ = file;
        Ok(1)
    }

    /// Maps the holes of `from..to`, widened to allocation units, to unwritten blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with a part mapped; otherwise those of [`finish`](Self::finish).
    fn fill_units(&self, file: &Self::File, from: FileBlock, to: FileBlock) -> Result<(), Error> {
        let _ = (file, from, to);
        Ok(())
    }

    /// Frees all blocks beyond `size`, unless a user preallocated them.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    fn trim(&self, file: &Self::File, size: u64) -> Result<(), Error> {
        let _ = (file, size);
        Ok(())
    }

    /// Updates mtime and ctime before the contents change. Called at most once per clock tick.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    fn touch(&self, file: &Self::File) -> Result<(), Error> {
        let _ = file;
        Ok(())
    }
}

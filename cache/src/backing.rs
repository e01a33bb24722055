//! What the cache needs of what lies below: a narrow interface, so that it is tested on a simple volume in memory, too.

use std::fmt::Debug;

use base::{FsBlock, Ino};
use block::Device;
use error::Error;

/// What a block of a file is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is mapped.
    Hole,
    /// Blocks that were never written: they read as zeros.
    Unwritten,
    /// Blocks with contents.
    Written,
}

/// The beginning of a range of a file, all of it alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first block of the file.
    pub at: u64,
    /// Blocks: at least 1.
    pub count: u64,
    /// What they are.
    pub kind: Kind,
    /// Where the first lies; of no meaning for a hole.
    pub start: FsBlock,
    /// Other files map the blocks as well: they must not be written where they lie.
    pub shared: bool,
}

impl Mapping {
    /// The block of the file behind the last.
    pub fn end(&self) -> u64 {
        self.at + self.count
    }

    /// Whether writing a part changes the mapping of that part alone, so that its records are split.
    pub fn is_split(&self) -> bool {
        self.kind != Kind::Hole && (self.shared || self.kind == Kind::Unwritten)
    }

    /// Whether contents go to blocks that are not mapped yet.
    pub fn needs_blocks(&self) -> bool {
        self.kind == Kind::Hole || self.shared
    }

    /// Where a block of the range lies.
    pub fn place(&self, block: u64) -> FsBlock {
        FsBlock(self.start.get() + (block - self.at))
    }
}

/// Free blocks that are kept for somebody. Dropped, they are free for all again.
pub trait Claimed: Send + Sync + Debug {
    /// The first.
    fn start(&self) -> FsBlock;

    /// How many.
    fn count(&self) -> u64;

    /// Splits so many off at the front, or all there are.
    #[must_use = "what is split off is given back when it is dropped"]
    fn take_front(&mut self, count: u64) -> Self;
}

/// Space that is reserved in the btrees of the volume for changes to mapped blocks. Dropped, it is given back.
pub trait Rooms: Default + Send + Debug {
    /// Adds what others reserved. Waits for nothing.
    fn join(&mut self, others: Self);

    /// Gives back what is reserved for more than so many blocks. Waits for nothing.
    fn limit(&mut self, blocks: u64);
}

/// Which blocks are to be claimed.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// The first block of the file that they are for.
    pub at: u64,
    /// As near behind this block as possible; else where the file's blocks belong.
    pub near: Option<FsBlock>,
    /// Blocks that are of use; fewer may be claimed, but one.
    pub most: u64,
}

/// A range of a file whose contents have reached the device.
#[derive(Debug)]
pub struct Written<C> {
    /// The first block of the file.
    pub at: u64,
    /// Blocks.
    pub count: u64,
    /// The claimed blocks that they were written to, as many. `None`: the file's own unwritten blocks.
    pub claim: Option<C>,
}

/// What is to be finished of one file.
#[derive(Debug)]
pub struct Finish<'f, B: Backing> {
    /// The file.
    pub file: &'f B::File,
    /// In order.
    pub written: Vec<Written<B::Claim>>,
    /// The size on disk, if it is to be moved up.
    pub size: Option<u64>,
    /// Blocks that are reserved for this: those that were claimed, and a share for the tree. What is left afterwards is
    /// left here.
    pub reserved: u64,
    /// Records that may come to the map by all that the share for the tree is for.
    pub records: u64,
    /// Reservations for the mapped blocks that are written, of the whole file. [`Backing::finish`] takes what it uses;
    /// the rest stays here.
    pub rooms: B::Rooms,
    /// Told by [`Backing::finish`]: why what is left in `written` is mapped as before, and the size has not moved.
    pub refused: Option<Box<Error>>,
}

/// A volume below.
///
/// # Locking
/// All of it may wait for inodes and allocation groups, but for what says otherwise. The cache holds no folio then.
pub trait Backing: Send + Sync + Debug + Sized + 'static {
    /// A file, without keeping it in memory.
    type File: Send + Sync + Debug;
    /// Claimed blocks.
    type Claim: Claimed;
    /// Space that is reserved for changes to mapped blocks.
    type Rooms: Rooms;

    /// Base-2 logarithm of the block size in bytes: 10 to 16.
    fn block_log(&self) -> u32;

    /// What blocks lie on.
    fn device(&self) -> &dyn Device;

    /// Data was written to the device, perhaps into its own cache alone. No transaction that commits from now on may
    /// become stable before this data is. Waits for nothing.
    fn written_past_log(&self);

    /// Where a block lies on the device, in bytes.
    fn device_offset(&self, block: FsBlock) -> u64;

    /// The file's number. Waits for nothing.
    fn ino(&self, file: &Self::File) -> Ino;

    /// Files of one group want to lie together, and apart from those of others. Waits for nothing.
    fn group(&self, file: &Self::File) -> u64;

    /// The size on disk, in bytes.
    ///
    /// # Errors
    /// The file is in memory no more.
    fn size(&self, file: &Self::File) -> Result<u64, Error>;

    /// What the beginning of a range of blocks is; no more than `count` blocks are told.
    ///
    /// # Errors
    /// The map may be damaged, or its blocks may not be readable.
    fn map(&self, file: &Self::File, at: u64, count: u64) -> Result<Mapping, Error>;

    /// Sets free blocks of the volume aside. Waits for no inode and no group.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    fn reserve(&self, blocks: u64) -> Result<(), Error>;

    /// Gives back what was set aside. Waits for no inode and no group.
    fn unreserve(&self, blocks: u64);

    /// Reserves what so many writes to parts of a mapping may take of the volume's btrees: see [`Mapping::is_split`].
    ///
    /// # Errors
    /// [`Error::NoSpace`]; what must be read may be damaged.
    fn room_to_write(&self, mapping: &Mapping, writes: u64) -> Result<Self::Rooms, Error>;

    /// How many extents the map of a file has.
    ///
    /// # Errors
    /// `EFBIG` where it cannot have so many `more`; the file is in memory no more.
    fn extents(&self, file: &Self::File, more: u64) -> Result<u64, Error>;

    /// Blocks that the tree of a file's map may take, when so many records come to so many extents, at worst each far
    /// from the others; `None`: whatever else comes to the map before. Waits for nothing.
    fn tree_share(&self, extents: Option<u64>, records: u64) -> u64;

    /// Keeps free blocks for a file. The caller has reserved as many as it wants.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; what must be read may be damaged.
    fn claim(&self, file: &Self::File, want: &Want) -> Result<Self::Claim, Error>;

    /// Takes claimed blocks out of free space and maps them as written, frees what was mapped there before, marks
    /// unwritten blocks as written, and moves sizes up; for several files in one transaction if there are more.
    /// A file may be refused, and says so.
    ///
    /// # Errors
    /// Whatever can happen to a transaction; the claims are gone then, and what is left of what was reserved is told as
    /// after success.
    fn finish(&self, files: &mut [Finish<'_, Self>]) -> Result<(), Error>;

    /// Sets the size on disk. If the file `shrinks`, frees the blocks behind the one in which it ends, even where the
    /// size on disk was smaller still.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn set_size(&self, file: &Self::File, size: u64, shrinks: bool) -> Result<(), Error>;

    /// Frees blocks that are mapped as written behind the one in which the file ends: they were written and the size
    /// did not come to tell of them, as the power was cut.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn clear_behind(&self, file: &Self::File, size: u64) -> Result<(), Error>;

    /// In how many blocks at once a file gets those that are mapped nowhere when it is written: 1 for any.
    ///
    /// # Errors
    /// The file is in memory no more.
    fn unit(&self, file: &Self::File) -> Result<u64, Error> {
        let _ = file;
        Ok(1)
    }

    /// Maps the holes of `from..to` to unwritten blocks, and what lies around them in the file's units.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: what was mapped stays. Else as [`finish`](Self::finish).
    fn fill_units(&self, file: &Self::File, from: u64, to: u64) -> Result<(), Error> {
        let _ = (file, from, to);
        Ok(())
    }

    /// Frees what is mapped behind the block in which the file of this size ends, unless it was asked for.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn trim(&self, file: &Self::File, size: u64) -> Result<(), Error> {
        let _ = (file, size);
        Ok(())
    }

    /// Notes that the file's contents are changed now: called at most once a tick of the clock, before the change.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn touch(&self, file: &Self::File) -> Result<(), Error> {
        let _ = file;
        Ok(())
    }
}

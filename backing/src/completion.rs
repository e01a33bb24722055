//! Written data: where it lies, and what mapping it may use.

use std::fmt::Debug;

use base::{FileBlock, FsBlock};
use error::Error;

use crate::Backing;

/// Free blocks that are kept for data in flight. Dropped, they are free for everybody again.
pub trait ClaimedBlocks: Send + Sync + Debug {
    /// First block.
    fn start(&self) -> FsBlock;

    /// Length in blocks.
    fn count(&self) -> u64;

    /// Splits up to `count` blocks off the front.
    #[must_use = "a dropped claim frees its blocks"]
    fn take_front(&mut self, count: u64) -> Self;
}

/// Reserved space in the reverse-mapping btrees for splitting records of mapped blocks. Dropped, it is released.
pub trait ReservedRmap: Default + Send + Debug {
    /// Adds another reservation. Does not block.
    fn join(&mut self, other: Self);

    /// Releases what exceeds `changes` changes in each AG. Does not block.
    fn limit(&mut self, changes: u64);
}

/// A range of a file whose contents have been written to the device.
#[derive(Debug)]
pub struct WrittenRange<C> {
    /// First block of the file.
    pub offset: FileBlock,
    /// Length in blocks.
    pub count: u64,
    /// The claimed blocks that were written, of the same length: they replace what the file maps there. `None`: the
    /// file's own unwritten blocks were written in place.
    pub claim: Option<C>,
}

impl<C: ClaimedBlocks> WrittenRange<C> {
    /// Returns the number of blocks claimed for this range.
    pub fn claimed(&self) -> u64 {
        self.claim.as_ref().map_or(0, C::count)
    }
}

/// What [`Backing::finish`] maps of one file, and the reservations that it may use.
#[derive(Debug)]
pub struct WriteCompletion<'f, B: Backing> {
    /// The file.
    pub file: &'f B::File,
    /// Written ranges, which do not overlap. Finished ones are removed.
    pub written: Vec<WrittenRange<B::Claim>>,
    /// New size on disk; ignored unless it is larger. All contents before it are written.
    pub size: Option<u64>,
    /// Whether to update mtime and ctime.
    pub touch: bool,
    /// Reserved blocks: those that are claimed, and those for the file's extent btree ([`Backing::tree_blocks`]). The
    /// rest stays here for the caller.
    pub reserved: u64,
    /// Records that the map may get by everything that the blocks for its btree are reserved for.
    pub records: u64,
    /// Rmap reservations for mapped blocks that were written ([`Backing::reserve_rmap_for_write`]). The rest stays here
    /// for the caller.
    pub rmap: B::RmapReservations,
    /// Set by [`Backing::finish`]: why the ranges left in `written` are mapped as before. The size did not change.
    pub refused: Option<Box<Error>>,
}

impl<'f, B: Backing> WriteCompletion<'f, B> {
    /// Returns a completion that leaves the size as it is, without rmap reservations.
    pub fn new(file: &'f B::File, written: Vec<WrittenRange<B::Claim>>, reserved: u64, records: u64) -> Self {
        let rmap = B::RmapReservations::default();
        Self { file, written, size: None, touch: false, reserved, records, rmap, refused: None }
    }

    /// Returns the number of blocks claimed for all ranges.
    pub fn claimed(&self) -> u64 {
        self.written.iter().map(WrittenRange::claimed).sum()
    }

    /// Drops the claims that are left and releases all reservations, in this order.
    pub fn release(self, backing: &B) {
        let Self { written, reserved, rmap, .. } = self;
        drop(written);
        drop(rmap);
        backing.unreserve(reserved);
    }
}

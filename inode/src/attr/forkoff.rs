//! The start of the attribute fork in the inode (`forkoff`), and the creation and removal of the fork.
//!
//! `forkoff` counts units of 8 bytes. It never cuts off contents of the data fork. For shortform attributes, the fork
//! gets the bytes that it needs at the end of the inode, and the data fork the rest; a fork of blocks begins with space
//! for some extents.
//!
//! | data fork | space left for it |
//! |---|---|
//! | device | the device number: `forkoff` is always 1 |
//! | local | its contents, and at least the smallest root of an extent btree (3 entries) |
//! | extents, btree | its extents or root, and at least the same |
//!
//! The attribute fork has space for a btree root of 2 entries.

use error::Error;
use format::extent::RawExtent;
use format::inode::{FileType, ForkKind};
use format::ondisk::OnDisk;

use super::{Attributes, Result};
use crate::dabtree::TreeFork;
use crate::dir::{Directory, InodeDirFork};
use crate::extents::ExtentList;
use crate::fork::{Fork, root};
use crate::state::{ForkFormat, InodeState};
use crate::symlink;

const UNIT: usize = 8;
/// Entries of the smallest btree root of each fork.
const DATA_ENTRIES: usize = 3;
const ATTR_ENTRIES: usize = 2;
/// Entries of a btree root that sets the data fork's usual size if the attributes are in blocks. Linux uses the
/// same.
const USUAL_ENTRIES: usize = 12;

/// Bytes that the data fork needs in its present format.
fn data_fork_need(state: &InodeState) -> usize {
    let need = match state.fork_format(ForkKind::Data) {
        Some(ForkFormat::Device) => return UNIT,
        Some(ForkFormat::Local) => usize::try_from(state.size()).unwrap_or(usize::MAX),
        Some(ForkFormat::Extents) => {
            let count = usize::try_from(state.extent_count(ForkKind::Data)).unwrap_or(usize::MAX);
            count.saturating_mul(RawExtent::SIZE)
        }
        Some(ForkFormat::Btree) => root::size(root::InlineRoot::take(state.fork_bytes(ForkKind::Data)).len()),
        None => 0,
    };
    need.max(root::size(DATA_ENTRIES)).checked_next_multiple_of(UNIT).unwrap_or(usize::MAX)
}

/// The highest start of the attribute fork, in bytes.
fn max_forkoff(state: &InodeState) -> usize {
    state.literal_len().saturating_sub(root::size(ATTR_ENTRIES)) / UNIT * UNIT
}

/// The `forkoff` with which shortform attributes of `bytes` bytes fit; `None` if they never fit.
pub(super) fn forkoff_for(state: &InodeState, bytes: usize) -> Option<u8> {
    if state.forkoff() != 0 && bytes <= state.fork_capacity(ForkKind::Attr) {
        return Some(state.forkoff());
    }
    let need = data_fork_need(state);
    if state.fork_format(ForkKind::Data) == Some(ForkFormat::Device) {
        return (need + bytes <= state.literal_len()).then_some(1);
    }
    let at = (state.literal_len().checked_sub(bytes)? / UNIT * UNIT).min(max_forkoff(state));
    (at >= need).then_some((at / UNIT) as u8) // inodes have at most 2 KiB
}

impl Attributes<'_> {
    /// Stores shortform attributes; moves the start of the fork as needed. Returns `false`, with nothing changed, where
    /// they do not fit. The fork must not map blocks any more.
    pub(super) fn put_shortform(&mut self, contents: &[u8]) -> bool {
        let Some(offset) = forkoff_for(self.fork.state, contents.len()) else { return false };
        self.set_forkoff(offset);
        self.fork.state.set_attr_local(contents)
    }

    /// Makes an empty fork shortform, with this `forkoff`.
    pub(super) fn begin_shortform(&mut self, offset: u8) {
        self.set_forkoff(offset);
        let _ = self.fork.state.set_attr_local(&format::attr::edit::shortform::EMPTY); // it fits every fork
    }

    fn set_forkoff(&mut self, offset: u8) {
        if offset != self.fork.state.forkoff() {
            self.fork.state.set_forkoff(offset);
        }
    }

    /// Removes an empty fork. It stays, empty, if the data fork is a btree, whose extents might otherwise fit the
    /// inode; and where files have parent pointers.
    pub(super) fn end_fork(&mut self) -> Result<()> {
        let stays =
            self.keeps_parents() || self.fork.state.fork_format(ForkKind::Data) == Some(ForkFormat::Btree);
        if !stays {
            self.fork.state.set_forkoff(0);
        } else if !self.fork.state.set_attr_local(&format::attr::edit::shortform::EMPTY) {
            return Err(Error::NoSpace { what: "attributes within their inode" });
        }
        Ok(())
    }

    /// Makes the fork an empty list of extents. The caller has taken the shortform attributes out.
    pub(super) fn begin_extents(&mut self) -> Result<()> {
        if self.fork.state.forkoff() == 0 {
            let max = max_forkoff(self.fork.state);
            if data_fork_need(self.fork.state) > max
                && self.fork.state.fork_format(ForkKind::Data) != Some(ForkFormat::Device)
            {
                self.shrink_data_fork(max)?;
            }
            let need = data_fork_need(self.fork.state);
            let usual = if need == UNIT { UNIT } else { root::size(USUAL_ENTRIES) / UNIT * UNIT };
            let offset = need.max(usual.min(max));
            self.fork.state.set_forkoff((offset / UNIT) as u8); // inodes have at most 2 KiB
        }
        self.fork.state.set_fork_format(ForkKind::Attr, ForkFormat::Extents);
        self.fork.state.fork_bytes_mut(ForkKind::Attr).fill(0);
        self.fork.state.set_list(ForkKind::Attr, Some(ExtentList::new()));
        self.fork.state.mark(format::log::inode::fields::ATTR_EXTENTS);
        Ok(())
    }

    /// Shrinks the data fork's part of the inode to at most `max` bytes.
    fn shrink_data_fork(&mut self, max: usize) -> Result<()> {
        let before = self.fork.state.nblocks();
        let TreeFork { shared, tx, space, state, reserved, .. } = &mut self.fork;
        match (state.fork_format(ForkKind::Data), state.dinode().file_type()) {
            (Some(ForkFormat::Local), Some(FileType::Directory)) => {
                let mut blocks = InodeDirFork::new(shared, tx, *space, state, *reserved)?;
                Directory::new(&shared.geometry, &mut blocks).convert_to_block()?;
            }
            (Some(ForkFormat::Local), _) => {
                let target = state.local().unwrap_or_default().to_vec();
                symlink::write_out(shared, tx, *space, state, &target)?;
            }
            _ => Fork::open(shared, state, ForkKind::Data)?.shrink_inline(tx, *space, max)?,
        }
        self.fork.count_taken(before);
        Ok(())
    }
}

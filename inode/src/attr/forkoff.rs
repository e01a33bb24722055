//! Where the attribute fork begins in the inode, and how it comes and goes.
//!
//! The border between both forks is told in units of 8 bytes. It leaves the data fork as it is; the attribute fork gets
//! what it needs, counted from the end of the inode, and the data fork the rest. A fork that takes blocks begins with
//! room for some extents.
//!
//! | data fork | leaves room for |
//! |---|---|
//! | device | its number: the border is then always at 8 |
//! | contents in the inode | them, and at least the smallest root of a tree of extents (3 entries) |
//! | extents, tree | them, and at least that |
//!
//! The attribute fork leaves room for a root of 2 entries.

use format::extent::RawExtent;
use format::inode::{FileType, ForkKind};
use format::ondisk::OnDisk;
use journal::engine::Error;

use super::{Attributes, Result};
use crate::dir::{Directory, InodeDirFork};
use crate::extents::ExtentList;
use crate::fork::{Fork, root};
use crate::state::{ForkFormat, InodeState};
use crate::symlink;

const UNIT: usize = 8;
/// AttrTreeEntries of the smallest root of each fork.
const DATA_ENTRIES: usize = 3;
const ATTR_ENTRIES: usize = 2;
/// Bytes that the data fork gets where the attributes lie in blocks, if it needs no more: as with Linux, those of a
/// root with so many entries.
const USUAL_ENTRIES: usize = 12;

/// Bytes of the inode that the data fork needs as it is.
fn data_fork_need(state: &InodeState) -> usize {
    let need = match state.fork_format(ForkKind::Data) {
        Some(ForkFormat::Device) => return UNIT,
        Some(ForkFormat::Local) => usize::try_from(state.size()).unwrap_or(usize::MAX),
        Some(ForkFormat::Extents) => {
            let count = usize::try_from(state.extent_count(ForkKind::Data)).unwrap_or(usize::MAX);
            count.saturating_mul(RawExtent::SIZE)
        }
        Some(ForkFormat::Btree) => root::size(root::InlineRoot::take(state.area(ForkKind::Data)).len()),
        None => 0,
    };
    need.max(root::size(DATA_ENTRIES)).checked_next_multiple_of(UNIT).unwrap_or(usize::MAX)
}

/// The max_forkoff that the attribute fork may begin.
fn max_forkoff(state: &InodeState) -> usize {
    state.literal_bytes().saturating_sub(root::size(ATTR_ENTRIES)) / UNIT * UNIT
}

/// The border, in units, with which attributes of so many bytes fit the inode; `None` where they do not.
pub(super) fn forkoff_for(state: &InodeState, bytes: usize) -> Option<u8> {
    if state.attr_offset() != 0 && bytes <= state.room(ForkKind::Attr) {
        return Some(state.attr_offset());
    }
    let need = data_fork_need(state);
    if state.fork_format(ForkKind::Data) == Some(ForkFormat::Device) {
        return (need + bytes <= state.literal_bytes()).then_some(1);
    }
    let at = (state.literal_bytes().checked_sub(bytes)? / UNIT * UNIT).min(max_forkoff(state));
    (at >= need).then_some((at / UNIT) as u8) // inodes have at most 2 KiB
}

impl Attributes<'_> {
    /// Puts attributes into the inode, whose border is moved for that. `false`, with nothing changed, where they do not
    /// fit. Whatever blocks the fork had were freed.
    pub(super) fn put_shortform(&mut self, contents: &[u8]) -> bool {
        let Some(offset) = forkoff_for(self.state, contents.len()) else { return false };
        self.set_forkoff(offset);
        self.state.set_attr_local(contents)
    }

    /// Makes a fork without attributes one that lies in the inode behind a border.
    pub(super) fn begin_shortform(&mut self, offset: u8) {
        self.set_forkoff(offset);
        let _ = self.state.set_attr_local(&format::attr::edit::shortform::EMPTY); // it fits every fork
    }

    fn set_forkoff(&mut self, offset: u8) {
        if offset != self.state.attr_offset() {
            self.state.set_attr_offset(offset);
        }
    }

    /// Ends a fork that is empty. It stays, without attributes, where the data fork is a tree, whose extents might fit
    /// the inode then, and where files have parent pointers.
    pub(super) fn end_fork(&mut self) -> Result<()> {
        let stays = self.keeps_parents() || self.state.fork_format(ForkKind::Data) == Some(ForkFormat::Btree);
        if !stays {
            self.state.set_attr_offset(0);
        } else if !self.state.set_attr_local(&format::attr::edit::shortform::EMPTY) {
            return Err(Error::NoSpace { what: "attributes within their inode" });
        }
        Ok(())
    }

    /// Makes the fork one of extents, without any: attributes in the inode have been taken out.
    pub(super) fn begin_extents(&mut self) -> Result<()> {
        if self.state.attr_offset() == 0 {
            let most = max_forkoff(self.state);
            if data_fork_need(self.state) > most
                && self.state.fork_format(ForkKind::Data) != Some(ForkFormat::Device)
            {
                self.shrink_data_fork(most)?;
            }
            let need = data_fork_need(self.state);
            let usual = if need == UNIT { UNIT } else { root::size(USUAL_ENTRIES) / UNIT * UNIT };
            let offset = need.max(usual.min(most));
            self.state.set_attr_offset((offset / UNIT) as u8); // inodes have at most 2 KiB
        }
        self.state.set_fork_format(ForkKind::Attr, ForkFormat::Extents);
        self.state.area_mut(ForkKind::Attr).fill(0);
        self.state.set_list(ForkKind::Attr, Some(ExtentList::new()));
        self.state.mark(format::log::inode::fields::ATTR_EXTENTS);
        Ok(())
    }

    /// Makes the data fork one that leaves room for an attribute fork.
    fn shrink_data_fork(&mut self, most: usize) -> Result<()> {
        let before = self.state.nblocks();
        let is = self.state.dinode().file_type();
        match (self.state.fork_format(ForkKind::Data), is) {
            (Some(ForkFormat::Local), Some(FileType::Directory)) => {
                let mut blocks =
                    InodeDirFork::new(self.shared, self.tx, self.space, self.state, self.reserved)?;
                Directory::new(&self.shared.geometry, &mut blocks).convert_to_block()?;
            }
            (Some(ForkFormat::Local), _) => {
                let target = self.state.local().unwrap_or_default().to_vec();
                symlink::write_out(self.shared, self.tx, self.space, self.state, &target)?;
            }
            _ => {
                let mut fork = Fork::open(self.shared, self.state, ForkKind::Data)?;
                fork.make_small(self.tx, self.space, most)?;
            }
        }
        self.count_taken(before);
        Ok(())
    }
}

//! Visiting the extents of a file.

use std::ops::ControlFlow;

use backing::{Mapping, MappingState};
use base::{FileBlock, FsBlock};
use error::Result;
use format::extent::Extent;
use format::inode::ForkKind;
use smallvec::SmallVec;

use super::file_transaction::{File, shares};
use super::tuning::EXTENTS_AT_ONCE;
use crate::extents::ExtentList;
use crate::fork::Fork;
use crate::inode::Inode;
use crate::shared::Shared;

/// Visits the mappings of `from..to` in order, without holes. They are cut at both ends of the range, and where sharing
/// begins or ends. `visit` may end the visit. No lock is held while it runs.
///
/// # Errors
/// Damage; I/O errors. A file without a map (local or special) has no mappings.
pub fn map(
    file: File<'_>,
    from: FileBlock,
    to: FileBlock,
    visit: &mut dyn FnMut(Mapping) -> ControlFlow<()>,
) -> Result<()> {
    let mut at = from;
    while at < to {
        let state = file.inode.read();
        let in_memory = state.list(ForkKind::Data).map(|list| (mappings(list, at, to), shares(&state)));
        drop(state);
        let (found, may_share) = match in_memory {
            Some(found) => found,
            None => {
                let mut locked = file.inode.lock();
                let may_share = shares(&locked);
                let fork = Fork::open(file.shared, &mut locked, ForkKind::Data)?;
                (mappings(fork.list(), at, to), may_share)
            }
        };
        for mapping in &found {
            at = mapping.end();
            let flow = if may_share && mapping.state == MappingState::Written {
                visit_shared_parts(file, mapping, visit)?
            } else {
                visit(*mapping)
            };
            if flow.is_break() {
                return Ok(());
            }
        }
        if found.len() < EXTENTS_AT_ONCE {
            break;
        }
    }
    Ok(())
}

/// The first mappings of a range.
fn mappings(list: &ExtentList, from: FileBlock, to: FileBlock) -> SmallVec<[Mapping; EXTENTS_AT_ONCE]> {
    let rest = list.as_slice().iter().skip(list.index_at(from)).take_while(|extent| extent.offset < to);
    rest.take(EXTENTS_AT_ONCE).map(|extent| cut(extent, from, to)).collect()
}

/// Calls `read` with the map of a file, in a read section in which it does not change. The map maps the start of a
/// range of blocks, without regard to sharing. Returns `None` if the map is not in memory, or the inode must be locked:
/// see [`Shared::peek`].
pub fn peek_map<T>(
    shared: &Shared,
    inode: &Inode,
    read: impl FnOnce(&dyn Fn(FileBlock, u64) -> Mapping) -> Option<T>,
) -> Option<T> {
    shared.peek(inode, |state, _| {
        let list = state.list(ForkKind::Data)?;
        read(&|at, count| {
            let piece = list.piece(at, FileBlock(at.get().saturating_add(count)));
            let (start, state) = match piece.mapping {
                Some((start, true)) => (start, MappingState::Unwritten),
                Some((start, false)) => (start, MappingState::Written),
                None => (FsBlock(0), MappingState::Hole),
            };
            Mapping { offset: piece.offset, count: piece.count, start, state, shared: false }
        })
    })
}

/// Visits the parts of a mapping that are shared, and those that are not.
fn visit_shared_parts(
    file: File<'_>,
    mapping: &Mapping,
    visit: &mut dyn FnMut(Mapping) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let count = mapping.count as u32; // 21 bits
    for part in file.groups.shared_parts(&mut file.shared.reader(), mapping.start, count)? {
        let skip = u64::from(part.skip);
        let part = Mapping {
            offset: FileBlock(mapping.offset.get() + skip),
            start: FsBlock(mapping.start.get() + skip),
            count: part.count.into(),
            shared: part.shared,
            ..*mapping
        };
        if visit(part).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns the part of an extent that lies in a range. It has one.
fn cut(extent: &Extent, from: FileBlock, to: FileBlock) -> Mapping {
    let (offset, end) = (extent.offset.max(from), extent.end().min(to));
    Mapping {
        offset,
        count: end.get() - offset.get(),
        state: if extent.unwritten { MappingState::Unwritten } else { MappingState::Written },
        start: FsBlock(extent.start.get() + (offset.get() - extent.offset.get())),
        shared: false,
    }
}

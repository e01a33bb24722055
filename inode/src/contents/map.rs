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
use crate::extents::{ExtentOrHole, LoadedExtents};
use crate::fork::{Fork, NOT_IN_MEMORY};
use crate::inode::Inode;
use crate::shared::Shared;
use crate::state::InodeState;

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
        let in_memory = mappings(&file.inode.read(), at, to);
        let (found, is_end, may_share) = match in_memory {
            Some(found) => found,
            None => {
                let mut locked = file.inode.lock();
                Fork::open(file.shared, &mut locked, ForkKind::Data)?.load(None, at)?;
                mappings(&locked, at, to).ok_or(NOT_IN_MEMORY)?
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
        if is_end {
            break;
        }
    }
    Ok(())
}

/// Returns the longest uniform mapping at the start of a range; a hole if nothing is mapped there.
///
/// # Errors
/// Damage; I/O errors.
pub fn map_first(file: File<'_>, from: FileBlock, to: FileBlock) -> Result<Mapping> {
    let first = |state: &InodeState| {
        let list = state.extents_around(ForkKind::Data, from, 0, 0)?;
        Some((mapping_of(list.piece(from, to)), shares(state)))
    };
    let in_memory = first(&file.inode.read());
    let (mapping, may_share) = match in_memory {
        Some(found) => found,
        None => {
            let mut locked = file.inode.lock();
            Fork::open(file.shared, &mut locked, ForkKind::Data)?.load(None, from)?;
            first(&locked).ok_or(NOT_IN_MEMORY)?
        }
    };
    let mut part = None;
    if may_share && mapping.state == MappingState::Written {
        let _ = visit_shared_parts(file, &mapping, &mut |first| {
            part = Some(first);
            ControlFlow::Break(())
        })?;
    }
    Ok(part.unwrap_or(mapping))
}

/// The mapping of an extent or a hole, without regard to sharing.
fn mapping_of(piece: ExtentOrHole) -> Mapping {
    let (start, state) = match piece.mapping {
        Some((start, true)) => (start, MappingState::Unwritten),
        Some((start, false)) => (start, MappingState::Written),
        None => (FsBlock(0), MappingState::Hole),
    };
    Mapping { offset: piece.offset, count: piece.count, start, state, shared: false }
}

type Mappings = SmallVec<[Mapping; EXTENTS_AT_ONCE]>;

/// The first mappings of a range, whether there are no more in it, and whether the file may share blocks; `None` if
/// the map must be read there.
fn mappings(state: &InodeState, from: FileBlock, to: FileBlock) -> Option<(Mappings, bool, bool)> {
    let list = state.extents_around(ForkKind::Data, from, 0, 0)?;
    let rest = list.as_slice().iter().skip(list.index_at(from));
    let found: Mappings = rest
        .take_while(|extent| extent.offset < to)
        .take(EXTENTS_AT_ONCE)
        .map(|extent| cut(extent, from, to))
        .collect();
    // Fewer than asked for: the list ends before the range, or the range before the next extent.
    let is_end = found.len() < EXTENTS_AT_ONCE
        && (state.loaded(ForkKind::Data).is_some_and(LoadedExtents::has_last)
            || list.last().is_some_and(|last| last.end() >= to));
    Some((found, is_end, shares(state)))
}

/// Calls `read` with the map of a file, in a read section in which it does not change. The map maps the start of a
/// range of blocks, without regard to sharing; it returns `None` where it is not in memory. Returns `None` if the inode
/// must be locked: see [`Shared::peek`].
pub fn peek_map<T>(
    shared: &Shared,
    inode: &Inode,
    read: impl FnOnce(&dyn Fn(FileBlock, u64) -> Option<Mapping>) -> Option<T>,
) -> Option<T> {
    shared.peek(inode, |state, _| {
        read(&|at, count| {
            let list = state.extents_around(ForkKind::Data, at, 0, 0)?;
            Some(mapping_of(list.piece(at, FileBlock(at.get().saturating_add(count)))))
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

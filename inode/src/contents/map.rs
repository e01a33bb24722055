//! What is mapped.

use std::ops::ControlFlow;
use std::sync::Arc;

use ag::Groups;
use base::{FileBlock, FsBlock};
use error::Error;
use format::extent::Extent;
use format::inode::ForkKind;
use smallvec::SmallVec;

use super::step::shares;
use crate::fork::Fork;
use crate::inode::Inode;
use crate::shared::Shared;

/// Extents that are looked at before the inode is unlocked again.
const LOOKED_AT_ONCE: usize = 16;

/// A mapped part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Where it lies.
    pub extent: Extent,
    /// Other files have these blocks, too, or this one has them in another place: they must not be written.
    pub shared: bool,
}

/// Visits what is mapped of `from..to`, in order; holes are left out. Extents are cut at the ends of the range, and
/// where sharing begins or ends. No lock is held while `visit` runs; it may end the visit.
///
/// # Errors
/// Damage; what reading meets. A file that maps nothing, because it is local or special, has no extents.
pub fn map(
    shared: &Shared,
    groups: &Arc<Groups>,
    inode: &Arc<Inode>,
    from: FileBlock,
    to: FileBlock,
    visit: &mut dyn FnMut(Mapped) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut at = from;
    while at < to {
        let mut found: SmallVec<[Extent; LOOKED_AT_ONCE]> = SmallVec::new();
        let mut locked = inode.lock();
        let may_share = shares(&locked);
        let fork = Fork::open(shared, &mut locked, ForkKind::Data)?;
        let list = fork.list();
        let behind = list.as_slice().iter().skip(list.index_at(at));
        found.extend(
            behind.take_while(|extent| extent.offset < to).take(LOOKED_AT_ONCE).map(|e| cut(e, at, to)),
        );
        drop(locked);
        for extent in &found {
            at = extent.end();
            let more = if may_share && !extent.unwritten {
                visit_parts(shared, groups, extent, visit)?
            } else {
                visit(Mapped { extent: *extent, shared: false })
            };
            if more.is_break() {
                return Ok(());
            }
        }
        if found.len() < LOOKED_AT_ONCE {
            break;
        }
    }
    Ok(())
}

fn visit_parts(
    shared: &Shared,
    groups: &Groups,
    extent: &Extent,
    visit: &mut dyn FnMut(Mapped) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let count = extent.count as u32; // 21 bits
    for part in groups.shared_parts(&mut shared.reader(), extent.start, count)? {
        let skip = u64::from(part.skip);
        let piece = Extent {
            offset: FileBlock(extent.offset.get() + skip),
            start: FsBlock(extent.start.get() + skip),
            count: part.count.into(),
            unwritten: extent.unwritten,
        };
        if visit(Mapped { extent: piece, shared: part.shared }).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// What of an extent lies between two blocks; some of it does.
fn cut(extent: &Extent, from: FileBlock, to: FileBlock) -> Extent {
    let (first, end) = (extent.offset.max(from), extent.end().min(to));
    Extent {
        offset: first,
        start: FsBlock(extent.start.get() + (first.get() - extent.offset.get())),
        count: end.get() - first.get(),
        unwritten: extent.unwritten,
    }
}

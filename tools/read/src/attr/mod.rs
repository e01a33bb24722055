//! Extended attributes: in their on-disk form, and as Linux shows them.
//!
//! | part | subject |
//! |---|---|
//! | [`AttrWalk`] | all attributes in batches, including parent pointers and incomplete ones |
//! | [`for_each_xattr`], [`read_xattrs`], [`get_xattr`] | names and values as `listxattr` and `getxattr` return them |
//! | [`parents`] | parent pointers |

mod walk;
mod xattr;

pub use walk::{AttrBatch, AttrWalk};
pub use xattr::{AclNames, Xattr, for_each_xattr, get_xattr, read_xattrs};

use std::borrow::Cow;

use base::{FileBlock, FsBlock, Ino};
use format::attr::parent::ParentPointer;
use format::attr::{Attr, AttrValue, Namespace, remote};
use format::inode::{Dinode, ForkKind};

use crate::error::Result;
use crate::fork::{self, ForkReader};
use crate::volume::Volume;

/// The value of an attribute, local or remote: at most 64 KiB.
fn value<'v>(volume: &Volume, inode: &Dinode<'_>, attr: &Attr<'v>) -> Result<Cow<'v, [u8]>> {
    match attr.value {
        AttrValue::Inline(bytes) => Ok(Cow::Borrowed(bytes)),
        AttrValue::Remote { block, length } => read_remote(volume, inode, block, length).map(Cow::Owned),
    }
}

fn read_remote(volume: &Volume, inode: &Dinode<'_>, first: FileBlock, length: u32) -> Result<Vec<u8>> {
    let geometry = volume.geometry();
    let mut fork = ForkReader::new(volume, inode, ForkKind::Attr);
    let mut bytes = Vec::with_capacity(length as usize);
    let end = FileBlock(first.get() + u64::from(remote::block_count(length, geometry)));
    let mut at = first;
    while at < end {
        let extent = fork.extent(at)?;
        let start = FsBlock(extent.start.get() + (at.get() - extent.offset.get()));
        let run = extent.end().min(end).get() - at.get();
        let mut blocks = vec![0; (run as usize) << geometry.block_log];
        volume.read_blocks(start, &mut blocks)?;
        for (n, block) in (0..).zip(blocks.chunks(geometry.block_size as usize)) {
            let identity = fork.identity(FileBlock(at.get() + n), FsBlock(start.get() + n));
            let part = remote::verify(block, geometry, identity, bytes.len() as u32, length)
                .map_err(fork::at(identity))?;
            bytes.extend_from_slice(part);
        }
        at = FileBlock(at.get() + run);
    }
    Ok(bytes)
}

/// A parent pointer: one name of a file, stored in the file itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentLink {
    /// Inode number of the directory.
    pub ino: Ino,
    /// Generation of the directory.
    pub generation: u32,
    /// Name of the entry.
    pub name: Box<[u8]>,
}

/// The parent pointers of an inode, on volumes with that feature.
///
/// # Errors
/// Damage, and what the device reports.
pub fn parents(volume: &Volume, inode: &Dinode<'_>) -> Result<Vec<ParentLink>> {
    let mut links = Vec::new();
    let mut walk = AttrWalk::new(volume, inode)?;
    while let Some(batch) = walk.next_batch()? {
        for attr in batch.attrs() {
            let attr = attr?;
            if attr.namespace != Namespace::Parent || attr.incomplete {
                continue;
            }
            let parent = ParentPointer::verify(&attr, volume.geometry()).map_err(batch.damaged())?;
            links.push(ParentLink {
                ino: parent.ino,
                generation: parent.generation,
                name: parent.name.into(),
            });
        }
    }
    Ok(links)
}

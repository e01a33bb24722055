//! A look at a file that leaves nothing in memory: for whoever compares many files, most of which stay as they are.

use base::Ino;
use format::Geometry;
use format::attr::edit::shortform;
use format::attr::{AttrValue, acl};
use format::inode::{Dinode, Fork, ForkKind};

use crate::contents::in_memory;
use crate::{Error, Metadata, Result, Volume};

/// What an inode alone tells of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncachedStat {
    /// What is known of it.
    pub metadata: Metadata,
    /// Extended attributes by the names that Linux programs know, as [`Volume::list_attributes`] has them; `None` where
    /// they lie outside of the inode.
    pub attributes: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    /// Where a symbolic link points; `None` for other files, and where the target lies outside of the inode.
    pub target: Option<Vec<u8>>,
}

impl UncachedStat {
    fn of(inode: &Dinode<'_>, geometry: &Geometry) -> Option<Self> {
        let metadata = Metadata::of(inode)?;
        let fork = |kind| inode.fork(kind, geometry).ok();
        let target = match (metadata.file_type, fork(ForkKind::Data)) {
            (format::inode::FileType::Symlink, Some(Some(Fork::Local(target)))) => Some(target.to_vec()),
            _ => None,
        };
        let attributes = match fork(ForkKind::Attr)? {
            None => Some(Vec::new()),
            Some(Fork::Local(bytes)) => inside(bytes, geometry),
            Some(Fork::Extents(_)) if inode.extent_count(ForkKind::Attr) == 0 => Some(Vec::new()),
            Some(_) => None,
        };
        Some(Self { metadata, attributes, target })
    }
}

/// Attributes in an inode; `None` where they are not as they should be, which whoever asks for them in the other way is
/// told.
fn inside(bytes: &[u8], geometry: &Geometry) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = Vec::new();
    for attr in shortform::attributes(bytes, geometry).ok()? {
        let AttrValue::Inline(value) = attr.value else { return None };
        if let Some(list) = acl::linux_name(attr.namespace, attr.name) {
            all.push((list.as_bytes().to_vec(), acl::to_linux(value).ok()?));
        } else if let Some(prefix) = attr.namespace.prefix() {
            all.push(([prefix.as_bytes(), attr.name].concat(), value.to_vec()));
        }
    }
    Some(all)
}

impl Volume {
    /// A look at a file. It costs a fraction of [`metadata`](Self::metadata) and the attributes, as nothing is put into
    /// the table of inodes.
    ///
    /// # Errors
    /// `ENOENT` where the inode is free; damage.
    pub fn stat_uncached(&self, ino: Ino) -> Result<UncachedStat> {
        let geometry = &self.geometry;
        let found = self.inode_cache.read_uncached(ino, |inode, held| {
            let mut stat = UncachedStat::of(inode, geometry)?;
            if let Some(contents) = held.and_then(in_memory) {
                // What is not written yet counts as if it were.
                stat.metadata.size = contents.size();
                stat.metadata.blocks += contents.reserved_blocks();
            }
            Some(stat)
        })?;
        found.ok_or(Error::refused(base::errno::ENOENT, "the inode is free"))
    }
}

//! `stat` of many files without filling the inode cache: for programs that compare a tree, in which most files did not
//! change.

use base::{Ino, rcu};
use format::Geometry;
use format::attr::edit::shortform;
use format::attr::{AttrValue, acl};
use format::inode::{Dinode, FileType, Fork, ForkKind};
use inode::InodeStat;

use crate::metadata::UnmappedData;
use crate::{Error, Metadata, Result, Volume};

/// What an inode alone contains: metadata, short attributes, a short symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncachedStat {
    /// Metadata.
    pub metadata: Metadata,
    /// Extended attributes, named as in [`Volume::list_attributes`]; `None` if they are not in the inode.
    pub attributes: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    /// Target of a symbolic link; `None` for other files, and if the target is not in the inode.
    pub target: Option<Vec<u8>>,
}

impl UncachedStat {
    fn of(inode: &Dinode<'_>, geometry: &Geometry) -> Option<Self> {
        let metadata = Metadata::of(&InodeStat::of(inode))?;
        let fork = |kind| inode.fork(kind, geometry).ok();
        let target = match (metadata.file_type, fork(ForkKind::Data)) {
            (FileType::Symlink, Some(Some(Fork::Local(target)))) => Some(target.to_vec()),
            _ => None,
        };
        let attributes = match fork(ForkKind::Attr)? {
            None => Some(Vec::new()),
            Some(Fork::Local(bytes)) => inline_attributes(bytes, geometry),
            Some(Fork::Extents(_)) if inode.extent_count(ForkKind::Attr) == 0 => Some(Vec::new()),
            Some(_) => None,
        };
        Some(Self { metadata, attributes, target })
    }
}

/// Attributes of a local attribute fork; `None` if they are damaged: [`Volume::list_attributes`] reports that.
fn inline_attributes(bytes: &[u8], geometry: &Geometry) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut attributes = Vec::new();
    for attr in shortform::attributes(bytes, geometry).ok()? {
        let AttrValue::Inline(value) = attr.value else { return None };
        if let Some(acl_name) = acl::linux_name(attr.namespace, attr.name) {
            attributes.push((acl_name.as_bytes().to_vec(), acl::to_linux(value).ok()?));
        } else if let Some(prefix) = attr.namespace.prefix() {
            attributes.push(([prefix.as_bytes(), attr.name].concat(), value.to_vec()));
        }
    }
    Some(attributes)
}

impl Volume {
    /// Returns what the inode of a file contains, without adding it to the inode cache. This takes a fraction of the
    /// time of [`metadata`](Self::metadata) and [`list_attributes`](Self::list_attributes).
    ///
    /// # Errors
    /// `ENOENT` if the inode is free; damage.
    pub fn stat_uncached(&self, ino: Ino) -> Result<UncachedStat> {
        let geometry = &self.geometry;
        let stat = self.inode_cache.read_uncached(ino, |inode, cached| {
            let mut stat = UncachedStat::of(inode, geometry)?;
            let data = cached.and_then(|inode| rcu::read(|section| UnmappedData::in_memory(inode, section)));
            if let Some(data) = data {
                stat.metadata.add_unmapped(data);
            }
            Some(stat)
        })?;
        stat.ok_or(Error::refused(base::errno::ENOENT, "the inode is free"))
    }
}

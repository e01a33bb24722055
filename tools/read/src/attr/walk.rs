//! All attributes of an inode.

use format::attr::Attr;
use format::attr::leaf::AttrLeaf;
use format::attr::shortform::AttrShortform;
use format::dabtree::DaTree;
use format::inode::{Dinode, Fork, ForkKind};
use format::{Damage, ForkBlock, Place};

use crate::error::{Error, Result};
use crate::fork;
use crate::hashtree::HashTree;
use crate::volume::Volume;

/// Walks attributes in disk order: those in the inode by offset, those in leaves by hash. The walk always ends, and
/// stops after the first error.
pub struct AttrWalk<'a> {
    volume: &'a Volume,
    inode: Dinode<'a>,
    inline: Option<&'a [u8]>,
    tree: Option<HashTree<'a>>,
    last: Option<ForkBlock>,
}

impl<'a> AttrWalk<'a> {
    /// Starts a walk.
    ///
    /// # Errors
    /// Damage of the attribute fork.
    pub fn new(volume: &'a Volume, inode: &Dinode<'a>) -> Result<Self> {
        let (inline, tree) = match attr_fork(volume, inode)? {
            AttrFork::None => (None, None),
            AttrFork::Inline(bytes) => (Some(bytes), None),
            AttrFork::Tree => (None, Some(HashTree::new(volume, inode, DaTree::Attr))),
        };
        Ok(Self { volume, inode: *inode, inline, tree, last: None })
    }

    /// The next batch of attributes; `None` at the end.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn next_batch(&mut self) -> Result<Option<AttrBatch<'_>>> {
        if let Some(bytes) = self.inline.take() {
            let place = Place::ino(self.inode.ino());
            let shortform = AttrShortform::verify(bytes, self.volume.geometry())
                .map_err(|damage| Error::damaged(place, damage))?;
            return Ok(Some(AttrBatch { body: Body::Inline(shortform), place }));
        }
        // Put back below; after an error the walk is over.
        let Some(mut tree) = self.tree.take() else { return Ok(None) };
        let next = match self.last {
            None => tree.descend(0)?,
            Some(block) => tree.right(block)?,
        };
        let Some(block) = next else { return Ok(None) };
        self.last = Some(block);
        let tree = self.tree.insert(tree);
        let leaf = AttrLeaf::verify(tree.bytes(), self.volume.geometry(), block).map_err(fork::at(block))?;
        Ok(Some(AttrBatch { body: Body::Leaf(leaf), place: block.place() }))
    }
}

/// Where the attributes of an inode are stored.
pub(super) enum AttrFork<'a> {
    /// There are none.
    None,
    /// In the inode.
    Inline(&'a [u8]),
    /// In leaves.
    Tree,
}

pub(super) fn attr_fork<'a>(volume: &Volume, inode: &Dinode<'a>) -> Result<AttrFork<'a>> {
    let fork = inode
        .fork(ForkKind::Attr, volume.geometry())
        .map_err(|damage| Error::damaged(Place::ino(inode.ino()), damage))?;
    Ok(match fork {
        Some(Fork::Local(bytes)) => AttrFork::Inline(bytes),
        // A fork that lost its last attribute, or was made for one that never came.
        Some(Fork::Extents([])) | Some(Fork::Device(_)) | None => AttrFork::None,
        Some(Fork::Extents(_) | Fork::Btree(_)) => AttrFork::Tree,
    })
}

/// Attributes of one inode or leaf.
pub struct AttrBatch<'b> {
    body: Body<'b>,
    place: Place,
}

enum Body<'b> {
    Inline(AttrShortform<'b>),
    Leaf(AttrLeaf<'b>),
}

impl<'b> AttrBatch<'b> {
    /// The attributes. A damaged one yields an error, and the walk continues after it as long as lengths are
    /// valid.
    pub fn attrs(&self) -> impl Iterator<Item = Result<Attr<'b>>> + use<'b> {
        let place = self.place;
        let (inline, leaf) = match &self.body {
            Body::Inline(shortform) => (Some(shortform.entries()), None),
            Body::Leaf(leaf) => (None, Some(leaf.attrs())),
        };
        let all = inline.into_iter().flatten().chain(leaf.into_iter().flatten());
        all.map(move |attr| attr.map_err(|damage| Error::damaged(place, damage)))
    }

    /// Damage at that place.
    pub(super) fn damaged(&self) -> impl Fn(Damage) -> Error + use<> {
        let place = self.place;
        move |damage| Error::damaged(place, damage)
    }
}

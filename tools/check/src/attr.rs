//! Extended attributes of one inode, in every format: names, values, access control lists, parent pointers.

use base::{FileBlock, Ino};
use format::attr::leaf::{AttrLeaf, AttrLeafEntry};
use format::attr::shortform::AttrShortform;
use format::attr::{Attr, AttrValue, Namespace, acl, remote};
use format::dabtree::DaTree;
use format::fork_block::ForkBlock;
use format::inode::{Dinode, Fork, ForkKind};
use format::{Damage, Place};

use crate::block_map::{Batch, BlockMap};
use crate::hash_tree::{HashTree, LeafSummary};
use crate::parents;
use crate::volume::Volume;

const NAME: &str = "extended attributes";
const ACL: &str = "access control list";

/// Checks the attributes of inodes, one after the other, with the same buffers.
#[derive(Default)]
pub(crate) struct AttrCheck {
    tree: HashTree,
    value: Batch,
}

/// The attributes with the last hash of the previous leaf.
#[derive(Default)]
struct LastHash {
    hash: u32,
    keys: Vec<Vec<u8>>,
}

/// The attributes of one inode.
struct InodeAttrs<'s> {
    volume: &'s Volume<'s>,
    ino: Ino,
    blocks: &'s BlockMap,
    /// Sum of the fingerprints of parent pointers.
    parents: u64,
    /// Blocks of remote values.
    remote_blocks: u64,
    /// Some attribute is incomplete.
    incomplete: bool,
    damaged: bool,
}

impl AttrCheck {
    /// Checks the attributes of an inode. `blocks` is the block map of its attribute fork, which could be read.
    /// Returns the sum of the fingerprints of its parent pointers.
    pub fn run(&mut self, volume: &Volume<'_>, ino: Ino, inode: &Dinode<'_>, blocks: &BlockMap) -> u64 {
        let (parents, remote_blocks, incomplete, damaged) = (0, 0, false, false);
        let mut attrs = InodeAttrs { volume, ino, blocks, parents, remote_blocks, incomplete, damaged };
        match inode.fork(ForkKind::Attr, &volume.geometry) {
            Ok(Some(Fork::Local(bytes))) => attrs.check_shortform(bytes),
            Ok(Some(Fork::Extents(_) | Fork::Btree(_))) => self.check_blocks(&mut attrs),
            _ => (), // no attributes, or the damage of the fork was reported
        }
        attrs.parents
    }

    fn check_blocks(&mut self, attrs: &mut InodeAttrs<'_>) {
        let (volume, blocks) = (attrs.volume, attrs.blocks);
        let mapped = blocks.count(FileBlock(0)..FileBlock(u64::MAX));
        if mapped == 0 {
            return; // a fork that does not have attributes yet
        }
        let mut last = LastHash::default();
        let value = &mut self.value;
        let mut visit = |bytes: &[u8], at: ForkBlock| attrs.check_leaf(bytes, at, &mut last, value);
        let tree = self.tree.walk(volume, blocks, DaTree::Attr, FileBlock(0), mapped, &mut visit);
        let used = tree.blocks + attrs.remote_blocks;
        if tree.complete && !attrs.incomplete && !attrs.damaged && used != mapped {
            attrs.report(Damage::new(NAME, "extents", format_args!("{used} blocks, all in use"), mapped));
        }
    }
}

impl InodeAttrs<'_> {
    fn check_shortform(&mut self, bytes: &[u8]) {
        let shortform = AttrShortform::verify(bytes, &self.volume.geometry);
        let Some(shortform) = self.accept(shortform.and_then(|list| list.audit().map(|()| list))) else {
            return;
        };
        let attrs = || shortform.entries().flatten();
        for (n, attr) in attrs().enumerate() {
            if attrs().take(n).any(|other| same_name(&attr, &other)) {
                self.report_duplicate(&attr);
            }
            self.check_attr(&attr, None);
        }
    }

    fn check_leaf(
        &mut self,
        bytes: &[u8],
        at: ForkBlock,
        last: &mut LastHash,
        value: &mut Batch,
    ) -> Option<LeafSummary> {
        let volume = self.volume;
        let leaf = AttrLeaf::verify(bytes, &volume.geometry, at);
        let leaf = volume.accept(at.place(), leaf.and_then(|leaf| leaf.audit().map(|()| leaf)));
        self.damaged |= leaf.is_none();
        let leaf = leaf?;
        if leaf.entries.first().is_some_and(|first| first.hashval.get() < last.hash) {
            let expected = format!("at least {:#x}, the last hash of the left sibling", last.hash);
            volume.error(at.place(), Damage::new("attribute leaf", "hashval", expected, "a lower hash"));
        }
        for same_hash in leaf.entries.chunk_by(|left, right| left.hashval == right.hashval) {
            self.check_same_hash(&leaf, same_hash, last);
        }
        for attr in leaf.attrs().flatten() {
            self.check_attr(&attr, Some(value));
        }
        Some(LeafSummary { last_hash: leaf.last_hash(), empty: leaf.entries.is_empty() })
    }

    /// Compares names of one hash with each other, and with those at the end of the left sibling.
    fn check_same_hash(&self, leaf: &AttrLeaf<'_>, same_hash: &[AttrLeafEntry], last: &mut LastHash) {
        let Some(hash) = same_hash.first().map(|entry| entry.hashval.get()) else { return };
        if last.hash != hash {
            last.keys.clear();
        }
        if same_hash.len() == 1 && last.keys.is_empty() && leaf.last_hash() != hash {
            return;
        }
        last.hash = hash;
        // An interrupted replacement leaves an incomplete attribute of the same name.
        let attrs = same_hash.iter().filter_map(|entry| leaf.attr(entry).ok());
        last.keys.extend(attrs.filter(|attr| !attr.incomplete).map(|attr| key(&attr)));
        last.keys.sort_unstable();
        if last.keys.windows(2).any(|pair| matches!(pair, [left, right] if left == right)) {
            let found = format!("a duplicate with hash {hash:#x}");
            self.report(Damage::new(NAME, "name", "unique in its namespace", found));
        }
    }

    fn check_attr(&mut self, attr: &Attr<'_>, value: Option<&mut Batch>) {
        if attr.incomplete {
            self.incomplete = true;
            let found = format_args!("INCOMPLETE of \"{}\"", attr.name.escape_ascii()).to_string();
            let damage = Damage::new(NAME, "flags", "no INCOMPLETE flag", found);
            return self.volume.report_unrecovered(Place::ino(self.ino), damage);
        }
        if attr.namespace == Namespace::Parent {
            if !self.volume.geometry.features.parent() {
                let expected = "no parent pointer without the feature";
                self.report(Damage::new(NAME, "flags", expected, "a parent pointer"));
            }
            let fingerprint = parents::of_attr(attr, &self.volume.geometry);
            self.parents = self.parents.wrapping_add(fingerprint);
        }
        let is_acl = acl::linux_name(attr.namespace, attr.name).is_some();
        match (attr.value, value) {
            (AttrValue::Inline(bytes), _) if is_acl => self.check_acl(bytes),
            (AttrValue::Remote { block, length }, Some(batch)) => {
                self.check_value(block, length, is_acl, batch)
            }
            _ => (),
        }
    }

    fn check_value(&mut self, first: FileBlock, length: u32, is_acl: bool, batch: &mut Batch) {
        let volume = self.volume;
        let count = remote::block_count(length, &volume.geometry);
        self.remote_blocks += u64::from(count);
        // The value of an access control list, at most 65536 bytes.
        let mut acl_value = Vec::new();
        let mut offset = 0;
        for n in 0..u64::from(count) {
            let block = FileBlock(first.get() + n);
            let Some(at) = self.blocks.read_one(volume, "remote attribute value", 0, block, batch) else {
                self.damaged = true;
                return;
            };
            let part = remote::verify(&batch.bytes, &volume.geometry, at, offset, length);
            let Some(part) = volume.accept(at.place(), part) else {
                self.damaged = true;
                return;
            };
            offset += part.len() as u32;
            if is_acl {
                acl_value.extend_from_slice(part);
            }
        }
        if is_acl {
            self.check_acl(&acl_value);
        }
    }

    fn check_acl(&self, value: &[u8]) {
        self.accept(acl::entries(value).and_then(check_acl_entries));
    }

    #[cold]
    fn report_duplicate(&self, attr: &Attr<'_>) {
        let found = format!("a duplicate of \"{}\"", attr.name.escape_ascii());
        self.report(Damage::new(NAME, "name", "unique in its namespace", found));
    }

    fn accept<T>(&self, verified: Result<T, Damage>) -> Option<T> {
        self.volume.accept(Place::ino(self.ino), verified)
    }

    #[cold]
    fn report(&self, damage: Damage) {
        self.volume.error(Place::ino(self.ino), damage);
    }
}

/// Checks that the entries of the owning user, the owning group and others exist once each, and that there is a mask
/// if there are named users or groups.
fn check_acl_entries(entries: &[acl::AclEntry]) -> Result<(), Damage> {
    use acl::tag;
    let count = |tag| entries.iter().filter(|entry| entry.ae_tag.get() == tag).count();
    let base = [tag::USER_OBJ, tag::GROUP_OBJ, tag::OTHER].map(count);
    let expected = "one entry each of owner, group and others";
    format::ensure!(base == [1; 3] || entries.is_empty(), ACL, "ae_tag", expected, format_args!("{base:?}"));
    let named = count(tag::USER) + count(tag::GROUP);
    let masks = count(tag::MASK);
    let masks_are_valid = masks == 1 || masks == 0 && named == 0;
    let expected = "one mask (none without named users and groups)";
    format::ensure!(masks_are_valid, ACL, "ae_tag", expected, format_args!("{masks} masks"));
    Ok(())
}

fn same_name(left: &Attr<'_>, right: &Attr<'_>) -> bool {
    let parent = left.namespace == Namespace::Parent;
    (left.namespace, left.name) == (right.namespace, right.name) && (!parent || left.value == right.value)
}

/// The bytes that must be unique: namespace and name, and the value of a parent pointer.
fn key(attr: &Attr<'_>) -> Vec<u8> {
    let mut key = vec![attr.namespace as u8];
    key.extend_from_slice(attr.name);
    if let (Namespace::Parent, AttrValue::Inline(value)) = (attr.namespace, attr.value) {
        key.push(0);
        key.extend_from_slice(value);
    }
    key
}

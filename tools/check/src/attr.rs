//! Extended attributes of one inode, in each form: names, values, access control lists, parent pointers.

use base::{FileBlock, Ino};
use format::attr::leaf::{AttrLeaf, AttrLeafEntry};
use format::attr::shortform::AttrShortform;
use format::attr::{Attr, AttrValue, Namespace, acl, remote};
use format::dabtree::DaTree;
use format::fork_block::ForkBlock;
use format::inode::{Dinode, Fork, ForkKind};
use format::{Damage, Place};

use crate::block_map::{Batch, BlockMap};
use crate::hash_tree::{HashTree, LeafEnds};
use crate::parents;
use crate::volume::Volume;

const NAME: &str = "extended attributes";
const ACL: &str = "access control list";

/// Checks attributes, one inode after the other, with the same buffers.
#[derive(Default)]
pub(crate) struct AttrCheck {
    tree: HashTree,
    value: Batch,
}

/// What the attributes of an inode amount to.
#[derive(Clone, Copy, Default)]
pub(crate) struct AttrTotal {
    /// Sum of the fingerprints of parent pointers.
    pub parents: u64,
    /// Blocks of remote values.
    remote_blocks: u64,
    /// An attribute is half written or half removed.
    incomplete: bool,
    damaged: bool,
}

/// Attributes of one hash, of the leaf before.
#[derive(Default)]
struct Run {
    hash: u32,
    keys: Vec<Vec<u8>>,
}

/// One inode under check.
struct Subject<'s> {
    volume: &'s Volume<'s>,
    ino: Ino,
    blocks: &'s BlockMap,
    total: AttrTotal,
}

impl AttrCheck {
    /// Checks the attributes of an inode; `blocks` are those of its attribute fork, all of which could be followed.
    pub fn run(&mut self, volume: &Volume<'_>, ino: Ino, inode: &Dinode<'_>, blocks: &BlockMap) -> AttrTotal {
        let mut subject = Subject { volume, ino, blocks, total: AttrTotal::default() };
        match inode.fork(ForkKind::Attr, &volume.geometry) {
            Ok(Some(Fork::Local(bytes))) => subject.check_shortform(bytes),
            Ok(Some(Fork::Extents(_) | Fork::Btree(_))) => self.check_blocks(&mut subject),
            _ => (), // there are none, or the fork was reported
        }
        subject.total
    }

    fn check_blocks(&mut self, subject: &mut Subject<'_>) {
        let (volume, blocks) = (subject.volume, subject.blocks);
        let all = FileBlock(0)..FileBlock(u64::MAX);
        let mapped = blocks.count(all);
        if mapped == 0 {
            return; // an attribute fork that was made, and nothing in it yet
        }
        let mut run = Run::default();
        let value = &mut self.value;
        let mut visit = |bytes: &[u8], at: ForkBlock| subject.check_leaf(bytes, at, &mut run, value);
        let tree = self.tree.walk(volume, blocks, DaTree::Attr, FileBlock(0), mapped, &mut visit);
        let total = subject.total;
        let used = tree.blocks + total.remote_blocks;
        if tree.complete && !total.incomplete && !total.damaged && used != mapped {
            subject.tell(Damage::new(
                NAME,
                "extents",
                format_args!("{used} blocks, as many as are used"),
                mapped,
            ));
        }
    }
}

impl Subject<'_> {
    fn check_shortform(&mut self, bytes: &[u8]) {
        let form = match AttrShortform::verify(bytes, &self.volume.geometry) {
            Ok(form) => form,
            Err(damage) => return self.tell(damage),
        };
        if let Err(damage) = form.audit() {
            return self.tell(damage);
        }
        let attrs = || form.entries().flatten();
        for (n, attr) in attrs().enumerate() {
            if attrs().take(n).any(|other| same_name(&attr, &other)) {
                self.tell_duplicate(&attr);
            }
            self.check_attr(&attr, None);
        }
    }

    fn check_leaf(
        &mut self,
        bytes: &[u8],
        at: ForkBlock,
        run: &mut Run,
        value: &mut Batch,
    ) -> Option<LeafEnds> {
        let volume = self.volume;
        let leaf = AttrLeaf::verify(bytes, &volume.geometry, at);
        let leaf = match leaf.and_then(|leaf| leaf.audit().map(|()| leaf)) {
            Ok(leaf) => leaf,
            Err(damage) => {
                self.total.damaged = true;
                volume.error(at.place(), damage);
                return None;
            }
        };
        if leaf.entries.first().is_some_and(|first| first.hashval.get() < run.hash) {
            let expected = format!("at least {:#x}, the last of the leaf to the left", run.hash);
            volume.error(at.place(), Damage::new("attribute leaf", "hashval", expected, "a lower hash"));
        }
        for alike in leaf.entries.chunk_by(|left, right| left.hashval == right.hashval) {
            self.check_alike(&leaf, alike, run);
        }
        for attr in leaf.attrs().flatten() {
            self.check_attr(&attr, Some(value));
        }
        Some(LeafEnds { last_hash: leaf.last_hash(), empty: leaf.entries.is_empty() })
    }

    /// Names of one hash are compared with each other, and with those that the leaf to the left ended with.
    fn check_alike(&self, leaf: &AttrLeaf<'_>, alike: &[AttrLeafEntry], run: &mut Run) {
        let Some(hash) = alike.first().map(|entry| entry.hashval.get()) else { return };
        let last = leaf.last_hash() == hash;
        if run.hash != hash {
            run.keys.clear();
        }
        if alike.len() == 1 && run.keys.is_empty() && !last {
            return;
        }
        run.hash = hash;
        // What a change left that was cut off stands beside what it was to be replaced by, or to replace.
        let whole = alike.iter().filter_map(|entry| leaf.attr(entry).ok()).filter(|attr| !attr.incomplete);
        run.keys.extend(whole.map(|attr| key(&attr)));
        run.keys.sort_unstable();
        if run.keys.windows(2).any(|pair| matches!(pair, [left, right] if left == right)) {
            let found = format!("one twice, of hash {hash:#x}");
            self.tell(Damage::new(NAME, "name", "each name once in its namespace", found));
        }
    }

    fn check_attr(&mut self, attr: &Attr<'_>, value: Option<&mut Batch>) {
        if attr.incomplete {
            self.total.incomplete = true;
            let damage = Damage::new(
                NAME,
                "flags",
                "complete attributes",
                format_args!("\"{}\" incomplete", attr.name.escape_ascii()),
            );
            return self.volume.unfinished(Place::ino(self.ino), damage);
        }
        if attr.namespace == Namespace::Parent {
            if !self.volume.geometry.features.parent() {
                self.tell(Damage::new(
                    NAME,
                    "flags",
                    "no parent pointer without the feature",
                    "a parent pointer",
                ));
            }
            let print = parents::of_attr(attr, &self.volume.geometry);
            self.total.parents = self.total.parents.wrapping_add(print);
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
        self.total.remote_blocks += u64::from(count);
        // At most 65536 bytes, which is the most that a list has.
        let mut whole = Vec::new();
        let mut offset = 0;
        for n in 0..u64::from(count) {
            let block = FileBlock(first.get() + n);
            let Some(at) = self.blocks.read_one(volume, "remote attribute value", 0, block, batch) else {
                self.total.damaged = true;
                return;
            };
            match remote::verify(&batch.bytes, &volume.geometry, at, offset, length) {
                Ok(part) => {
                    offset += part.len() as u32;
                    if is_acl {
                        whole.extend_from_slice(part);
                    }
                }
                Err(damage) => {
                    self.total.damaged = true;
                    return volume.error(at.place(), damage);
                }
            }
        }
        if is_acl {
            self.check_acl(&whole);
        }
    }

    fn check_acl(&self, value: &[u8]) {
        if let Err(damage) = acl::entries(value).and_then(check_acl_entries) {
            self.tell(damage);
        }
    }

    #[cold]
    fn tell_duplicate(&self, attr: &Attr<'_>) {
        let found = format!("\"{}\" twice", attr.name.escape_ascii());
        self.tell(Damage::new(NAME, "name", "each name once in its namespace", found));
    }

    #[cold]
    fn tell(&self, damage: Damage) {
        self.volume.error(Place::ino(self.ino), damage);
    }
}

/// The owner, the group and everybody else once each; a mask where users or groups are named.
fn check_acl_entries(entries: &[acl::AclEntry]) -> Result<(), Damage> {
    use acl::tag;
    let count = |tag| entries.iter().filter(|entry| entry.ae_tag.get() == tag).count();
    let once = [tag::USER_OBJ, tag::GROUP_OBJ, tag::OTHER].iter().all(|tag| count(*tag) == 1);
    format::ensure!(once || entries.is_empty(), ACL, "ae_tag", "owner, group and others once each", "not so");
    let named = count(tag::USER) + count(tag::GROUP) > 0;
    let masks = count(tag::MASK);
    format::ensure!(
        masks <= 1 && (masks == 1 || !named),
        ACL,
        "ae_tag",
        "one mask beside named users",
        masks
    );
    Ok(())
}

fn same_name(left: &Attr<'_>, right: &Attr<'_>) -> bool {
    let parent = left.namespace == Namespace::Parent;
    (left.namespace, left.name) == (right.namespace, right.name) && (!parent || left.value == right.value)
}

/// What must be unique: namespace and name; of a parent pointer, the parent too.
fn key(attr: &Attr<'_>) -> Vec<u8> {
    let mut key = vec![attr.namespace as u8];
    key.extend_from_slice(attr.name);
    if let (Namespace::Parent, AttrValue::Inline(value)) = (attr.namespace, attr.value) {
        key.push(0);
        key.extend_from_slice(value);
    }
    key
}

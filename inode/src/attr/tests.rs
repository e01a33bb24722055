//! Attributes on a fork of a small volume whose allocator fails on request.

use std::collections::BTreeMap;

use base::{FileBlock, errno};
use error::Error;
use format::attr::Namespace;
use format::dabtree::{self, NodeEntry};
use format::hash;
use journal::engine::Loggable;

use super::{AttrKey, Attributes, NewAttrValue};
use crate::dabtree::HashTree;
use crate::inode::LockedInode;
use crate::testing::Bench;

const ROOM: u32 = 100;

type Model = BTreeMap<String, Vec<u8>>;

fn key(name: &str) -> AttrKey<'_> {
    AttrKey::new(Namespace::User, name.as_bytes())
}

/// Makes one change. Commits it if it succeeded, otherwise drops it, as every caller does.
fn set(bench: &Bench, locked: &mut LockedInode, name: &str, value: &[u8]) -> Result<(), Error> {
    let mut tx = bench.begin();
    let mut space = bench.space();
    let done = Attributes::new(bench.shared(), &mut tx, &mut space, locked, ROOM)?
        .set(&key(name), &NewAttrValue::Inline(value));
    drop(space);
    done.and_then(|()| tx.commit(&mut [locked as &mut dyn Loggable]))
}

fn remove(bench: &Bench, locked: &mut LockedInode, name: &str) {
    let mut tx = bench.begin();
    let mut space = bench.space();
    let mut attributes = Attributes::new(bench.shared(), &mut tx, &mut space, locked, ROOM).unwrap();
    assert!(attributes.remove(&key(name)).unwrap());
    drop(space);
    tx.commit(&mut [locked]).unwrap();
}

/// The entries of the node at a block.
fn node(bench: &Bench, locked: &mut LockedInode, block: FileBlock) -> Vec<NodeEntry> {
    let mut tx = bench.shared().reader();
    let mut space = bench.space();
    let mut attributes = Attributes::new(bench.shared(), &mut tx, &mut space, locked, 0).unwrap();
    let id = attributes.read_tree_block(block).unwrap();
    attributes.view(id, |bytes| Ok(dabtree::edit::entries(bytes)?.to_vec())).unwrap()
}

fn found(bench: &Bench, locked: &mut LockedInode) -> Model {
    let mut tx = bench.shared().reader();
    let mut space = bench.space();
    let mut attributes = Attributes::new(bench.shared(), &mut tx, &mut space, locked, 0).unwrap();
    let mut all = Model::new();
    for listed in attributes.list().unwrap() {
        let name = String::from_utf8(listed.name.to_vec()).unwrap();
        all.insert(name.clone(), attributes.get(&key(&name)).unwrap().unwrap());
    }
    all
}

/// An attribute that did not fit the inode emptied the fork before it allocated a block. If that allocation failed, the
/// call reported "no space", and the inode was left without any attributes: without its access control list, its
/// security label and its parent pointers.
#[test]
fn a_refused_attribute_leaves_the_others_in_the_inode() {
    let bench = Bench::new();
    let (_held, mut locked) = bench.create(0o100_644);
    let mut model = Model::new();
    for n in 0..4u8 {
        set(&bench, &mut locked, &format!("label {n}"), &[n; 30]).unwrap();
        model.insert(format!("label {n}"), vec![n; 30]);
    }
    bench.groups.allow(Some(0));
    let before = locked.parts().1.to_vec();
    let refused = set(&bench, &mut locked, "one more", &[9; 300]).unwrap_err();
    assert_eq!(refused.errno(), errno::ENOSPC);
    assert!(!locked.is_changed(), "a refused change leaves the inode as it was");
    assert_eq!(found(&bench, &mut locked), model);
    assert_eq!(locked.parts().1, before);
    bench.shared().target.check().unwrap();
    bench.groups.allow(None);
    set(&bench, &mut locked, "one more", &[9; 300]).unwrap();
    model.insert("one more".to_owned(), vec![9; 300]);
    assert_eq!(found(&bench, &mut locked), model);
}

/// An emptied leaf stayed if it was the only child of its node, which Linux reports as damage.
#[test]
fn the_only_leaf_of_a_node_goes_with_the_node() {
    // Names with ascending hashes. Each attribute fills a leaf.
    let name = |number: u32| format!("{:04}", number * 10);
    let bench = Bench::new();
    let (_held, mut locked) = bench.create(0o100_644);
    let mut model = Model::new();
    let mut add = |locked: &mut LockedInode, name: String| {
        set(&bench, locked, &name, &[7; 600]).unwrap();
        model.insert(name, vec![7; 600]);
    };
    // One more than a node has entries.
    (0..121).for_each(|number| add(&mut locked, name(number)));
    let [left, right] = node(&bench, &mut locked, FileBlock(0)).try_into().unwrap();
    // The left node must be too full to be joined with the right one.
    (0..45).for_each(|number| add(&mut locked, format!("{}5", &name(number)[..3])));
    let in_right = |name: &str| hash::name(name.as_bytes()) > left.hashval.get();
    let gone: Vec<String> = model.keys().filter(|name| in_right(name)).cloned().collect();
    let (last, others) = gone.split_last().unwrap();
    others.iter().for_each(|name| remove(&bench, &mut locked, name));
    assert_eq!(node(&bench, &mut locked, right.child()).len(), 1);
    remove(&bench, &mut locked, last);
    model.retain(|name, _| !in_right(name));
    assert_eq!(node(&bench, &mut locked, FileBlock(0)).len(), model.len(), "the root is above the leaves");
    assert_eq!(found(&bench, &mut locked), model);
    bench.shared().target.check().unwrap();
}

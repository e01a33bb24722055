//! Attributes on a fork of a small volume whose allocator fails on request.

use std::collections::BTreeMap;

use base::{FileBlock, errno};
use error::Result;
use format::attr::Namespace;
use format::dabtree::{self, NodeEntry};
use format::hash;
use journal::engine::Loggable;

use super::{AttrKey, Attributes, NewAttrValue};
use crate::dabtree::TreeReader;
use crate::inode::LockedInode;
use crate::testing::Fixture;

const ROOM: u32 = 100;

type Model = BTreeMap<String, Vec<u8>>;

fn key(name: &str) -> AttrKey<'_> {
    AttrKey::new(Namespace::User, name.as_bytes())
}

/// Makes one change. Commits it if it succeeded, otherwise drops it, as every caller does.
fn set(fixture: &Fixture, locked: &mut LockedInode, name: &str, value: &[u8]) -> Result<()> {
    let mut tx = fixture.begin();
    let mut space = fixture.space();
    let done = Attributes::new(fixture.shared(), &mut tx, &mut space, locked, ROOM)?
        .set(&key(name), &NewAttrValue::Inline(value));
    drop(space);
    done.and_then(|()| tx.commit(&mut [locked as &mut dyn Loggable]))
}

fn remove(fixture: &Fixture, locked: &mut LockedInode, name: &str) {
    let mut tx = fixture.begin();
    let mut space = fixture.space();
    let mut attributes = Attributes::new(fixture.shared(), &mut tx, &mut space, locked, ROOM).unwrap();
    assert!(attributes.remove(&key(name)).unwrap());
    drop(space);
    tx.commit(&mut [locked]).unwrap();
}

/// The entries of the node at a block.
fn node(fixture: &Fixture, locked: &mut LockedInode, block: FileBlock) -> Vec<NodeEntry> {
    let mut tx = fixture.shared().reader();
    let mut space = fixture.space();
    let mut attributes = Attributes::new(fixture.shared(), &mut tx, &mut space, locked, 0).unwrap();
    let id = attributes.read_tree_block(block).unwrap();
    attributes.view(id, |bytes| Ok(dabtree::edit::entries(bytes)?.to_vec())).unwrap()
}

fn found(fixture: &Fixture, locked: &mut LockedInode) -> Model {
    let mut tx = fixture.shared().reader();
    let mut space = fixture.space();
    let mut attributes = Attributes::new(fixture.shared(), &mut tx, &mut space, locked, 0).unwrap();
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
    let fixture = Fixture::new();
    let (_held, mut locked) = fixture.create(0o100_644);
    let mut model = Model::new();
    for n in 0..4u8 {
        set(&fixture, &mut locked, &format!("label {n}"), &[n; 30]).unwrap();
        model.insert(format!("label {n}"), vec![n; 30]);
    }
    fixture.groups.allow(Some(0));
    let before = locked.parts().1.to_vec();
    let refused = set(&fixture, &mut locked, "one more", &[9; 300]).unwrap_err();
    assert_eq!(refused.errno(), errno::ENOSPC);
    assert!(!locked.is_changed(), "a refused change leaves the inode as it was");
    assert_eq!(found(&fixture, &mut locked), model);
    assert_eq!(locked.parts().1, before);
    fixture.shared().target.check().unwrap();
    fixture.groups.allow(None);
    set(&fixture, &mut locked, "one more", &[9; 300]).unwrap();
    model.insert("one more".to_owned(), vec![9; 300]);
    assert_eq!(found(&fixture, &mut locked), model);
}

/// An emptied leaf stayed if it was the only child of its node, which Linux reports as damage.
#[test]
fn the_only_leaf_of_a_node_goes_with_the_node() {
    // Names with ascending hashes. Each attribute fills a leaf.
    let name = |number: u32| format!("{:04}", number * 10);
    let fixture = Fixture::new();
    let (_held, mut locked) = fixture.create(0o100_644);
    let mut model = Model::new();
    let mut add = |locked: &mut LockedInode, name: String| {
        set(&fixture, locked, &name, &[7; 600]).unwrap();
        model.insert(name, vec![7; 600]);
    };
    // One more than a node has entries.
    (0..121).for_each(|number| add(&mut locked, name(number)));
    let [left, right] = node(&fixture, &mut locked, FileBlock(0)).try_into().unwrap();
    // The left node must be too full to be joined with the right one.
    (0..45).for_each(|number| add(&mut locked, format!("{}5", &name(number)[..3])));
    let in_right = |name: &str| hash::name(name.as_bytes()) > left.hashval.get();
    let gone: Vec<String> = model.keys().filter(|name| in_right(name)).cloned().collect();
    let (last, others) = gone.split_last().unwrap();
    others.iter().for_each(|name| remove(&fixture, &mut locked, name));
    assert_eq!(node(&fixture, &mut locked, right.child()).len(), 1);
    remove(&fixture, &mut locked, last);
    model.retain(|name, _| !in_right(name));
    assert_eq!(node(&fixture, &mut locked, FileBlock(0)).len(), model.len(), "the root is above the leaves");
    assert_eq!(found(&fixture, &mut locked), model);
    fixture.shared().target.check().unwrap();
}

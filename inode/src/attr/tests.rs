//! Attributes on a fork of a small volume whose allocator fails on request.

use std::collections::BTreeMap;

use base::errno;
use error::Error;
use format::attr::Namespace;
use journal::engine::Loggable;

use super::{AttrKey, Attributes, NewAttrValue};
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

//! Attributes written by the kernel, and the field that each damage is reported for.

use super::leaf::AttrLeaf;
use super::parent::ParentPointer;
use super::shortform::AttrShortform;
use super::*;
use crate::dabtree::{self, DaNode, DaTree};
use crate::testing::{Fixture, fixture, geometry};

#[test]
fn a_leaf_written_by_the_kernel_decodes() {
    let (geometry, Fixture { at, bytes }) = (geometry(), fixture("attr-leaf"));
    let leaf = AttrLeaf::verify(&bytes, &geometry, at).unwrap();
    assert_eq!(leaf.audit(), Ok(()));
    let mut parents = Vec::new();
    let mut values = Vec::new();
    for attr in leaf.attrs().map(Result::unwrap) {
        assert!(!attr.incomplete);
        assert!(leaf.find(attr.hash(&geometry)).any(|found| found == Ok(attr)));
        if attr.namespace == Namespace::Parent {
            parents.push(ParentPointer::verify(&attr, &geometry).unwrap());
            continue;
        }
        let name = format!("{}{}", attr.namespace.prefix().unwrap(), attr.name.escape_ascii());
        let value = match attr.value {
            AttrValue::Inline(value) => value.escape_ascii().to_string(),
            AttrValue::Remote { block, length } => format!("{length} bytes from {block}"),
        };
        values.push((name, value));
    }
    values.sort();
    let mut expected: Vec<_> = (0..9)
        .filter(|n| *n != 3)
        .map(|n| (format!("user.k{n}"), format!("value-{n}").repeat(n + 1)))
        .collect();
    expected.push(("user.big".into(), "1500 bytes from 1".into()));
    expected.push(("trusted.t".into(), "T".into()));
    expected.push(("security.s".into(), "S".into()));
    expected.sort();
    assert_eq!(values, expected);
    parents.sort_by_key(|parent| parent.ino);
    let names: Vec<_> = parents.iter().map(|parent| (parent.ino.get(), parent.name)).collect();
    assert_eq!(names, [(64, &b"attrs-leaf"[..]), (67, b"link")]);
}

#[test]
fn leaf_damage_is_reported_by_field() {
    let (geometry, leaf) = (geometry(), fixture("attr-leaf"));
    let complaint = |patch: &dyn Fn(&mut [u8])| {
        let bytes = leaf.patched(dabtree::CRC_OFFSET, patch);
        let result = AttrLeaf::verify(&bytes, &geometry, leaf.at).and_then(|leaf| leaf.audit());
        result.map_or_else(|damage| damage.field(), |()| "nothing")
    };
    let first = 80;
    let view = AttrLeaf::verify(&leaf.bytes, &geometry, leaf.at).unwrap();
    let name_of = |wanted: &[u8]| {
        let named = |entry: &&leaf::AttrLeafEntry| view.attr(entry).unwrap().name == wanted;
        usize::from(view.entries.iter().find(named).unwrap().nameidx.get())
    };
    let (big, small, parent) = (name_of(b"big"), name_of(b"k1"), name_of(b"link"));
    assert_eq!(complaint(&|_| {}), "nothing");
    assert_eq!(complaint(&|b| b[55] ^= 1), "owner");
    assert_eq!(complaint(&|b| b[56] = 1), "firstused");
    assert_eq!(complaint(&|b| b[59] ^= 4), "usedbytes");
    assert_eq!(complaint(&|b| b[60] = 0xff), "firstused");
    assert_eq!(complaint(&|b| b[65] ^= 1), "freemap");
    assert_eq!(complaint(&|b| b[65] = 80), "freemap");
    assert_eq!(complaint(&|b| b[first] = 0xff), "hashval");
    assert_eq!(complaint(&|b| b[first + 3] ^= 1), "hashval");
    assert_eq!(complaint(&|b| b[first + 5] ^= 1), "nameidx");
    assert_eq!(complaint(&|b| b[first + 4] = 0), "nameidx");
    assert_eq!(complaint(&|b| b[first + 6] |= 0x40), "flags");
    assert_eq!(complaint(&|b| b[first + 6] |= 0x0e), "flags");
    assert_eq!(complaint(&|b| b[small + 2] = 0), "namelen");
    assert_eq!(complaint(&|b| b[small + 3] = 0), "name");
    assert_eq!(complaint(&|b| b[small] = 4), "namelist");
    assert_eq!(complaint(&|b| b[big + 3] = 0), "valueblk");
    assert_eq!(complaint(&|b| b[big + 5] = 2), "valuelen");
    assert_eq!(complaint(&|b| b[parent + 1] = 11), "value");
    assert_eq!(complaint(&|b| b[parent + 3] = b'/'), "name");
    assert_eq!(complaint(&|b| b[parent + 3 + 4] = 0xff), "ino");
    assert_eq!(complaint(&|b| b[parent + 3 + 4 + 7] ^= 1), "hashval");
}

#[test]
fn overlapping_names_are_detected() {
    let (geometry, leaf) = (geometry(), fixture("attr-leaf"));
    let bytes = leaf.patched(dabtree::CRC_OFFSET, |b| b.copy_within(80..88, 88));
    let view = AttrLeaf::verify(&bytes, &geometry, leaf.at).unwrap();
    assert_eq!(view.audit().unwrap_err().field(), "namelist");
}

#[test]
fn firstused_of_an_empty_64_kib_leaf_is_zero() {
    let mut geometry = geometry();
    (geometry.block_size, geometry.block_log) = (65536, 16);
    let leaf = fixture("attr-leaf");
    let mut bytes = leaf.bytes[..56].to_vec();
    bytes.resize(65536, 0);
    (bytes[66], bytes[67]) = (0xff, 0xb0); // freemap: 80 bytes from the start to the end
    bytes[65] = 80;
    assert!(crate::checksum::store(&mut bytes, dabtree::CRC_OFFSET));
    let view = AttrLeaf::verify(&bytes, &geometry, leaf.at).unwrap();
    assert_eq!(view.audit(), Ok(()));
    assert_eq!(view.attrs().count(), 0);
}

#[test]
fn a_node_selects_the_first_child_for_a_hash() {
    let (geometry, Fixture { at, bytes }) = (geometry(), fixture("attr-node"));
    let node = DaNode::verify(&bytes, &geometry, DaTree::Attr, at, None).unwrap();
    assert_eq!(node.audit(), Ok(()));
    assert!(DaNode::verify(&bytes, &geometry, DaTree::Attr, at, Some(2)).is_err());
    assert_eq!(node.child_for(0), Some(0));
    assert_eq!(node.child_for(node.last_hash()), Some(node.entries.len() - 1));
    assert_eq!(node.child_for(node.last_hash() + 1), None);
    for (n, entry) in node.entries.iter().enumerate() {
        let child = node.child_for(entry.hashval.get()).unwrap();
        assert!(child <= n && node.entries[child].hashval == entry.hashval);
    }
}

#[test]
fn the_blocks_of_a_remote_value_concatenate() {
    let geometry = geometry();
    let mut value = Vec::new();
    for name in ["remote-0", "remote-1"] {
        let Fixture { at, bytes } = fixture(name);
        value.extend_from_slice(remote::verify(&bytes, &geometry, at, value.len() as u32, 1500).unwrap());
    }
    assert_eq!(value, [b'B'; 1500]);
    let second = fixture("remote-1");
    let complaint = |offset, length| {
        remote::verify(&second.bytes, &geometry, second.at, offset, length).unwrap_err().field()
    };
    assert_eq!(complaint(0, 1500), "offset");
    assert_eq!(complaint(968, 1400), "bytes");
    assert_eq!(remote::block_count(MAX_VALUE, &geometry), 68);
    assert_eq!(remote::block_count(0, &geometry), 0);
}

#[test]
fn an_acl_converts_to_the_xattr_format() {
    let (geometry, Fixture { bytes, .. }) = (geometry(), fixture("attr-shortform"));
    let attrs = AttrShortform::verify(&bytes, &geometry).unwrap();
    assert_eq!(attrs.audit(), Ok(()));
    let list = attrs
        .entries()
        .map(Result::unwrap)
        .find(|attr| acl::linux_name(attr.namespace, attr.name) == Some(acl::LINUX_ACCESS))
        .unwrap();
    let AttrValue::Inline(value) = list.value else { panic!("{list:?}") };
    // Version 2; then tag, permissions, id: owner rw, user 1000 rw, group r, group 100 r, mask rw, others r.
    let expected = [
        &[2, 0, 0, 0][..],
        &[0x01, 0, 6, 0, 0xff, 0xff, 0xff, 0xff],
        &[0x02, 0, 6, 0, 0xe8, 0x03, 0, 0],
        &[0x04, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
        &[0x08, 0, 4, 0, 100, 0, 0, 0],
        &[0x10, 0, 6, 0, 0xff, 0xff, 0xff, 0xff],
        &[0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
    ];
    assert_eq!(acl::to_linux(value), Ok(expected.concat()));
    assert_eq!(acl::to_linux(&value[..value.len() - 1]).unwrap_err().field(), "acl_cnt");
    let mut bad = value.to_vec();
    bad[7] = 3;
    assert_eq!(acl::to_linux(&bad).unwrap_err().field(), "ae_tag");
}

#[test]
fn shortform_damage_is_reported_by_field() {
    let (geometry, bytes) = (geometry(), fixture("attr-shortform").bytes);
    let complaint = |patch: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        patch(&mut bytes);
        let result = AttrShortform::verify(&bytes, &geometry).and_then(|attrs| attrs.audit());
        result.map_or_else(|damage| damage.field(), |()| "nothing")
    };
    assert_eq!(complaint(&|_| {}), "nothing");
    assert_eq!(complaint(&|b| b[0] = 9), "totsize");
    assert_eq!(complaint(&|b| (b[0], b[1]) = (0, 3)), "totsize");
    assert_eq!(complaint(&|b| b[1] += 1), "totsize");
    assert_eq!(complaint(&|b| b[2] += 1), "count");
    assert_eq!(complaint(&|b| b[4] = 0), "namelen");
    assert_eq!(complaint(&|b| b[6] |= flags::LOCAL), "flags");
    assert_eq!(complaint(&|b| b[6] |= flags::NAMESPACES), "flags");
}

//! Attributes as `listxattr` and `getxattr` return them.

use std::ops::ControlFlow;

use base::{Ino, errno};
use format::attr::flags;
use format::attr::leaf::MAGIC;
use format::hash;

use super::volume::{AttrFork, FILE, ROOT, VolumeBuilder, extents};
use crate::{AclNames, for_each_xattr, get_xattr, parents};

/// Flags, name and value of an attribute.
type RawAttr<'a> = (u8, &'a [u8], &'a [u8]);

fn shortform(attrs: &[RawAttr<'_>]) -> AttrFork {
    let mut bytes = vec![0, 0, attrs.len() as u8, 0];
    for (bits, name, value) in attrs {
        bytes.extend([name.len() as u8, value.len() as u8, *bits]);
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    let size = bytes.len() as u16;
    bytes[..2].copy_from_slice(&size.to_be_bytes());
    AttrFork { format: 1, extents: 0, bytes }
}

/// A leaf of 1 KiB without its common header.
fn leaf(attrs: &[RawAttr<'_>]) -> Vec<u8> {
    let mut sorted = attrs.to_vec();
    sorted.sort_by_key(|(_, name, _)| hash::name(name));
    let mut block = vec![0; 1024];
    let mut low = 1024;
    for (n, (bits, name, value)) in sorted.iter().enumerate() {
        low -= (3 + name.len() + value.len()).next_multiple_of(4);
        block[low..low + 2].copy_from_slice(&(value.len() as u16).to_be_bytes());
        block[low + 2] = name.len() as u8;
        block[low + 3..low + 3 + name.len()].copy_from_slice(name);
        block[low + 3 + name.len()..][..value.len()].copy_from_slice(value);
        let entry = 80 + n * 8;
        block[entry..entry + 4].copy_from_slice(&hash::name(name).to_be_bytes());
        block[entry + 4..entry + 6].copy_from_slice(&(low as u16).to_be_bytes());
        block[entry + 6] = bits | flags::LOCAL;
    }
    block[56..58].copy_from_slice(&(attrs.len() as u16).to_be_bytes());
    block[58..60].copy_from_slice(&((1024 - low) as u16).to_be_bytes());
    block[60..62].copy_from_slice(&(low as u16).to_be_bytes());
    block.split_off(56)
}

fn shown(builder: &VolumeBuilder, names: AclNames) -> Vec<(String, Vec<u8>)> {
    let volume = builder.volume();
    let inode = volume.inode(Ino(66)).unwrap();
    let mut list = Vec::new();
    for_each_xattr(&volume, &inode.dinode(), names, |attr| {
        let attr = attr.unwrap();
        list.push((attr.name.escape_ascii().to_string(), attr.value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    list
}

fn get(builder: &VolumeBuilder, name: &str) -> Result<Vec<u8>, errno::Errno> {
    let volume = builder.volume();
    let inode = volume.inode(Ino(66)).unwrap();
    get_xattr(&volume, &inode.dinode(), name.as_bytes()).map_err(|error| error.errno())
}

/// An ACL of one entry, on disk and in the Linux encoding.
const LIST: [u8; 16] = [0, 0, 0, 1, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 4, 0, 0];
const LINUX_LIST: [u8; 12] = [2, 0, 0, 0, 0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff];

#[test]
fn namespaces_become_prefixes_and_acls_are_converted() {
    let builder = VolumeBuilder::new();
    let attrs: [RawAttr<'_>; 4] = [
        (0, b"plain", b"1"),
        (flags::SECURE, b"selinux", b"label\0"),
        (flags::ROOT, b"SGI_ACL_FILE", &LIST),
        (flags::PARENT, b"name", &[0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 7]),
    ];
    builder.inode(66, FILE, (2, 0, 0), &[], Some(shortform(&attrs)));
    let expected = [
        ("user.plain".to_string(), b"1".to_vec()),
        ("security.selinux".into(), b"label\0".to_vec()),
        ("system.posix_acl_access".into(), LINUX_LIST.to_vec()),
    ];
    assert_eq!(shown(&builder, AclNames::Portable), expected);
    assert_eq!(
        shown(&builder, AclNames::AsRoot).last(),
        Some(&("trusted.SGI_ACL_FILE".into(), LIST.to_vec()))
    );
    assert_eq!(get(&builder, "user.plain"), Ok(b"1".to_vec()));
    assert_eq!(get(&builder, "system.posix_acl_access"), Ok(LINUX_LIST.to_vec()));
    assert_eq!(get(&builder, "trusted.SGI_ACL_FILE"), Ok(LIST.to_vec()));
    assert_eq!(get(&builder, "trusted.plain"), Err(errno::ENODATA));
    assert_eq!(get(&builder, "system.posix_acl_default"), Err(errno::ENODATA));
    for unnamed in ["plain", "user.", "system.other", "name"] {
        assert_eq!(get(&builder, unnamed), Err(errno::EOPNOTSUPP), "{unnamed}");
    }
    let volume = builder.volume();
    let links = parents(&volume, &volume.inode(Ino(66)).unwrap().dinode()).unwrap();
    assert_eq!(links.len(), 1);
    assert_eq!((links[0].ino.get(), links[0].generation, &*links[0].name), (ROOT, 7, &b"name"[..]));
}

#[test]
fn incomplete_attributes_are_not_shown() {
    let builder = VolumeBuilder::new();
    let fork = AttrFork { format: 2, extents: 1, bytes: extents(&[(0, 200, 1)]) };
    builder.inode(66, FILE, (2, 0, 0), &[], Some(fork));
    let attrs: [RawAttr<'_>; 2] = [(0, b"whole", b"yes"), (flags::INCOMPLETE, b"half", b"no")];
    builder.tree_block(1024, (MAGIC, 66, 200), (0, 0), &leaf(&attrs));
    assert_eq!(shown(&builder, AclNames::AsRoot), [("user.whole".to_string(), b"yes".to_vec())]);
    assert_eq!(get(&builder, "user.whole"), Ok(b"yes".to_vec()));
    assert_eq!(get(&builder, "user.half"), Err(errno::ENODATA));
}

#[test]
fn an_attribute_fork_without_blocks_has_no_attributes() {
    let builder = VolumeBuilder::new();
    builder.inode(66, FILE, (2, 0, 0), &[], Some(AttrFork { format: 2, extents: 0, bytes: Vec::new() }));
    assert_eq!(shown(&builder, AclNames::AsRoot), []);
    assert_eq!(get(&builder, "user.a"), Err(errno::ENODATA));
}

#[test]
fn a_cycle_of_leaves_is_damage() {
    let builder = VolumeBuilder::new();
    let fork = AttrFork { format: 2, extents: 1, bytes: extents(&[(0, 200, 3)]) };
    builder.inode(66, FILE, (2, 0, 0), &[], Some(fork));
    let node = super::volume::pairs((2, 1), &[(hash::name(b"a"), 1), (u32::MAX, 2)]);
    builder.tree_block(1024, (format::dabtree::NODE_MAGIC, 66, 200), (0, 0), &node);
    for (back_of_first, right_of_second, back_of_second) in [(2, 1, 1), (0, 2, 1), (0, 1, 1), (2, 1, 2)] {
        builder.tree_block(1024, (MAGIC, 66, 201), (back_of_first, 2), &leaf(&[(0, b"a", b"1")]));
        builder.tree_block(
            1024,
            (MAGIC, 66, 202),
            (back_of_second, right_of_second),
            &leaf(&[(0, b"b", b"2")]),
        );
        let volume = builder.volume();
        let inode = volume.inode(Ino(66)).unwrap();
        let mut count = 0;
        let end = for_each_xattr(&volume, &inode.dinode(), AclNames::Portable, |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(end.unwrap_err().errno(), errno::EFSCORRUPTED);
        assert!(count <= 2);
    }
}

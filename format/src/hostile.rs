//! Arbitrary bytes cause no panic and no iteration longer than the block. Blocks written by the kernel, with flipped
//! bits and a valid checksum, reach deeper than random bytes.

use proptest::prelude::*;

use crate::attr::leaf::AttrLeaf;
use crate::attr::shortform::AttrShortform;
use crate::attr::{Attr, acl, remote};
use crate::checksum;
use crate::dabtree::{self, DaNode, DaTree};
use crate::dir::data::DataBlock;
use crate::dir::free::FreeBlock;
use crate::dir::leaf::DirLeaf;
use crate::dir::shortform::Shortform;
use crate::geometry::Geometry;
use crate::testing::{Fixture, fixture, geometry};
use crate::{dquot, remote_block, symlink};

/// Each fixture with the offset of its checksum.
const KINDS: [(&str, Option<usize>); 11] = [
    ("shortform", None),
    ("block", Some(crate::dir::CRC_OFFSET)),
    ("data", Some(crate::dir::CRC_OFFSET)),
    ("leaf1", Some(dabtree::CRC_OFFSET)),
    ("free", Some(crate::dir::CRC_OFFSET)),
    ("attr-shortform", None),
    ("attr-leaf", Some(dabtree::CRC_OFFSET)),
    ("attr-node", Some(dabtree::CRC_OFFSET)),
    ("remote-0", Some(remote_block::CRC_OFFSET)),
    ("remote-1", Some(remote_block::CRC_OFFSET)),
    ("symlink", Some(remote_block::CRC_OFFSET)),
];

fn attr_is_harmless(attr: &Attr<'_>, geometry: &Geometry) {
    let _ = attr.hash(geometry);
    if let crate::attr::AttrValue::Inline(value) = attr.value {
        let _ = acl::to_linux(value);
    }
}

/// Calls every function on a block of any type.
fn exercise(Fixture { at, bytes }: &Fixture, geometry: &Geometry) {
    let (at, most) = (*at, bytes.len());
    if let Ok(data) = DataBlock::verify(bytes, geometry, at) {
        assert!(data.regions().count() <= most / 8);
        let _ = data.audit();
        for offset in 0..most {
            let _ = data.entry_at(offset);
        }
    }
    if let Ok(leaf) = DirLeaf::verify(bytes, geometry, at) {
        let _ = (leaf.audit(), leaf.find(leaf.last_hash()).count(), leaf.find(0).count());
    }
    if let Ok(free) = FreeBlock::verify(bytes, geometry, at) {
        let _ = free.audit();
    }
    if let Ok(leaf) = AttrLeaf::verify(bytes, geometry, at) {
        let _ = (leaf.audit(), leaf.find(leaf.last_hash()).count());
        leaf.attrs().filter_map(Result::ok).for_each(|attr| attr_is_harmless(&attr, geometry));
    }
    for tree in [DaTree::Dir, DaTree::Attr] {
        if let Ok(node) = DaNode::verify(bytes, geometry, tree, at, None) {
            let _ = (node.audit(), node.child_for(0), node.child_for(u32::MAX), node.last_hash());
        }
    }
    if let Ok(directory) = Shortform::verify(bytes, geometry) {
        assert!(directory.entries().count() <= most);
        let _ = directory.audit();
    }
    if let Ok(attrs) = AttrShortform::verify(bytes, geometry) {
        assert!(attrs.entries().count() <= most);
        let _ = attrs.audit();
        attrs.entries().filter_map(Result::ok).for_each(|attr| attr_is_harmless(&attr, geometry));
    }
    let _ = remote::verify(bytes, geometry, at, 0, 1500);
    let _ = symlink::verify(bytes, geometry, at, 0, 901).map(symlink::verify_target);
    let _ = dquot::verify(bytes, geometry, 0, dquot::flags::USER);
    let _ = acl::to_linux(bytes);
}

#[test]
fn intact_blocks_are_exercised() {
    for (name, _) in KINDS {
        exercise(&fixture(name), &geometry());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits_cause_no_panic(
        kind in 0..KINDS.len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..6),
        near_the_front in any::<bool>(),
    ) {
        let (name, crc_offset) = KINDS[kind];
        let mut block = fixture(name);
        // Counts and lengths are near the start.
        let reach = if near_the_front { block.bytes.len().min(256) } else { block.bytes.len() };
        for (index, bit) in flips {
            block.bytes[index.index(reach)] ^= 1 << bit;
        }
        if let Some(crc_offset) = crc_offset {
            checksum::store(&mut block.bytes, crc_offset);
        }
        exercise(&block, &geometry());
    }

    #[test]
    fn random_bytes_after_a_valid_header_cause_no_panic(
        kind in 0..KINDS.len(),
        noise in prop::collection::vec(any::<u8>(), 4096),
        from in 0usize..128,
    ) {
        let (name, crc_offset) = KINDS[kind];
        let mut block = fixture(name);
        for (byte, noise) in block.bytes.iter_mut().zip(noise).skip(from) {
            *byte = noise;
        }
        if let Some(crc_offset) = crc_offset {
            checksum::store(&mut block.bytes, crc_offset);
        }
        exercise(&block, &geometry());
    }

    #[test]
    fn short_and_random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise(&Fixture { at: fixture("block").at, bytes }, &geometry());
    }
}

//! Crafted B+trees of an AG.

use std::sync::Arc;

use base::{AgBlock, AgNumber};
use block::{Device, Durability, MemoryDevice};
use format::btree::{BnoBt, BtreeHeader, ShortHeader};
use format::new_ag::{empty_root, seal};
use format::ondisk::OnDisk;
use read::{TreeLeaves, Volume};

/// A node whose pointers all are `child`, with ascending keys.
fn node(volume: &Volume, at: AgBlock, level: u16, child: AgBlock) -> Vec<u8> {
    const KEY: usize = 8;
    const POINTER: usize = 4;
    let mut block = empty_root::<BnoBt>(volume.geometry(), AgNumber(0), at);
    let most = (block.len() - ShortHeader::SIZE) / (KEY + POINTER);
    block[4..6].copy_from_slice(&level.to_be_bytes());
    block[6..8].copy_from_slice(&(most as u16).to_be_bytes());
    for n in 0..most {
        let key = ShortHeader::SIZE + n * KEY;
        block[key..key + 4].copy_from_slice(&(n as u32 + 1).to_be_bytes());
        block[key + 4..key + 8].copy_from_slice(&1_u32.to_be_bytes());
        let pointer = ShortHeader::SIZE + most * KEY + n * POINTER;
        block[pointer..pointer + POINTER].copy_from_slice(&child.get().to_be_bytes());
    }
    let length = block.len();
    seal(&mut block, 0, length, <ShortHeader as BtreeHeader>::CRC_OFFSET);
    block
}

/// A root that refers to one node again and again made a walk without leaves report as many blocks as the AG has,
/// however few the image had.
#[test]
fn a_node_is_visited_once() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone()).unwrap();
    let block_size = u64::from(volume.geometry().block_size);
    let (root, inner, leaf) = (AgBlock(1000), AgBlock(1001), AgBlock(1002));
    for (at, block) in [(root, node(&volume, root, 2, inner)), (inner, node(&volume, inner, 1, leaf))] {
        device.write_at(u64::from(at.get()) * block_size, &block, Durability::Buffered).unwrap();
    }
    let mut visited = 0;
    let tree = volume.ag_tree(AgNumber(0), root.get(), 3);
    let result = tree.walk::<BnoBt>(TreeLeaves::Skip, &mut |_, _| visited += 1);
    let message = result.unwrap_err().to_string();
    assert!(message.contains("a node again"), "{message}");
    assert!(visited <= 2 + block_size / 12, "{visited} blocks");
}

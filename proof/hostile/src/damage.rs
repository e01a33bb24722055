//! Damages a volume as an input describes: a few edits of metadata blocks, mostly with valid checksums.
//!
//! An input names metadata blocks by their index, so it is short for any size of volume, and the fuzzer's mutations are
//! mutations of structures.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Daddr, Ino};
use block::{Device, Durability, OverlayDevice};

use crate::images::{Image, MetadataBlock, image};
use crate::input::Input;

/// Maximum number of edits per input.
const EDITS_MAX: usize = 16;

/// A damaged volume.
pub struct Damaged {
    /// The undamaged volume.
    pub image: &'static Image,
    /// The damaged volume: an overlay with the edits.
    pub device: Arc<dyn Device>,
    /// Addresses of the edited blocks.
    pub daddrs: Vec<Daddr>,
    /// Edited inodes, and owners of edited blocks.
    pub inodes: Vec<Ino>,
}

/// Reads edits from the input, and applies them to a volume of the range. `blocks` selects the blocks that may be
/// edited.
pub fn apply(
    input: &mut Input<'_>,
    images: std::ops::Range<usize>,
    blocks: fn(&Image) -> &[MetadataBlock],
) -> Option<Damaged> {
    let image = image(images.start + usize::from(input.u8()) % images.len())?;
    let blocks = blocks(image);
    let mut edited: BTreeMap<usize, (Vec<u8>, bool)> = BTreeMap::new();
    for _ in 0..EDITS_MAX {
        if input.is_empty() {
            break;
        }
        let index = input.below(blocks.len());
        let block = *blocks.get(index)?;
        let (bytes, sealed) =
            edited.entry(index).or_insert_with(|| (image.block_bytes(block).to_vec(), true));
        let kind = input.u8();
        edit(image, bytes, kind, input);
        // One in eight keeps a wrong checksum.
        *sealed = kind & 0xe0 != 0xe0;
    }
    let device = OverlayDevice::new(image.device.clone());
    let (mut inodes, mut daddrs) = (Vec::new(), Vec::new());
    for (index, (mut bytes, sealed)) in edited {
        let block = *blocks.get(index)?;
        if sealed {
            block.protection.repair(&mut bytes);
        }
        device.write_at(block.offset as u64, &bytes, Durability::Buffered).ok()?;
        inodes.extend(block.ino);
        daddrs.push(Daddr(block.offset as u64 >> 9));
    }
    inodes.sort_unstable();
    inodes.dedup();
    device.freeze();
    Some(Damaged { image, device: Arc::new(device), daddrs, inodes })
}

/// One edit: bytes from the input, a boundary value, or bytes of another block.
fn edit(image: &Image, bytes: &mut [u8], kind: u8, input: &mut Input<'_>) {
    // Half of the edits are in headers.
    let length = if kind & 4 == 0 { bytes.len().min(256) } else { bytes.len() };
    let at = input.below(length);
    let Some(target) = bytes.get_mut(at..) else { return };
    match kind & 3 {
        0 => {
            let new = input.bytes(1 + usize::from(kind >> 3 & 3));
            target.iter_mut().zip(new).for_each(|(to, from)| *to = *from);
        }
        1 => {
            let width = 1 << (kind >> 3 & 3);
            if let Some(field) = target.get_mut(..width) {
                number(field, input.u8());
            }
        }
        2 => {
            let new = input.bytes(4 * (1 + usize::from(kind >> 3 & 3)));
            target.iter_mut().zip(new).for_each(|(to, from)| *to = *from);
        }
        _ => {
            let index = input.below(image.blocks.len());
            let other = image.blocks.get(index).map_or(&[][..], |block| image.block_bytes(*block));
            let length = 1 + input.below(other.len());
            let other = other.get(at.min(other.len())..).unwrap_or(&[]);
            target.iter_mut().zip(other).take(length).for_each(|(to, from)| *to = *from);
        }
    }
}

/// Replaces a big-endian number by a boundary value, or a similar one.
fn number(field: &mut [u8], choice: u8) {
    let bits = field.len() as u32 * 8;
    let mask = u64::MAX >> (64 - bits);
    let old = field.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let new = match choice % 12 {
        0 => 0,
        1 => 1,
        2 => mask,
        3 => mask >> 1,
        4 => (mask >> 1) + 1,
        5 => mask - 1,
        6 => old.wrapping_add(1),
        7 => old.wrapping_sub(1),
        8 => old << 1,
        9 => old >> 1,
        10 => old ^ 1 << (u32::from(choice) / 12 % bits),
        _ => !old,
    };
    let bytes = new.to_be_bytes();
    field.iter_mut().rev().zip(bytes.iter().rev()).for_each(|(to, from)| *to = *from);
}

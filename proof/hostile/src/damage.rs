//! Damage to a volume, as an input describes it: a few edits of metadata, each made to pass its checksum.
//!
//! An input is short, whatever the size of the volume: it names pieces of metadata by their number and says what to do
//! with them. So the fuzzer's own mutations are mutations of structures, and no mutator of our own is needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Daddr, Ino};
use block::{Device, Durability, OverlayDevice};

use crate::images::{Image, Site, image};
use crate::input::Input;

/// Most edits of one input: a case with more says nothing that a shorter one would not.
const EDITS_MAX: usize = 16;

/// A damaged volume.
pub struct Damaged {
    /// The healthy one.
    pub image: &'static Image,
    /// The damaged one: the healthy one below, the edits above.
    pub device: Arc<dyn Device>,
    /// Where it was hit.
    pub daddrs: Vec<Daddr>,
    /// The inodes that were hit: themselves, or by a block that they own.
    pub inodes: Vec<Ino>,
}

/// Reads edits until the input ends, and makes them in one of the volumes of that range. `sites` picks what may be hit.
pub fn apply(
    input: &mut Input<'_>,
    images: std::ops::Range<usize>,
    sites: fn(&Image) -> &[Site],
) -> Option<Damaged> {
    let image = image(images.start + usize::from(input.u8()) % images.len())?;
    let sites = sites(image);
    let mut edited: BTreeMap<usize, (Vec<u8>, bool)> = BTreeMap::new();
    for _ in 0..EDITS_MAX {
        if input.is_empty() {
            break;
        }
        let index = input.below(sites.len());
        let site = *sites.get(index)?;
        let (bytes, sealed) = edited.entry(index).or_insert_with(|| (image.site_bytes(site).to_vec(), true));
        let kind = input.u8();
        edit(image, bytes, kind, input);
        // One in eight keeps its wrong checksum.
        *sealed = kind & 0xe0 != 0xe0;
    }
    let device = OverlayDevice::new(image.device.clone());
    let (mut inodes, mut daddrs) = (Vec::new(), Vec::new());
    for (index, (mut bytes, sealed)) in edited {
        let site = *sites.get(index)?;
        if sealed {
            site.seal.repair(&mut bytes);
        }
        device.write_at(site.offset as u64, &bytes, Durability::Buffered).ok()?;
        inodes.extend(site.ino);
        daddrs.push(Daddr(site.offset as u64 >> 9));
    }
    inodes.sort_unstable();
    inodes.dedup();
    device.freeze();
    Some(Damaged { image, device: Arc::new(device), daddrs, inodes })
}

/// One edit: bytes from the input, a number at the edge of something, bytes from elsewhere in the volume.
fn edit(image: &Image, bytes: &mut [u8], kind: u8, input: &mut Input<'_>) {
    // Headers are small and matter most.
    let reach = if kind & 4 == 0 { bytes.len().min(256) } else { bytes.len() };
    let at = input.below(reach);
    let Some(room) = bytes.get_mut(at..) else { return };
    match kind & 3 {
        0 => {
            let new = input.bytes(1 + usize::from(kind >> 3 & 3));
            room.iter_mut().zip(new).for_each(|(to, from)| *to = *from);
        }
        1 => {
            let width = 1 << (kind >> 3 & 3);
            if let Some(field) = room.get_mut(..width) {
                number(field, input.u8());
            }
        }
        2 => {
            let new = input.bytes(4 * (1 + usize::from(kind >> 3 & 3)));
            room.iter_mut().zip(new).for_each(|(to, from)| *to = *from);
        }
        _ => {
            let index = input.below(image.sites.len());
            let other = image.sites.get(index).map_or(&[][..], |site| image.site_bytes(*site));
            let length = 1 + input.below(other.len());
            let other = other.get(at.min(other.len())..).unwrap_or(&[]);
            room.iter_mut().zip(other).take(length).for_each(|(to, from)| *to = *from);
        }
    }
}

/// Replaces a big-endian number by one at an edge, or near to what it was.
fn number(field: &mut [u8], how: u8) {
    let bits = field.len() as u32 * 8;
    let mask = u64::MAX >> (64 - bits);
    let old = field.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let new = match how % 12 {
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
        10 => old ^ 1 << (u32::from(how) / 12 % bits),
        _ => !old,
    };
    let bytes = new.to_be_bytes();
    field.iter_mut().rev().zip(bytes.iter().rev()).for_each(|(to, from)| *to = *from);
}

//! Damaged headers, AGFLs and trees with correct checksums: every call returns, and nothing panics.

use base::{AgBlock, AgNumber, FsBlock, Lsn};
use block::{Device, Durability, MemoryDevice};
use format::metadata_header::HeaderLayout;
use journal::engine::Transaction;

use crate::group::Groups;
use crate::testing::{Numbers, OWNER, Volume};
use crate::{AllocRequest, AllocTarget};

/// Bytes of the volume: two AGs, with the log in the second.
fn image(volume: &Volume) -> Vec<u8> {
    volume.write_back();
    let mut bytes = vec![0; volume.device.size() as usize];
    volume.device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Flips some bits of a header or of a tree block, and corrects its checksum.
fn damage(device: &MemoryDevice, volume: &Volume, numbers: &mut Numbers) {
    let size = volume.geometry.block_size as usize;
    let (at, length) = match numbers.below(3) {
        0 => (512 * (1 + 2 * u64::from(numbers.below(2))), 512),
        _ => (u64::from(1 + numbers.below(40)) * size as u64, size),
    };
    let mut bytes = vec![0; length];
    device.read_at(at, &mut bytes).unwrap();
    let Some(stamp) = HeaderLayout::of(&bytes) else { return };
    for _ in 0..1 + numbers.below(3) {
        // The numbers of a header are small: small changes are the most harmful.
        let bit = numbers.below(8);
        let byte = if numbers.below(2) == 0 { numbers.below(96) } else { numbers.below(length as u32) };
        bytes[byte as usize] ^= 1 << bit;
    }
    if HeaderLayout::of(&bytes).is_some() {
        stamp.seal(&mut bytes, Lsn::new(1, 1));
    }
    device.write_at(at, &bytes, Durability::Buffered).unwrap();
}

/// Makes changes until one fails.
fn try_changes(volume: &Volume, numbers: &mut Numbers) {
    let mut held = Vec::new();
    let fail = |change: &mut dyn FnMut(&mut Transaction, &Groups) -> Option<()>| {
        let Ok(mut tx) = volume.try_begin() else { return true };
        change(&mut tx, &volume.groups).is_none() | tx.commit(&mut []).is_err()
    };
    for _ in 0..30 {
        let Ok(mut reservation) = volume.groups.reserve_blocks(20) else { return };
        let near = volume.geometry.fs_block(AgNumber(0), AgBlock(5 + numbers.below(2000)));
        let max = 1 + numbers.below(20);
        let request = AllocRequest {
            target: AllocTarget::Block(near),
            min: 1,
            max,
            align: 1,
            owner: OWNER,
            data: false,
        };
        if fail(&mut |tx, groups| {
            held.push(groups.alloc_extent(tx, &mut reservation, &request).ok()?);
            Some(())
        }) {
            return;
        }
        if numbers.below(2) == 0 {
            let (start, count): (FsBlock, u32) = held.swap_remove(numbers.below(held.len() as u32) as usize);
            if fail(&mut |tx, groups| groups.free_extent_later(tx, start, count, OWNER).ok()) {
                return;
            }
        }
    }
}

fn run(options: &str, seed: u64) {
    let Some(volume) = Volume::make(34, options) else { return };
    let mut numbers = Numbers(seed);
    // Trees of several levels, and an AGFL that has wrapped.
    let mut held = Vec::new();
    let mut reservation = volume.groups.reserve_blocks(3000).unwrap();
    let request = AllocRequest {
        target: AllocTarget::OnlyAg(AgNumber(0)),
        min: 1,
        max: 1,
        align: 1,
        owner: OWNER,
        data: false,
    };
    for _ in 0..900 {
        held.push(volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)).unwrap());
    }
    for (start, count) in held.iter().step_by(2) {
        volume.run(|tx| volume.groups.free_extent_later(tx, *start, *count, OWNER)).unwrap();
    }
    let good = image(&volume);
    let mut opened = 0;
    for _ in 0..60 {
        let device = MemoryDevice::from_bytes(&good);
        for _ in 0..1 + numbers.below(3) {
            damage(&device, &volume, &mut numbers);
        }
        if let Ok(damaged) = Volume::try_open(device) {
            opened += 1;
            try_changes(&damaged, &mut numbers);
        }
    }
    assert!(opened > 15, "most damage is not in the headers");
}

#[test]
fn damage_is_reported() {
    run("-d agcount=2 -b size=1024 -m rmapbt=1,reflink=1", 1);
}

#[test]
fn damage_is_reported_without_rmapbt_and_refcountbt() {
    run("-d agcount=2 -b size=1024 -m rmapbt=0,reflink=0", 2);
}

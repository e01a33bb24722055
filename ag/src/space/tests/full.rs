//! Full volumes, busy blocks, reservations.

use std::sync::atomic::Ordering::Relaxed;

use base::AgNumber;
use error::Error;

use crate::testing::{Numbers, OWNER, Volume};
use crate::{AllocRequest, AllocTarget};

fn request(target: AllocTarget, count: u32) -> AllocRequest {
    AllocRequest { target, min: 1, max: count, align: 1, owner: OWNER, data: false }
}

/// Allocates everything in pieces of `piece` blocks, frees it in another order, and checks each stage.
fn fill_and_empty(options: &str, piece: u32) {
    let Some(volume) = Volume::make(64, options) else { return };
    let total = volume.total(&[]);
    let mut held = Vec::new();
    loop {
        let Ok(mut reservation) = volume.groups.reserve_blocks(piece) else { break };
        let request = request(AllocTarget::Ag(AgNumber(0)), piece);
        match volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)) {
            Ok(extent) => held.push(extent),
            Err(error) => {
                assert!(matches!(error, Error::NoSpace { .. }));
                break;
            }
        }
    }
    // Users have received everything that they could reserve.
    assert!(volume.groups.available() < u64::from(piece), "{} blocks left", volume.groups.available());
    assert_eq!(volume.total(&held), total);
    volume.check(&held);
    let mut numbers = Numbers(9);
    while !held.is_empty() {
        let (start, count) = held.swap_remove(numbers.below(held.len() as u32) as usize);
        volume.run(|tx| volume.groups.free_extent_later(tx, start, count, OWNER)).unwrap();
        if held.len().is_multiple_of(5000) {
            volume.check(&held);
        }
    }
    assert_eq!(volume.total(&held), total);
    volume.check(&held);
    volume.repair();
}

#[test]
fn a_full_volume_provides_all_reserved_blocks() {
    fill_and_empty("-d agcount=4 -b size=1024 -m rmapbt=1,reflink=1", 3);
}

#[test]
fn a_volume_filled_block_by_block() {
    fill_and_empty("-d agcount=2 -b size=1024 -m rmapbt=0,reflink=0", 1);
}

#[test]
fn freed_blocks_are_not_reused_for_data_before_the_freeing_is_stable() {
    let Some(volume) = Volume::make(64, "-d agcount=1 -b size=1024 -m rmapbt=0,reflink=0") else { return };
    let mut reservation = volume.groups.reserve_blocks(200).unwrap();
    let target = request(AllocTarget::OnlyAg(AgNumber(0)), 50);
    let (start, count) = volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &target)).unwrap();
    assert_eq!(count, 50);
    volume.hook.late.store(true, Relaxed);
    volume.run(|tx| volume.groups.free_extent_later(tx, start, count, OWNER)).unwrap();
    let exact = AllocRequest { target: AllocTarget::Exact(start), data: true, ..target };
    let mut again = |request| volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request));
    assert!(matches!(again(exact), Err(Error::NoSpace { .. })));
    let (elsewhere, _) = again(AllocRequest { target: AllocTarget::OnlyNear(start), ..exact }).unwrap();
    assert!(elsewhere.get() >= start.get() + 50 || elsewhere.get() + 50 <= start.get());
    // Metadata goes through the log, after the freeing.
    let (reused, _) = again(AllocRequest { data: false, max: 10, ..exact }).unwrap();
    assert_eq!(reused, start);
    volume.hook.release();
    volume.hook.late.store(false, Relaxed);
    let rest = base::FsBlock(start.get() + 10);
    assert_eq!(again(AllocRequest { target: AllocTarget::Exact(rest), ..exact }).unwrap(), (rest, 40));
}

#[test]
fn unused_reservations_are_released() {
    let Some(volume) = Volume::make(64, "-d agcount=2") else { return };
    let before = volume.groups.available();
    let mut reservation = volume.groups.reserve_blocks(20).unwrap();
    assert_eq!(volume.groups.available(), before - 20);
    let request = request(AllocTarget::Ag(AgNumber(1)), 5);
    volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)).unwrap();
    assert_eq!(reservation.left(), 15);
    drop(reservation);
    assert_eq!(volume.groups.available(), before - 5);
    assert!(volume.groups.reserve_blocks(before as u32).is_err());
}

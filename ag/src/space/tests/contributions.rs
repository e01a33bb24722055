//! All blocks in the counter of free blocks can be allocated, however free space is fragmented.

use std::sync::Arc;

use base::lock::Rank;
use base::{AgBlock, AgNumber, FsBlock};
use format::btree::{BnoBt, CntBt};
use journal::engine::DiskExtent;

use crate::group::Group;
use crate::space::alloc::{AgAllocArgs, Suitability};
use crate::space::trees::AgfBtreeType;
use crate::testing::{OWNER, Volume};
use crate::{AllocRequest, AllocTarget, Claim, ClaimRequest};

/// Fills the volume block by block, then frees every second block, so that the free-space trees are as large as
/// possible.
fn fill_and_fragment(volume: &Volume) -> Vec<(FsBlock, u32)> {
    let mut held = Vec::new();
    for ag in volume.geometry.ags() {
        let request = AllocRequest {
            target: AllocTarget::OnlyAg(ag),
            min: 1,
            max: 1,
            align: 1,
            owner: OWNER,
            data: false,
        };
        while let Ok(mut reservation) = volume.groups.reserve_blocks(1) {
            match volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)) {
                Ok(extent) => held.push(extent),
                Err(_) => break,
            }
        }
    }
    held.sort_unstable_by_key(|(start, _)| start.get());
    let (mut kept, mut last) = (Vec::new(), None);
    for (start, count) in held {
        if last == Some(start.get().wrapping_sub(1)) {
            kept.push((start, count));
            last = None;
        } else {
            volume.run(|tx| volume.groups.free_extent_later(tx, start, count, OWNER)).unwrap();
            last = Some(start.get());
        }
    }
    kept
}

/// Free space in single blocks made the free-space trees grow by blocks that the counter had contributed to users. A
/// writer that had reserved the last of them, and whose write had succeeded, found none at writeback.
fn check_contribution(megabytes: u64, options: &str) {
    let Some(volume) = Volume::make(megabytes, options) else { return };
    let total = volume.total(&[]);
    let mut held = fill_and_fragment(&volume);
    assert_eq!(volume.total(&held), total);
    let promised = u32::try_from(volume.groups.available()).unwrap();
    let mut reservation = volume.groups.reserve_blocks(promised).unwrap();
    // Writeback claims the blocks of all data before it allocates the first.
    let mut claims: Vec<Claim> = Vec::new();
    for n in 0..promised {
        let target =
            claims.last().map_or(AllocTarget::Ag(AgNumber(0)), |last| AllocTarget::Block(last.start()));
        let request = ClaimRequest { target, min: 1, max: 1, align: 1 };
        match volume.groups.claim(&mut volume.begin(), &request) {
            Ok(claim) => claims.push(claim),
            Err(error) => panic!("{error}, of block {n} of {promised} that were promised"),
        }
    }
    for claim in claims {
        held.push((claim.start(), claim.count()));
        let mut own = reservation.split(claim.count());
        volume.run(|tx| volume.groups.take_claimed(tx, &mut own, [claim], OWNER)).unwrap();
    }
    assert_eq!((reservation.left(), volume.total(&held)), (0, total));
    drop(reservation);
    // The blocks that the trees freed as they shrank are contributed to the last block, too.
    while let Ok(mut reservation) = volume.groups.reserve_blocks(1) {
        let target = AllocTarget::Ag(AgNumber(0));
        let request = AllocRequest { target, min: 1, max: 1, align: 1, owner: OWNER, data: true };
        held.push(volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)).unwrap());
    }
    volume.check(&held);
    for (start, count) in held {
        volume.run(|tx| volume.groups.free_extent_later(tx, start, count, OWNER)).unwrap();
    }
    assert_eq!(volume.total(&[]), total);
    assert_eq!(volume.groups.unreturned(&mut volume.begin()).unwrap(), None);
    volume.check(&[]);
    volume.repair();
}

#[test]
fn fragmented_space_small_blocks_all_trees() {
    check_contribution(32, "-d agcount=2 -b size=1024 -m rmapbt=1,reflink=1");
}

#[test]
fn fragmented_space_small_blocks_few_trees() {
    check_contribution(32, "-d agcount=2 -b size=1024 -m rmapbt=0,reflink=0");
}

#[test]
fn fragmented_space_4k_blocks() {
    check_contribution(128, "-d agcount=2 -m rmapbt=0,reflink=1");
}

#[test]
fn fragmented_space_smallest_ags() {
    check_contribution(64, "-d agcount=4 -m rmapbt=1,reflink=1");
}

#[test]
fn leaked_reservations_and_claims_are_found() {
    let Some(volume) = Volume::make(64, "-d agcount=4 -m rmapbt=1,reflink=1") else { return };
    let groups = &volume.groups;
    let unreturned = || groups.unreturned(&mut volume.begin()).unwrap();
    assert_eq!(unreturned(), None);
    let reservation = groups.reserve_blocks(1).unwrap();
    assert!(unreturned().is_some());
    drop(reservation);
    let request = ClaimRequest { target: AllocTarget::Ag(AgNumber(2)), min: 1, max: 1, align: 1 };
    let claim = groups.claim(&mut volume.begin(), &request).unwrap();
    assert!(unreturned().is_some_and(|what| what.starts_with("AG 2: 1 blocks are claimed")));
    drop(claim);
    groups.get(AgNumber(1)).unwrap().metadata_reservation.draw(1);
    assert!(unreturned().is_some_and(|what| what.starts_with("AG 1: ")));
    groups.get(AgNumber(1)).unwrap().metadata_reservation.restore(1);
    assert_eq!(unreturned(), None);
}

#[test]
fn growing_keeps_the_last_ags_contribution() {
    // While a volume grows, the new blocks of its last AG are free and claimed, but not yet contributed. They were
    // subtracted twice, as blocks that are not contributed and as claimed ones: as many blocks that others had reserved
    // could not be allocated until the grow was complete. A volume grows because it is full, and then these may be all.
    let Some(volume) = Volume::make(80, "-d agsize=32m -b size=1024 -m rmapbt=1,reflink=1") else { return };
    let groups = &volume.groups;
    let last = AgNumber(groups.count() - 1);
    let request = |target, max| AllocRequest { target, min: 1, max, align: 1, owner: OWNER, data: false };
    for ag in (0..last.get()).map(AgNumber) {
        let all = request(AllocTarget::OnlyAg(ag), 4096);
        while let Ok(mut reservation) = groups.reserve_blocks(4096) {
            if volume.run(|tx| groups.alloc_extent(tx, &mut reservation, &all)).is_err() {
                break;
            }
        }
    }
    let available = groups.available();
    let mut reservation = groups.reserve_blocks(100).unwrap();
    let gained = volume.run(|tx| groups.extend_last(tx, 96 << 10, || ())).unwrap();
    assert!(gained.is_some());
    let any = request(AllocTarget::Ag(AgNumber(0)), 100);
    let done = volume.run(|tx| groups.alloc_extent(tx, &mut reservation, &any));
    assert!(done.is_ok(), "{done:?}");
    assert!(groups.available() <= available, "the new blocks are nobody's yet");
    groups.adopt_new(&mut volume.begin(), gained).unwrap();
    assert!(groups.available() > available);
}

/// A larger AG reserves more blocks for its trees. An AG that had grown by one block could reserve two: others had
/// reserved all that it contributed, one of them found no block, and the volume was shut down.
#[test]
fn an_ag_that_grows_by_a_block_keeps_its_contribution() {
    let Some(volume) = Volume::make(80, "-d agsize=32m -b size=1024 -m rmapbt=1,reflink=1") else { return };
    let groups = &volume.groups;
    let group = groups.get(AgNumber(groups.count() - 1)).unwrap();
    let blocks = groups.geometry().blocks();
    let mut others = Vec::new();
    for n in 1..=300 {
        others.push(groups.reserve_blocks(groups.available() as u32).unwrap());
        let gained = volume.run(|tx| groups.extend_last(tx, blocks + n, || ())).unwrap();
        groups.adopt_new(&mut volume.begin(), gained).unwrap();
        let mut tx = volume.begin();
        let promise = group.lock(&mut tx).unwrap().contribution(&tx);
        tx.release_clean();
        let promised = group.contributed.load(std::sync::atomic::Ordering::Relaxed);
        assert!(
            promise >= promised,
            "{promised} blocks are promised after {n} more, and there are {promise}"
        );
    }
}

#[test]
fn space_released_in_an_ag_already_checked_is_found() {
    // The blocks that a change had reserved were in AG 0, where a file had claimed everything. The change checked AG 0,
    // found no space, and moved on to AG 1. Meanwhile the file released its claims and its reservation, and another
    // change reserved as many blocks and allocated them in AG 1. The first change failed with ENOSPC, though AG 0 had
    // the blocks that it had reserved.
    let Some(volume) = Volume::make(32, "-d agcount=2 -b size=1024 -m rmapbt=1,reflink=1") else {
        return;
    };
    let groups = &volume.groups;
    let everything = AllocTarget::OnlyAg(AgNumber(0));
    let request = ClaimRequest { target: everything, min: 1, max: u32::MAX, align: 1 };
    let claims: Vec<_> = std::iter::from_fn(|| groups.claim(&mut volume.begin(), &request).ok()).collect();
    let ahead = groups.reserve_blocks(claims.iter().map(Claim::count).sum()).unwrap();
    let mut mine = groups.reserve_blocks(20).unwrap();
    let mut file = Some((claims, ahead));
    let mut seen = Vec::new();
    let mut tx = volume.begin();
    let held = groups.lock_from_lowest(&mut tx, &mut mine, 20, &mut |_, locked| {
        seen.push(locked.group.ag.get());
        if let Some((claims, ahead)) = file.take() {
            drop(claims);
            drop(ahead);
            take_all(&volume, AgNumber(1));
        }
        Ok(Suitability::Together)
    });
    assert_eq!(seen.get(..2), Some([0, 1].as_slice()));
    assert!(held.is_ok(), "{held:?}");
    let one = AllocRequest {
        target: AllocTarget::Ag(AgNumber(0)),
        min: 1,
        max: 1,
        align: 1,
        owner: OWNER,
        data: false,
    };
    while mine.left() > 0 {
        groups.alloc_extent(&mut tx, &mut mine, &one).unwrap();
    }
    tx.commit(&mut []).unwrap();
}

/// Allocates everything that can be reserved, in one AG.
fn take_all(volume: &Volume, ag: AgNumber) {
    let groups = &volume.groups;
    let mut all = groups.reserve_blocks(u32::try_from(groups.available()).unwrap()).unwrap();
    let request = AllocRequest {
        target: AllocTarget::OnlyAg(ag),
        min: 1,
        max: 1 << 16,
        align: 1,
        owner: OWNER,
        data: false,
    };
    while all.left() > 0 && volume.run(|tx| groups.alloc_extent(tx, &mut all, &request)).is_ok() {
        all.rolled();
    }
}

/// A search for space locked AG after AG and read their trees. If it found no space, it released the headers and kept
/// the tree blocks. Another transaction then locked the headers and waited for a tree block, while the first one, in
/// its next search, waited for these headers. Only the simulation has reached that deadlock.
#[test]
fn a_failed_search_holds_no_tree_block() {
    let Some(volume) = Volume::make(32, "-d agcount=2 -b size=1024 -m rmapbt=1,reflink=1") else {
        return;
    };
    let groups = &volume.groups;
    let request = AllocRequest {
        target: AllocTarget::OnlyAg(AgNumber(0)),
        min: 8000,
        max: 8000,
        align: 1,
        owner: OWNER,
        data: false,
    };
    let mut taken = groups.reserve_blocks(8000).unwrap();
    volume.run(|tx| groups.alloc_extent(tx, &mut taken, &request)).unwrap();
    let [first, second] = [0, 1].map(|ag| groups.get(AgNumber(ag)).unwrap());
    let want = AgAllocArgs {
        near: Some(5),
        exact: false,
        min: 1,
        max: 9,
        align: 1,
        within: None,
        reuse_busy: false,
    };
    assert!(first.unclaimed_contribution() < second.unclaimed_contribution());
    // First the search finds space in the second AG alone; then no AG has space.
    for (need, found) in [(second.unclaimed_contribution(), true), (u32::MAX, false)] {
        let mut mine = groups.reserve_blocks(1).unwrap();
        let mut tx = volume.begin();
        let done = groups.lock_from_lowest(&mut tx, &mut mine, need, &mut |tx, locked| {
            locked.cursor::<CntBt>().last(tx)?;
            Ok(if locked.find(tx, &want)?.is_some() { Suitability::Alone } else { Suitability::NotYet })
        });
        assert_eq!(done.is_ok(), found, "{done:?}");
        assert!(is_free(&volume, first), "need {need}");
        assert_eq!(is_free(&volume, second), !found, "need {need}");
    }
}

/// Whether no transaction holds the headers of an AG or the roots of its free-space trees.
fn is_free(volume: &Volume, group: &Arc<Group>) -> bool {
    let mut tx = volume.begin();
    let Some(locked) = group.try_lock(&mut tx).unwrap() else { return false };
    let roots = [BnoBt::ROOT, CntBt::ROOT].map(|root| AgBlock(locked.get(&tx, root)));
    roots.into_iter().all(|root| {
        let at = DiskExtent {
            daddr: volume.geometry.ag_block_daddr(group.ag, root),
            bytes: volume.geometry.block_size,
        };
        tx.try_read(at, Rank::Buffer, |_| Ok(())).unwrap().is_some()
    })
}

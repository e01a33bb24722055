//! What the counter of free blocks promises can be allocated, however free space lies.

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

/// Fills the volume block by block, then frees every second block of it: the trees of free space are as large as they
/// can be.
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

/// Free space in single blocks makes the trees of free space grow by blocks that the counter had promised to users: who
/// had reserved the last of them, and had been told that a write went well, found none when the data was written back.
fn all_that_is_promised_is_there(megabytes: u64, options: &str) {
    let Some(volume) = Volume::make(megabytes, options) else { return };
    let total = volume.total(&[]);
    let mut held = fill_and_fragment(&volume);
    assert_eq!(volume.total(&held), total);
    let promised = u32::try_from(volume.groups.available()).unwrap();
    let mut reservation = volume.groups.reserve_blocks(promised).unwrap();
    // Writeback claims the blocks of all data before it takes the first one out of free space.
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
    // What the trees gave back as they shrank is promised to the last block, too.
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
fn of_fragmented_space_with_small_blocks_and_every_tree() {
    all_that_is_promised_is_there(32, "-d agcount=2 -b size=1024 -m rmapbt=1,reflink=1");
}

#[test]
fn of_fragmented_space_with_small_blocks_and_few_trees() {
    all_that_is_promised_is_there(32, "-d agcount=2 -b size=1024 -m rmapbt=0,reflink=0");
}

#[test]
fn of_fragmented_space_with_usual_blocks() {
    all_that_is_promised_is_there(128, "-d agcount=2 -m rmapbt=0,reflink=1");
}

#[test]
fn of_fragmented_space_in_the_smallest_groups() {
    all_that_is_promised_is_there(64, "-d agcount=4 -m rmapbt=1,reflink=1");
}

#[test]
fn a_reservation_and_a_claim_that_are_not_returned_are_found() {
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
    groups.get(AgNumber(1)).unwrap().metadata.draw(1);
    assert!(unreturned().is_some_and(|what| what.starts_with("AG 1: ")));
    groups.get(AgNumber(1)).unwrap().metadata.restore(1);
    assert_eq!(unreturned(), None);
}

#[test]
fn growing_takes_nothing_from_what_the_last_group_has_promised() {
    // While a volume grows, the new blocks of its last group are free and claimed, and the group does not promise them
    // yet. They were taken off twice, as blocks that are not promised and as claimed ones: as many that others had
    // reserved were out of reach until the growth was over. A volume grows because it is full, and then these are all
    // there are.
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

/// A larger group sets more blocks aside for its trees. Where it had grown by one block, it could set two aside: others
/// had reserved all that it promised, one of them found no block, and the volume was shut down.
#[test]
fn a_group_that_grows_by_a_block_has_what_it_promised() {
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
        let promise = group.lock(&mut tx).unwrap().promise(&tx);
        tx.release_clean();
        let promised = group.promised.load(std::sync::atomic::Ordering::Relaxed);
        assert!(
            promise >= promised,
            "{promised} blocks are promised after {n} more, and there are {promise}"
        );
    }
}

#[test]
fn room_that_ended_claims_give_to_a_group_already_looked_at_is_found() {
    // The blocks that a change had reserved lay in group 0, where a file had claimed all there was. The change
    // looked at group 0, found no room there, and went on to group 1. Before it got there, the file gave its claims
    // and its reservation back, and another change reserved as many blocks and took them of group 1. The change
    // failed for lack of space, though group 0 had what it had reserved.
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
    let held = groups.hold_from_lowest(&mut tx, &mut mine, 20, &mut |_, open| {
        seen.push(open.group.ag.get());
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

/// Allocates all that can be reserved, and lies in one group.
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

/// A search for room locked group after group and looked at their trees. Where it found no room, it released the
/// headers and kept the blocks of the trees. Another transaction then locked the headers and waited for a block of a
/// tree, while the first one, in its next search, waited for these headers. Only the simulation met that deadlock.
#[test]
fn a_search_that_finds_no_room_keeps_no_block_of_a_tree() {
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
    assert!(first.unclaimed_promise() < second.unclaimed_promise());
    // First the search finds room in the second group alone; then no group has room.
    for (need, found) in [(second.unclaimed_promise(), true), (u32::MAX, false)] {
        let mut mine = groups.reserve_blocks(1).unwrap();
        let mut tx = volume.begin();
        let done = groups.hold_from_lowest(&mut tx, &mut mine, need, &mut |tx, open| {
            open.cursor::<CntBt>().last(tx)?;
            Ok(if open.find(tx, &want)?.is_some() { Suitability::Alone } else { Suitability::NotYet })
        });
        assert_eq!(done.is_ok(), found, "{done:?}");
        assert!(is_free(&volume, first), "need {need}");
        assert_eq!(is_free(&volume, second), !found, "need {need}");
    }
}

/// Whether no transaction has the headers of a group or the roots of its trees of free space.
fn is_free(volume: &Volume, group: &Arc<Group>) -> bool {
    let mut tx = volume.begin();
    let Some(open) = group.try_lock(&mut tx).unwrap() else { return false };
    let roots = [BnoBt::ROOT, CntBt::ROOT].map(|root| AgBlock(open.get(&tx, root)));
    roots.into_iter().all(|root| {
        let at = DiskExtent {
            daddr: volume.geometry.ag_block_daddr(group.ag, root),
            bytes: volume.geometry.block_size,
        };
        tx.try_read(at, Rank::Buffer, |_| Ok(())).unwrap().is_some()
    })
}

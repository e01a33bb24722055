//! Threads that allocate and free on one volume at the same time.

use std::sync::mpsc::channel;
use std::time::Duration;

use base::{AgNumber, FsBlock};

use crate::testing::{Numbers, OWNER, Volume};
use crate::{AllocRequest, AllocTarget, ClaimRequest};

#[test]
fn threads_get_distinct_blocks() {
    let Some(volume) = Volume::make(64, "-d agcount=4 -b size=1024 -m rmapbt=1,reflink=1") else { return };
    let total = volume.total(&[]);
    let work = |seed: u32| {
        let mut numbers = Numbers(seed.into());
        let mut held: Vec<(FsBlock, u32)> = Vec::new();
        for _ in 0..1500 {
            if numbers.below(5) < 3 || held.is_empty() {
                let max = 1 + numbers.below(40);
                let Ok(mut reservation) = volume.groups.reserve_blocks(max) else { continue };
                // All begin with the same AG, to contend for it.
                let target = AllocTarget::Ag(AgNumber(numbers.below(2)));
                let request = AllocRequest { target, min: 1, max, align: 1, owner: OWNER, data: false };
                let done = volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request));
                held.extend(done.ok());
            } else {
                let (start, count) = held.swap_remove(numbers.below(held.len() as u32) as usize);
                // Two AGs in one transaction, in any order.
                let other = held.pop();
                volume
                    .run(|tx| {
                        for (start, count) in [Some((start, count)), other].into_iter().flatten() {
                            volume.groups.free_extent_later(tx, start, count, OWNER)?;
                        }
                        Ok(())
                    })
                    .unwrap();
            }
        }
        held
    };
    let mut held: Vec<(FsBlock, u32)> = std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (1..5).map(|seed| scope.spawn(move || work(seed))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    held.sort_unstable_by_key(|(start, _)| start.get());
    assert!(held.windows(2).all(|pair| pair[0].0.get() + u64::from(pair[0].1) <= pair[1].0.get()));
    assert_eq!(volume.total(&held), total);
    volume.check(&held);
    for (start, count) in held {
        volume.run(|tx| volume.groups.free_extent_later(tx, start, count, OWNER)).unwrap();
    }
    assert_eq!(volume.total(&[]), total);
    volume.check(&[]);
    volume.repair();
}

/// A change allocated the last blocks of its AG, which it had claimed, and needed one more. A lower AG had it, but
/// another thread held that AG. The change tried for 50 ms and then failed with ENOSPC; as it had begun, the volume was
/// shut down.
#[test]
fn space_of_a_lower_ag_is_found_while_it_is_locked_for_long() {
    let Some(volume) = Volume::make(64, "-d agcount=4 -b size=1024 -m rmapbt=1,reflink=1") else { return };
    let groups = &volume.groups;
    let take = |tx: &mut _, ag| {
        let mut reservation = groups.reserve_blocks(4096)?;
        let target = AllocTarget::OnlyAg(AgNumber(ag));
        let request = AllocRequest { target, min: 1, max: 4096, align: 1, owner: OWNER, data: false };
        groups.alloc_extent(tx, &mut reservation, &request)
    };
    while volume.run(|tx| take(tx, 2)).is_ok() {}
    while volume.run(|tx| take(tx, 3)).is_ok() {}
    let request = ClaimRequest { target: AllocTarget::OnlyAg(AgNumber(1)), min: 1, max: u32::MAX, align: 1 };
    let mut claims = Vec::new();
    while let Ok(claim) = groups.claim(&mut volume.begin(), &request) {
        claims.push(claim);
    }
    let claimed = claims.iter().map(crate::Claim::count).sum::<u32>();
    let (held, is_held) = channel();
    let volume = &volume;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut tx = volume.begin();
            groups.get(AgNumber(0)).unwrap().lock(&mut tx).unwrap();
            held.send(()).unwrap();
            // Longer than any thread would try.
            std::thread::sleep(Duration::from_millis(200));
            tx.commit(&mut []).unwrap();
        });
        is_held.recv().unwrap();
        volume
            .run(|tx| {
                let mut reservation = groups.reserve_blocks(claimed + 1)?;
                groups.take_claimed(tx, &mut reservation, claims, OWNER)?;
                assert_eq!(reservation.locked_ags[..], [AgNumber(0), AgNumber(1)]);
                let target = AllocTarget::Ag(AgNumber(1));
                let request = AllocRequest { target, min: 1, max: 1, align: 1, owner: OWNER, data: false };
                groups.alloc_extent(tx, &mut reservation, &request)
            })
            .unwrap();
    });
}

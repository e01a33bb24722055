//! Claims, allocations and frees together: no block has two owners, and the counters agree.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use base::{AgNumber, FsBlock};
use error::Error;

use crate::testing::{Numbers, OWNER, Volume};
use crate::{AllocRequest, AllocTarget, Claim, ClaimRequest};

/// The owner of each block of the volume in the test's model; 0 for none.
struct Owners(Vec<AtomicU32>);

impl Owners {
    fn new(volume: &Volume) -> Self {
        let blocks = u64::from(volume.geometry.ag_count()) << volume.geometry.ag_block_log;
        Self((0..blocks).map(|_| AtomicU32::new(0)).collect())
    }

    fn blocks(&self, start: FsBlock, count: u32) -> &[AtomicU32] {
        &self.0[start.get() as usize..][..count as usize]
    }

    fn gain(&self, start: FsBlock, count: u32, who: u32) {
        for (block, n) in self.blocks(start, count).iter().zip(0u64..) {
            let before = block.swap(who, Relaxed);
            assert_eq!(before, 0, "block {:#x} has two owners", start.get() + n);
        }
    }

    fn lose(&self, start: FsBlock, count: u32, who: u32) {
        assert!(self.blocks(start, count).iter().all(|block| block.swap(0, Relaxed) == who));
    }
}

/// Claims and blocks of one thread.
struct Party<'v> {
    volume: &'v Volume,
    owners: &'v Owners,
    numbers: Numbers,
    who: u32,
    held: Vec<(FsBlock, u32)>,
    claims: Vec<Claim>,
}

impl Party<'_> {
    fn pick<T>(numbers: &mut Numbers, list: &mut Vec<T>) -> Option<T> {
        let at = numbers.below(list.len() as u32) as usize;
        (!list.is_empty()).then(|| list.swap_remove(at))
    }

    fn target(&mut self) -> AllocTarget {
        let ag = AgNumber(self.numbers.below(self.volume.geometry.ag_count()));
        match (self.held.last(), self.numbers.below(3)) {
            (Some((start, count)), 0) => AllocTarget::Block(FsBlock(start.get() + u64::from(*count))),
            (_, 1) => AllocTarget::OnlyAg(ag),
            _ => AllocTarget::Ag(ag),
        }
    }

    fn claim(&mut self) {
        let max = 1 + self.numbers.below(60);
        let align = [1, 1, 4][self.numbers.below(3) as usize];
        let request = ClaimRequest { target: self.target(), min: 1 + self.numbers.below(max), max, align };
        let mut tx = self.volume.begin();
        match self.volume.groups.claim(&mut tx, &request) {
            Ok(claim) => {
                assert!(!tx.is_dirty());
                assert!((request.min..=request.max).contains(&claim.count()), "{request:?} gave {claim:?}");
                self.owners.gain(claim.start(), claim.count(), self.who);
                self.claims.push(claim);
            }
            Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn drop_claim(&mut self) {
        let Some(mut claim) = Self::pick(&mut self.numbers, &mut self.claims) else { return };
        let front = claim.take_front(self.numbers.below(claim.count() + 1));
        let (keep, gone) = if self.numbers.below(2) == 0 { (front, claim) } else { (claim, front) };
        self.owners.lose(gone.start(), gone.count(), self.who);
        drop(gone);
        if keep.count() > 0 {
            self.claims.push(keep);
        }
    }

    fn take(&mut self) {
        let Some(mut claim) = Self::pick(&mut self.numbers, &mut self.claims) else { return };
        let whole = (claim.start(), claim.count());
        // Parts in order, as small files allocate them.
        let mut parts = Vec::new();
        while claim.count() > 0 {
            parts.push(claim.take_front(1 + self.numbers.below(20)));
        }
        let Ok(mut reservation) = self.volume.groups.reserve_blocks(whole.1) else {
            parts.iter().for_each(|part| self.owners.lose(part.start(), part.count(), self.who));
            return;
        };
        let groups = &self.volume.groups;
        self.volume.run(|tx| groups.take_claimed(tx, &mut reservation, parts, OWNER)).unwrap();
        self.held.push(whole);
    }

    fn alloc(&mut self) {
        let max = 1 + self.numbers.below(40);
        let Ok(mut reservation) = self.volume.groups.reserve_blocks(max) else { return };
        let data = self.numbers.below(2) == 0;
        let request = AllocRequest { target: self.target(), min: 1, max, align: 1, owner: OWNER, data };
        let groups = &self.volume.groups;
        if let Ok((start, count)) = self.volume.run(|tx| groups.alloc_extent(tx, &mut reservation, &request))
        {
            self.owners.gain(start, count, self.who);
            self.held.push((start, count));
        }
    }

    fn free(&mut self) {
        let Some((start, count)) = Self::pick(&mut self.numbers, &mut self.held) else { return };
        self.owners.lose(start, count, self.who);
        self.volume.run(|tx| self.volume.groups.free_extent_later(tx, start, count, OWNER)).unwrap();
    }

    /// `weights` of: claims, releasing them, allocating them, allocations, frees.
    fn go(&mut self, steps: u32, weights: [u32; 5]) {
        for _ in 0..steps {
            let mut at = self.numbers.below(weights.iter().sum());
            let which = weights.iter().position(|weight| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            });
            match which {
                Some(0) => self.claim(),
                Some(1) => self.drop_claim(),
                Some(2) => self.take(),
                Some(3) => self.alloc(),
                _ => self.free(),
            }
        }
    }
}

fn run(megabytes: u64, options: &str, threads: u32, steps: u32) {
    let Some(volume) = Volume::make(megabytes, options) else { return };
    let owners = Owners::new(&volume);
    let total = volume.total(&[]);
    let available = volume.groups.available();
    let party = |who: u32| Party {
        volume: &volume,
        owners: &owners,
        numbers: Numbers(who.into()),
        who,
        held: Vec::new(),
        claims: Vec::new(),
    };
    let mut parties: Vec<_> = (1..=threads).map(party).collect();
    // Growing until there is no space, shrinking, and a mixture.
    for weights in [[5, 1, 4, 4, 1], [2, 3, 1, 1, 6], [4, 3, 2, 3, 3]] {
        std::thread::scope(|scope| {
            for party in &mut parties {
                scope.spawn(|| party.go(steps, weights));
            }
        });
        let mut held: Vec<_> = parties.iter().flat_map(|party| party.held.iter().copied()).collect();
        held.sort_unstable_by_key(|(start, _)| start.get());
        let claimed: u64 = parties.iter().flat_map(|p| &p.claims).map(|claim| u64::from(claim.count())).sum();
        assert_eq!((volume.total(&held), volume.groups.claimed()), (total, claimed));
        // Claims are not on the disk.
        volume.check(&held);
    }
    for party in &mut parties {
        party.claims.clear();
        while !party.held.is_empty() {
            party.free();
        }
    }
    assert_eq!((volume.total(&[]), volume.groups.available()), (total, available));
    volume.check(&[]);
    volume.repair();
}

#[test]
fn one_thread_all_trees() {
    run(64, "-d agcount=4 -b size=1024 -m rmapbt=1,reflink=1", 1, 900);
}

#[test]
fn one_thread_without_rmapbt_and_refcountbt() {
    run(64, "-d agcount=2 -b size=1024 -m rmapbt=0,reflink=0", 1, 900);
}

#[test]
fn threads_that_fill_a_small_volume() {
    run(64, "-d agcount=4 -b size=1024 -m rmapbt=1,reflink=1", 4, 700);
}

#[test]
fn threads_4k_blocks() {
    run(64, "-d agcount=2 -m rmapbt=1,reflink=1", 4, 500);
}

#[test]
fn a_claim_avoids_busy_blocks_and_excludes_others() {
    let Some(volume) = Volume::make(64, "-d agcount=1 -b size=1024 -m rmapbt=0,reflink=0") else { return };
    let request = |target, min| ClaimRequest { target, min, max: 50, align: 1 };
    let claim = |request| volume.groups.claim(&mut volume.begin(), &request);
    let first = claim(request(AllocTarget::OnlyAg(AgNumber(0)), 50)).unwrap();
    let start = first.start();
    let exact = request(AllocTarget::Exact(start), 1);
    assert!(matches!(claim(exact), Err(Error::NoSpace { .. })));
    // Not for metadata either.
    let mut reservation = volume.groups.reserve_blocks(100).unwrap();
    let target = AllocTarget::Exact(start);
    let metadata = AllocRequest { target, min: 1, max: 50, align: 1, owner: OWNER, data: false };
    let refused = volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &metadata));
    assert!(matches!(refused, Err(Error::NoSpace { .. })));
    volume.run(|tx| volume.groups.take_claimed(tx, &mut reservation, [first], OWNER)).unwrap();
    assert_eq!((reservation.left(), volume.groups.claimed()), (50, 0));
    volume.hook.late.store(true, Relaxed);
    volume.run(|tx| volume.groups.free_extent_later(tx, start, 50, OWNER)).unwrap();
    assert!(volume.groups.has_busy());
    assert!(matches!(claim(exact), Err(Error::NoSpace { .. })));
    volume.hook.release();
    let again = claim(exact).unwrap();
    assert_eq!((again.start(), again.count(), again.ag()), (start, 50, AgNumber(0)));
    drop(again);
    assert_eq!(claim(exact).unwrap().start(), start, "what is dropped is free");
}

#[test]
fn claims_leave_the_ags_reservations() {
    let Some(volume) = Volume::make(64, "-d agcount=4 -b size=1024 -m rmapbt=1,reflink=1") else { return };
    let mut claims = Vec::new();
    let request = ClaimRequest { target: AllocTarget::Ag(AgNumber(0)), min: 1, max: 1000, align: 1 };
    while let Ok(claim) = volume.groups.claim(&mut volume.begin(), &request) {
        claims.push(claim);
    }
    let claimed = volume.groups.claimed();
    let available = volume.groups.available();
    assert!(claimed.abs_diff(available) < 100, "{claimed} are claimed of {available} for users");
    // The trees can still allocate the blocks that are reserved for them.
    let mut reservation = volume.groups.reserve_blocks(claimed.min(available) as u32).unwrap();
    for claim in claims {
        if claim.count() > reservation.left() {
            break;
        }
        let mut own = reservation.split(claim.count());
        volume.run(|tx| volume.groups.take_claimed(tx, &mut own, [claim], OWNER)).unwrap();
    }
}

/// Free space was in single blocks, of which a search checks only some. When these were claimed, there was no space,
/// not even for the trees of maps, so the volume was shut down.
#[test]
fn the_last_of_many_single_blocks_is_found() {
    let Some(volume) = Volume::make(64, "-d agcount=1 -b size=1024 -m rmapbt=0,reflink=0") else { return };
    let take = |tx: &mut _, max, target| {
        let mut reservation = volume.groups.reserve_blocks(max)?;
        let request = AllocRequest { target, min: 1, max, align: 1, owner: OWNER, data: true };
        volume.groups.alloc_extent(tx, &mut reservation, &request)
    };
    let target = AllocTarget::Ag(AgNumber(0));
    let (start, count) = volume.run(|tx| take(tx, 2000, target)).unwrap();
    assert_eq!(count, 2000);
    for max in [4096, 64, 1] {
        while volume.run(|tx| take(tx, max, target)).is_ok() {}
    }
    for n in 0..1000 {
        let block = FsBlock(start.get() + 2 * n);
        volume.run(|tx| volume.groups.free_extent_later(tx, block, 1, OWNER)).unwrap();
    }
    let request = ClaimRequest { target, min: 1, max: 50, align: 1 };
    let mut claims: Vec<_> =
        (0..500).map(|_| volume.groups.claim(&mut volume.begin(), &request).unwrap()).collect();
    for _ in 0..300 {
        volume.run(|tx| take(tx, 1, target)).unwrap();
    }
    while let Ok(claim) = volume.groups.claim(&mut volume.begin(), &request) {
        claims.push(claim);
    }
    assert!(claims.len() > 600, "{}", claims.len());
}

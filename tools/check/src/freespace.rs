//! Free space of one AG: both trees against each other, the AGFL, and the AGF's counters.

use base::AgBlock;
use format::agf::RawAgf;
use format::agfl::Agfl;
use format::btree::{BnoBt, Btree, CntBt, FreeExtent, rmap};
use format::{Damage, Place};

use crate::ag::{AgCheck, Root, Walked};
use crate::ownership::claim::{Claim, OWNER_FREE};
use crate::tree::TreeWalk;

/// What one tree says in sum. The fingerprint does not depend on the order of the extents.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Total {
    extents: u64,
    blocks: u64,
    longest: u32,
    fingerprint: u64,
}

impl Total {
    fn add(&mut self, extent: &FreeExtent) {
        let (start, count) = (extent.startblock.get(), extent.blockcount.get());
        self.extents += 1;
        self.blocks += u64::from(count);
        self.longest = self.longest.max(count);
        // Any mixing function will do: both trees are summed by the same one.
        let word = u64::from(start) << 32 | u64::from(count);
        let mixed = (word ^ word >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
        self.fingerprint =
            self.fingerprint.wrapping_add((mixed ^ mixed >> 27).wrapping_mul(0x81da_def4_bc2d_d44d));
    }
}

/// Checks the free space of an AG whose AGF could be read.
pub(crate) fn check(ag: &mut AgCheck<'_>, agf: &RawAgf) {
    check_list(ag, agf);
    let by_block = ag.root(agf.bnoroot.get(), agf.bnolevel.get());
    let by_size = ag.root(agf.cntroot.get(), agf.cntlevel.get());
    let bno = by_block.map(|root| walk_by_block(ag, root));
    let cnt = by_size.map(|root| walk_by_size(ag, root));
    if let (Some((bno_total, bno)), Some((cnt_total, cnt))) = (bno, cnt)
        && bno.complete
        && cnt.complete
    {
        if bno_total != cnt_total {
            tell_difference(ag, by_block, by_size);
        }
        let rmap_blocks = if ag.volume.geometry.features.rmapbt() { agf.rmapblocks.get() } else { 1 };
        // The roots are not counted, neither is the reference-count tree.
        let tree_blocks = bno.blocks - 1 + cnt.blocks - 1 + u64::from(rmap_blocks.saturating_sub(1));
        ag.compare("AGF", "btreeblks", tree_blocks, agf.btreeblks.get());
    }
    if let Some((total, walked)) = bno
        && walked.complete
    {
        ag.compare("AGF", "freeblks", total.blocks, agf.freeblks.get());
        ag.compare("AGF", "longest", total.longest.into(), agf.longest.get());
        ag.trees.free_blocks = total.blocks + u64::from(agf.flcount.get()) + u64::from(agf.btreeblks.get());
    }
}

fn check_list(ag: &mut AgCheck<'_>, agf: &RawAgf) {
    let Some(bytes) = ag.read_header("AGFL", 3) else {
        ag.trees.incomplete = true;
        return;
    };
    let list = match Agfl::verify(&bytes, &ag.volume.geometry, ag.ag) {
        Ok(list) => list,
        Err(damage) => {
            ag.trees.incomplete = true;
            return ag.error(damage);
        }
    };
    ag.volume.check_lsn(ag.place(), "AGFL", list.header.lsn.get());
    let slots = list.slots.len() as u32;
    if agf.flfirst.get() >= slots || agf.flcount.get() > slots {
        ag.trees.incomplete = true; // reported with the AGF
        return;
    }
    for block in list.blocks(agf) {
        if ag.volume.geometry.ag_block_is_usable(ag.ag, block) {
            ag.own(block, 1, rmap::OWNER_AG);
        } else {
            ag.trees.incomplete = true;
            ag.error(Damage::new("AGFL", "bno", "a block of this AG", block));
        }
    }
}

fn walk_by_block(ag: &mut AgCheck<'_>, root: Root) -> (Total, Walked) {
    let mut total = Total::default();
    let walked = ag.walk::<BnoBt>(root, rmap::OWNER_AG, |ag, records| {
        for extent in records {
            total.add(extent);
            if fits(ag, extent, BnoBt::NAME) {
                let start = AgBlock(extent.startblock.get());
                ag.claim(Claim::metadata(ag.ag, start, extent.blockcount.get(), OWNER_FREE as i64));
            }
        }
    });
    (total, walked)
}

fn walk_by_size(ag: &mut AgCheck<'_>, root: Root) -> (Total, Walked) {
    let mut total = Total::default();
    let walked = ag.walk::<CntBt>(root, rmap::OWNER_AG, |ag, records| {
        for extent in records {
            total.add(extent);
            fits(ag, extent, CntBt::NAME);
        }
    });
    (total, walked)
}

fn fits(ag: &AgCheck<'_>, extent: &FreeExtent, tree: &'static str) -> bool {
    let (start, count) = (AgBlock(extent.startblock.get()), extent.blockcount.get());
    let geometry = &ag.volume.geometry;
    let end = u64::from(start.get()) + u64::from(count);
    let fits =
        count > 0 && geometry.ag_block_is_usable(ag.ag, start) && end <= u64::from(geometry.ag_length(ag.ag));
    if !fits {
        let found = format!("{start:#x} for {count} blocks");
        ag.error(Damage::new(tree, "record", "some blocks within the AG, behind its header", found));
    }
    fits
}

/// Finds out what only one of the trees has. Both have been walked whole before.
#[cold]
fn tell_difference(ag: &AgCheck<'_>, by_block: Option<Root>, by_size: Option<Root>) {
    let (Some(by_block), Some(by_size)) = (by_block, by_size) else { return };
    let mut bno = TreeWalk::<BnoBt>::new(ag.volume).quiet();
    bno.begin(ag.ag, by_block.block, by_block.levels, &mut |_, _| ());
    let mut cnt = TreeWalk::<CntBt>::new(ag.volume).quiet();
    cnt.begin(ag.ag, by_size.block, by_size.levels, &mut |_, _| ());
    let pair = |extent: &FreeExtent| (extent.startblock.get(), extent.blockcount.get());
    let (mut left, mut right) = (Vec::new(), Vec::new());
    while bno.next_leaf(&mut |_, _| ()) {
        left.extend(bno.records().iter().map(pair));
    }
    while cnt.next_leaf(&mut |_, _| ()) {
        right.extend(cnt.records().iter().map(pair));
    }
    left.sort_unstable();
    right.sort_unstable();
    let tell = |(start, count): &(u32, u32), tree, field| {
        let place = Place::block(ag.ag, AgBlock(*start));
        let expected = format!("{count} free blocks from {start:#x}, as in the other tree");
        ag.volume.error(place, Damage::new(tree, field, expected, "none"));
    };
    for extent in left.iter().filter(|extent| right.binary_search(extent).is_err()) {
        tell(extent, CntBt::NAME, "record");
    }
    for extent in right.iter().filter(|extent| left.binary_search(extent).is_err()) {
        tell(extent, BnoBt::NAME, "record");
    }
}

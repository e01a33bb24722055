//! Free space of one AG: the bnobt and the cntbt compared with each other, the AGFL, and the counters of the AGF.

use base::AgBlock;
use format::agf::RawAgf;
use format::agfl::Agfl;
use format::btree::{BnoBt, Btree, CntBt, FreeExtent, rmap};
use format::{Damage, Place};

use crate::ag::{AgCheck, TreeRoot};
use crate::ownership::claim::{Claim, OWNER_FREE};
use crate::tree::{TreeRecords, TreeSize};

/// Sums over the free extents of one btree. The fingerprint does not depend on their order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct FreeExtentSums {
    extents: u64,
    blocks: u64,
    longest: u32,
    fingerprint: u64,
}

impl FreeExtentSums {
    fn add(&mut self, extent: &FreeExtent) {
        let (start, count) = (extent.startblock.get(), extent.blockcount.get());
        self.extents += 1;
        self.blocks += u64::from(count);
        self.longest = self.longest.max(count);
        // Any mixing function will do, as both btrees use the same one.
        let word = u64::from(start) << 32 | u64::from(count);
        let mixed = (word ^ word >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
        self.fingerprint =
            self.fingerprint.wrapping_add((mixed ^ mixed >> 27).wrapping_mul(0x81da_def4_bc2d_d44d));
    }
}

/// Checks the free space of an AG whose AGF could be read.
pub(crate) fn check(ag: &mut AgCheck<'_>, agf: &RawAgf) {
    check_agfl(ag, agf);
    let bno_root = ag.root(agf.bnoroot.get(), agf.bnolevel.get());
    let cnt_root = ag.root(agf.cntroot.get(), agf.cntlevel.get());
    let bno = bno_root.map(|root| walk_bnobt(ag, root));
    let cnt = cnt_root.map(|root| walk_cntbt(ag, root));
    if let (Some((bno_sums, bno)), Some((cnt_sums, cnt))) = (bno, cnt)
        && bno.complete
        && cnt.complete
    {
        if bno_sums != cnt_sums {
            report_differences(ag, bno_root, cnt_root);
        }
        let rmap_blocks = if ag.volume.geometry.features.rmapbt() { agf.rmapblocks.get() } else { 1 };
        // btreeblks counts neither the roots nor the refcountbt.
        let tree_blocks = bno.blocks - 1 + cnt.blocks - 1 + u64::from(rmap_blocks.saturating_sub(1));
        ag.compare("AGF", "btreeblks", tree_blocks, agf.btreeblks.get());
    }
    if let Some((sums, size)) = bno
        && size.complete
    {
        ag.compare("AGF", "freeblks", sums.blocks, agf.freeblks.get());
        ag.compare("AGF", "longest", sums.longest.into(), agf.longest.get());
        ag.summary.free_blocks = sums.blocks + u64::from(agf.flcount.get()) + u64::from(agf.btreeblks.get());
    }
}

fn check_agfl(ag: &mut AgCheck<'_>, agf: &RawAgf) {
    let bytes = ag.read_header("AGFL", 3);
    let agfl = bytes
        .as_ref()
        .and_then(|bytes| ag.volume.accept(ag.place(), Agfl::verify(bytes, &ag.volume.geometry, ag.ag)));
    let Some(agfl) = agfl else {
        ag.summary.incomplete = true;
        return;
    };
    ag.volume.check_lsn(ag.place(), "AGFL", agfl.header.lsn.get());
    let slots = agfl.slots.len() as u32;
    if agf.flfirst.get() >= slots || agf.flcount.get() > slots {
        ag.summary.incomplete = true; // reported with the AGF
        return;
    }
    for block in agfl.blocks(agf) {
        if ag.volume.geometry.ag_block_is_usable(ag.ag, block) {
            ag.claim_metadata(block, 1, rmap::OWNER_AG);
        } else {
            ag.summary.incomplete = true;
            ag.error(Damage::new("AGFL", "bno", "a block of this AG", block));
        }
    }
}

fn walk_bnobt(ag: &mut AgCheck<'_>, root: TreeRoot) -> (FreeExtentSums, TreeSize) {
    let mut sums = FreeExtentSums::default();
    let size = ag.walk::<BnoBt>(root, rmap::OWNER_AG, |ag, records| {
        for extent in records {
            sums.add(extent);
            if fits(ag, extent, BnoBt::NAME) {
                let start = AgBlock(extent.startblock.get());
                ag.claim(Claim::metadata(ag.ag, start, extent.blockcount.get(), OWNER_FREE as i64));
            }
        }
    });
    (sums, size)
}

fn walk_cntbt(ag: &mut AgCheck<'_>, root: TreeRoot) -> (FreeExtentSums, TreeSize) {
    let mut sums = FreeExtentSums::default();
    let size = ag.walk::<CntBt>(root, rmap::OWNER_AG, |ag, records| {
        for extent in records {
            sums.add(extent);
            fits(ag, extent, CntBt::NAME);
        }
    });
    (sums, size)
}

/// Reports a free extent that is empty or not within the AG.
fn fits(ag: &AgCheck<'_>, extent: &FreeExtent, tree: &'static str) -> bool {
    let (start, count) = (AgBlock(extent.startblock.get()), extent.blockcount.get());
    let geometry = &ag.volume.geometry;
    let end = u64::from(start.get()) + u64::from(count);
    let fits =
        count > 0 && geometry.ag_block_is_usable(ag.ag, start) && end <= u64::from(geometry.ag_length(ag.ag));
    if !fits {
        let found = format!("{start:#x} for {count} blocks");
        ag.error(Damage::new(
            tree,
            "record",
            "at least one block, within the AG and after its headers",
            found,
        ));
    }
    fits
}

/// Reports the extents that only one of the btrees has. Both are known to be complete.
#[cold]
fn report_differences(ag: &AgCheck<'_>, bno_root: Option<TreeRoot>, cnt_root: Option<TreeRoot>) {
    let (Some(bno_root), Some(cnt_root)) = (bno_root, cnt_root) else { return };
    let range = |extent: FreeExtent| (extent.startblock.get(), extent.blockcount.get());
    let mut bno: Vec<_> = TreeRecords::<BnoBt>::new(ag.volume, ag.ag, bno_root).map(range).collect();
    let mut cnt: Vec<_> = TreeRecords::<CntBt>::new(ag.volume, ag.ag, cnt_root).map(range).collect();
    bno.sort_unstable();
    cnt.sort_unstable();
    let report = |(start, count): &(u32, u32), tree, other| {
        let place = Place::block(ag.ag, AgBlock(*start));
        let expected = format!("{count} free blocks from {start:#x}, as in the {other}");
        ag.volume.error(place, Damage::new(tree, "record", expected, "none"));
    };
    for extent in bno.iter().filter(|extent| cnt.binary_search(extent).is_err()) {
        report(extent, CntBt::NAME, BnoBt::NAME);
    }
    for extent in cnt.iter().filter(|extent| bno.binary_search(extent).is_err()) {
        report(extent, BnoBt::NAME, CntBt::NAME);
    }
}

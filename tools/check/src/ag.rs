//! One allocation group: its header sectors, its btrees, and their counters.

use base::{AgBlock, AgNumber};
use format::agf::RawAgf;
use format::agi::RawAgi;
use format::btree::{self, MAX_LEVELS, Rmap, RmapBt, rmap};
use format::ondisk::OnDisk;
use format::{Damage, Place};

use crate::freespace;
use crate::inode_map::AgInodes;
use crate::inode_trees;
use crate::ownership::claim::{Claim, merge_adjacent};
use crate::ownership::store::{ClaimBuffer, ClaimStore};
use crate::tree::{CheckedBtree, TreeSize, TreeWalk};
use crate::volume::Volume;

/// Root block and height of a btree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeRoot {
    pub block: AgBlock,
    pub levels: u32,
}

/// The results of an AG that later phases need.
#[derive(Debug, Default)]
pub(crate) struct AgSummary {
    pub number: AgNumber,
    /// Root of the rmapbt, if it exists and can be walked.
    pub rmap: Option<TreeRoot>,
    /// Root of the refcountbt, if it exists and can be walked.
    pub refcount: Option<TreeRoot>,
    /// Some metadata or free blocks of the AG are not known.
    pub incomplete: bool,
    /// Free blocks including those of the AGFL and of the free space btrees: the AG's part of `fdblocks`.
    pub free_blocks: u64,
    /// Heads of the unlinked lists; empty if the AGI could not be read.
    pub unlinked: Vec<u32>,
    /// The inodes of the inobt.
    pub inodes: AgInodes,
}

/// The check of one AG.
pub(crate) struct AgCheck<'v> {
    pub volume: &'v Volume<'v>,
    pub ag: AgNumber,
    store: &'v ClaimStore,
    buffer: &'v mut ClaimBuffer,
    /// Claims of the AG's headers and btrees, which are merged before they go to the store.
    metadata: Vec<Claim>,
    pub summary: AgSummary,
}

impl<'v> AgCheck<'v> {
    pub fn new(
        volume: &'v Volume<'v>,
        ag: AgNumber,
        store: &'v ClaimStore,
        buffer: &'v mut ClaimBuffer,
    ) -> Self {
        let summary = AgSummary { number: ag, ..AgSummary::default() };
        Self { volume, ag, store, buffer, metadata: Vec::new(), summary }
    }

    /// Checks headers and btrees, and claims their blocks and the free blocks.
    pub fn run(mut self) -> AgSummary {
        let geometry = &self.volume.geometry;
        self.claim_metadata(AgBlock(0), geometry.ag_header_blocks(), rmap::OWNER_FS);
        self.claim_log();
        match self.read_agf() {
            Some(agf) => {
                freespace::check(&mut self, &agf);
                self.check_rmap(&agf);
                self.check_refcount(&agf);
            }
            None => self.summary.incomplete = true,
        }
        match self.read_agi() {
            Some(agi) => inode_trees::check(&mut self, &agi),
            None => {
                self.summary.incomplete = true;
                self.volume.set_owners_missing();
                self.volume.set_names_missing();
            }
        }
        self.store_metadata_claims();
        self.summary
    }

    /// Claims blocks for metadata of the AG.
    pub fn claim_metadata(&mut self, start: AgBlock, count: u32, owner: i64) {
        self.metadata.push(Claim::metadata(self.ag, start, count, owner));
    }

    /// Takes so many bytes of the memory budget for slots of inodes. Returns whether there are so many.
    pub fn take_memory(&self, bytes: usize) -> bool {
        self.store.take_memory(bytes)
    }

    /// Stores a claim that need not be merged with others.
    pub fn claim(&mut self, claim: Claim) {
        self.buffer.push(self.store, claim);
    }

    fn store_metadata_claims(&mut self) {
        let mut metadata = std::mem::take(&mut self.metadata);
        metadata.sort_unstable();
        merge_adjacent(&mut metadata);
        metadata.into_iter().for_each(|claim| self.claim(claim));
    }

    fn claim_log(&mut self) {
        let geometry = &self.volume.geometry;
        let Some((ag, start)) = geometry.log_start.and_then(|start| geometry.split_fs_block(start)) else {
            return;
        };
        if ag == self.ag {
            self.claim_metadata(start, geometry.log_blocks, rmap::OWNER_LOG);
        }
    }

    /// Reads a header sector: 1 AGF, 2 AGI, 3 AGFL.
    pub fn read_header(&self, structure: &'static str, sector: u32) -> Option<Vec<u8>> {
        let geometry = &self.volume.geometry;
        let daddr = geometry.ag_header_daddr(self.ag, sector);
        let mut bytes = vec![0; geometry.sector_size as usize];
        let place = self.place();
        self.volume.read(place, structure, daddr.checked_bytes()?, &mut bytes).then_some(bytes)
    }

    fn read_agf(&mut self) -> Option<RawAgf> {
        let bytes = self.read_header(RawAgf::NAME, 1)?;
        self.volume.accept(self.place(), RawAgf::verify(&bytes, &self.volume.geometry, self.ag));
        // The AGF is used in spite of a wrong field, unless the magic number is wrong.
        let agf = RawAgf::view(&bytes).filter(|agf| agf.magicnum.get() == format::agf::MAGIC)?;
        self.volume.check_lsn(self.place(), RawAgf::NAME, agf.lsn.get());
        Some(*agf)
    }

    fn read_agi(&mut self) -> Option<RawAgi> {
        let bytes = self.read_header(RawAgi::NAME, 2)?;
        self.volume.accept(self.place(), RawAgi::verify(&bytes, &self.volume.geometry, self.ag));
        let agi = RawAgi::view(&bytes).filter(|agi| agi.magicnum.get() == format::agi::MAGIC)?;
        self.volume.check_lsn(self.place(), RawAgi::NAME, agi.lsn.get());
        Some(*agi)
    }

    /// The root of a btree as a header gives it; `None` if it is not usable, which was reported with the header.
    pub fn root(&mut self, block: u32, levels: u32) -> Option<TreeRoot> {
        let block = AgBlock(block);
        let usable = self.volume.geometry.ag_block_is_usable(self.ag, block);
        let root = (usable && (1..=MAX_LEVELS).contains(&levels)).then_some(TreeRoot { block, levels });
        self.summary.incomplete |= root.is_none();
        root
    }

    /// Walks a whole btree: claims its blocks for `owner` and calls `visit` with the records of each leaf.
    pub fn walk<T: CheckedBtree>(
        &mut self,
        root: TreeRoot,
        owner: i64,
        mut visit: impl FnMut(&mut Self, &[T::Record]),
    ) -> TreeSize {
        let volume = self.volume;
        let mut tree = TreeWalk::<T>::new(volume);
        let mut blocks = Vec::new();
        tree.begin(self.ag, root, &mut |_, block| blocks.push(block));
        while tree.next_leaf(&mut |_, block| blocks.push(block)) {
            visit(self, tree.records());
        }
        let size = TreeSize { blocks: blocks.len() as u64, complete: !tree.is_incomplete() };
        blocks.into_iter().for_each(|block| self.claim_metadata(block, 1, owner));
        self.summary.incomplete |= !size.complete;
        size
    }

    fn check_rmap(&mut self, agf: &RawAgf) {
        if !self.volume.geometry.features.rmapbt() {
            return;
        }
        let Some(root) = self.root(agf.rmaproot.get(), agf.rmaplevel.get()) else { return };
        let size = self.walk::<RmapBt>(root, rmap::OWNER_AG, |this, records| {
            records.iter().for_each(|record| this.check_rmap_record(record));
        });
        self.summary.rmap = Some(root);
        if size.complete {
            self.compare("AGF", "rmapblocks", size.blocks, agf.rmapblocks.get());
        }
    }

    fn check_rmap_record(&self, record: &Rmap) {
        let (start, count) = (record.startblock.get(), record.blockcount.get());
        let length = u64::from(self.volume.geometry.ag_length(self.ag));
        let fits = count > 0 && u64::from(start) + u64::from(count) <= length;
        let owner = record.owner.get() as i64;
        let owner_is_known = owner >= 0 || (rmap::OWNER_COW..=rmap::OWNER_FS).contains(&owner);
        let offset = record.offset.get();
        let unknown = offset & !(rmap::ATTR_FORK | rmap::BMBT_BLOCK | rmap::UNWRITTEN | rmap::OFFSET_MASK);
        let offset_is_valid = unknown == 0 && (owner >= 0 || offset == 0);
        if !(fits && owner_is_known && offset_is_valid) {
            let place = Place::block(self.ag, AgBlock(start));
            let found = Claim::of_rmap(self.ag, record);
            let expected = "blocks within the AG, a known owner, known flags";
            let found = format!("{found} (offset {offset:#x})");
            self.volume.error(place, Damage::new(<RmapBt as btree::Btree>::NAME, "record", expected, found));
        }
    }

    fn check_refcount(&mut self, agf: &RawAgf) {
        if !self.volume.geometry.features.reflink() {
            return;
        }
        let Some(root) = self.root(agf.refcntroot.get(), agf.refcntlevel.get()) else { return };
        let size = self.walk::<btree::RefcountBt>(root, rmap::OWNER_REFC, |this, records| {
            records.iter().for_each(|record| this.check_refcount_record(record));
        });
        self.summary.refcount = Some(root);
        if size.complete {
            self.compare("AGF", "refcntblocks", size.blocks, agf.refcntblocks.get());
        }
    }

    fn check_refcount_record(&mut self, record: &btree::RefcountExtent) {
        let (start, count) = (record.startblock.get(), record.blockcount.get());
        let staging = start & btree::REFCOUNT_COW != 0;
        let block = AgBlock(start & !btree::REFCOUNT_COW);
        let end = u64::from(block.get()) + u64::from(count);
        let fits = count > 0
            && self.volume.geometry.ag_block_is_usable(self.ag, block)
            && end <= u64::from(self.volume.geometry.ag_length(self.ag));
        let count_is_valid = if staging { record.refcount.get() == 1 } else { record.refcount.get() >= 2 };
        if !(fits && count_is_valid) {
            let expected = "blocks within the AG, with at least 2 owners (CoW staging: 1)";
            let found = format!("{block:#x} for {count} blocks, {} owners", record.refcount.get());
            let place = Place::block(self.ag, block);
            self.volume.error(
                place,
                Damage::new(<btree::RefcountBt as btree::Btree>::NAME, "record", expected, found),
            );
        }
        if fits && staging {
            self.claim_metadata(block, count, rmap::OWNER_COW);
        }
    }

    /// Compares a counter of a header with the counted value.
    pub fn compare(&self, structure: &'static str, field: &'static str, counted: u64, stored: u32) {
        if counted != u64::from(stored) {
            self.error(Damage::new(structure, field, counted, stored));
        }
    }

    pub fn place(&self) -> Place {
        Place::ag(self.ag)
    }

    pub fn error(&self, damage: Damage) {
        self.volume.error(self.place(), damage);
    }
}

//! One allocation group: its header sectors, its trees, and the counters that tell of them.

use base::{AgBlock, AgNumber};
use format::agf::RawAgf;
use format::agi::RawAgi;
use format::btree::{self, MAX_LEVELS, Rmap, RmapBt, rmap};
use format::ondisk::OnDisk;
use format::{Damage, Place};

use crate::freespace;
use crate::inode_map::AgInodes;
use crate::inode_trees;
use crate::ownership::claim::{Claim, coalesce};
use crate::ownership::store::{ClaimBuffer, ClaimStore};
use crate::tree::{Checked, TreeWalk};
use crate::volume::Volume;

/// Where a tree begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub block: AgBlock,
    pub levels: u32,
}

/// What later phases need of an AG.
#[derive(Debug, Default)]
pub(crate) struct AgTrees {
    /// The reverse-mapping tree, where there is one that can be walked.
    pub rmap: Option<Root>,
    /// The reference-count tree, where there is one that can be walked.
    pub refcount: Option<Root>,
    /// Not everything that the AG's own structures own or free is known.
    pub incomplete: bool,
    /// Free blocks, those of the AGFL and of the free space trees among them: the AG's part of `fdblocks`.
    pub free_blocks: u64,
    /// Heads of the lists of unlinked inodes, where the AGI could be read.
    pub unlinked: Vec<u32>,
    /// The inodes that its inode tree tells of.
    pub inodes: AgInodes,
}

/// The work on one AG.
pub(crate) struct AgCheck<'v> {
    pub volume: &'v Volume<'v>,
    pub ag: AgNumber,
    pub store: &'v ClaimStore,
    pub buffer: &'v mut ClaimBuffer,
    /// Blocks of the AG's own trees and headers, joined before they go to the store.
    pub metadata: Vec<Claim>,
    pub trees: AgTrees,
}

impl<'v> AgCheck<'v> {
    pub fn new(
        volume: &'v Volume<'v>,
        ag: AgNumber,
        store: &'v ClaimStore,
        buffer: &'v mut ClaimBuffer,
    ) -> Self {
        Self { volume, ag, store, buffer, metadata: Vec::new(), trees: AgTrees::default() }
    }

    /// Checks headers and trees, and claims every block that they own or free.
    pub fn run(mut self) -> AgTrees {
        let geometry = &self.volume.geometry;
        self.own(AgBlock(0), geometry.ag_header_blocks(), rmap::OWNER_FS);
        self.own_log();
        match self.read_agf() {
            Some(agf) => {
                freespace::check(&mut self, &agf);
                self.check_rmap(&agf);
                self.check_refcount(&agf);
            }
            None => self.trees.incomplete = true,
        }
        match self.read_agi() {
            Some(agi) => inode_trees::check(&mut self, &agi),
            None => {
                self.trees.incomplete = true;
                self.volume.miss_owners();
                self.volume.miss_names();
            }
        }
        self.hand_over_metadata();
        self.trees
    }

    /// Claims blocks for the AG's metadata.
    pub fn own(&mut self, start: AgBlock, count: u32, owner: i64) {
        self.metadata.push(Claim::metadata(self.ag, start, count, owner));
    }

    /// Hands claims over that need no joining.
    pub fn claim(&mut self, claim: Claim) {
        self.buffer.push(self.store, claim);
    }

    fn hand_over_metadata(&mut self) {
        let mut metadata = std::mem::take(&mut self.metadata);
        metadata.sort_unstable();
        coalesce(&mut metadata);
        metadata.into_iter().for_each(|claim| self.claim(claim));
    }

    fn own_log(&mut self) {
        let geometry = &self.volume.geometry;
        let Some((ag, start)) = geometry.log_start.and_then(|start| geometry.split_fs_block(start)) else {
            return;
        };
        if ag == self.ag {
            self.own(start, geometry.log_blocks, rmap::OWNER_LOG);
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
        if let Err(damage) = RawAgf::verify(&bytes, &self.volume.geometry, self.ag) {
            self.error(damage);
        }
        // A field that is wrong does not keep the others from being followed; a sector that is no AGF does.
        let agf = RawAgf::view(&bytes).filter(|agf| agf.magicnum.get() == format::agf::MAGIC)?;
        self.volume.check_lsn(self.place(), RawAgf::NAME, agf.lsn.get());
        Some(*agf)
    }

    fn read_agi(&mut self) -> Option<RawAgi> {
        let bytes = self.read_header(RawAgi::NAME, 2)?;
        if let Err(damage) = RawAgi::verify(&bytes, &self.volume.geometry, self.ag) {
            self.error(damage);
        }
        let agi = RawAgi::view(&bytes).filter(|agi| agi.magicnum.get() == format::agi::MAGIC)?;
        self.volume.check_lsn(self.place(), RawAgi::NAME, agi.lsn.get());
        Some(*agi)
    }

    /// A root from a header, where it can be walked at all. That it can not has been reported with the header.
    pub fn root(&mut self, block: u32, levels: u32) -> Option<Root> {
        let block = AgBlock(block);
        let usable = self.volume.geometry.ag_block_is_usable(self.ag, block);
        let root = (usable && (1..=MAX_LEVELS).contains(&levels)).then_some(Root { block, levels });
        self.trees.incomplete |= root.is_none();
        root
    }

    /// Walks a whole tree: claims its blocks for `owner`, hands each leaf's records to `each`, returns how many
    /// blocks the tree has and whether all of it could be read.
    pub fn walk<T: Checked>(
        &mut self,
        root: Root,
        owner: i64,
        mut each: impl FnMut(&mut Self, &[T::Record]),
    ) -> Walked {
        let volume = self.volume;
        let mut tree = TreeWalk::<T>::new(volume);
        let mut entered = Vec::new();
        tree.begin(self.ag, root.block, root.levels, &mut |_, block| entered.push(block));
        while tree.next_leaf(&mut |_, block| entered.push(block)) {
            each(self, tree.records());
        }
        let blocks = entered.len() as u64;
        entered.into_iter().for_each(|block| self.own(block, 1, owner));
        self.trees.incomplete |= tree.is_incomplete();
        Walked { blocks, complete: !tree.is_incomplete() }
    }

    fn check_rmap(&mut self, agf: &RawAgf) {
        if !self.volume.geometry.features.rmapbt() {
            return;
        }
        let Some(root) = self.root(agf.rmaproot.get(), agf.rmaplevel.get()) else { return };
        let walked = self.walk::<RmapBt>(root, rmap::OWNER_AG, |this, records| {
            records.iter().for_each(|record| this.check_rmap_record(record));
        });
        self.trees.rmap = Some(root);
        if walked.complete {
            self.compare("AGF", "rmapblocks", walked.blocks, agf.rmapblocks.get());
        }
    }

    fn check_rmap_record(&self, record: &Rmap) {
        let (start, count) = (record.startblock.get(), record.blockcount.get());
        let length = u64::from(self.volume.geometry.ag_length(self.ag));
        let fits = count > 0 && u64::from(start) + u64::from(count) <= length;
        let owner = record.owner.get() as i64;
        let known = owner >= 0 || (rmap::OWNER_COW..=rmap::OWNER_FS).contains(&owner);
        let offset = record.offset.get();
        let spare = offset & !(rmap::ATTR_FORK | rmap::BMBT_BLOCK | rmap::UNWRITTEN | rmap::OFFSET_MASK);
        let plain = owner >= 0 || offset == 0;
        if !(fits && known && spare == 0 && plain) {
            let place = Place::block(self.ag, AgBlock(start));
            let found = Claim::of_mapping(self.ag, record);
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
        let walked = self.walk::<btree::RefcountBt>(root, rmap::OWNER_REFC, |this, records| {
            records.iter().for_each(|record| this.check_refcount_record(record));
        });
        self.trees.refcount = Some(root);
        if walked.complete {
            self.compare("AGF", "refcntblocks", walked.blocks, agf.refcntblocks.get());
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
        let counted = if staging { record.refcount.get() == 1 } else { record.refcount.get() >= 2 };
        if !(fits && counted) {
            let expected = "blocks within the AG, 2 owners or more, 1 for staging";
            let found = format!("{block:#x} for {count} blocks, {} owners", record.refcount.get());
            let place = Place::block(self.ag, block);
            self.volume.error(
                place,
                Damage::new(<btree::RefcountBt as btree::Btree>::NAME, "record", expected, found),
            );
        }
        if fits && staging {
            self.own(block, count, rmap::OWNER_COW);
        }
    }

    /// Compares a counter of a header with what was counted.
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

/// What a walk of a whole tree found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    pub blocks: u64,
    pub complete: bool,
}

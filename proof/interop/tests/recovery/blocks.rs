//! Compares two recoveries of a volume block by block.
//!
//! A mount continues after recovery: it finishes intents, frees unlinked inodes, sums up counters, and writes its own
//! log. Therefore only these blocks may differ:
//!
//! | block | may differ because |
//! |---|---|
//! | the log, superblocks, AG headers | counters and lists depend on everything below |
//! | blocks of AG btrees, in at least one of both | space is allocated and freed |
//! | inodes without links | they are freed |
//! | inodes of unfinished intents, and blocks of their bmap btrees | the intent is finished |
//! | blocks of the bmap btrees of inodes without links | their owner is freed |

use std::collections::BTreeSet;

use base::{AgBlock, AgNumber, Ino};
use block::Device;
use format::Geometry;
use format::btree::{BmBt, BnoBt, Btree, CntBt, FinoBt, InoBt, LongHeader, RefcountBt, RmapBt};
use format::inode::{MAGIC as INODE_MAGIC, RawInode};
use format::ondisk::{OnDisk, U32};

/// Bytes read at a time.
const CHUNK: usize = 4 << 20;

pub struct Comparison<'a> {
    pub name: &'a str,
    pub geometry: &'a Geometry,
    /// Replayed by Xebec.
    pub ours: &'a dyn Device,
    /// Mounted and unmounted by Linux.
    pub theirs: &'a dyn Device,
    /// Inodes of unfinished intents.
    pub concerned: BTreeSet<Ino>,
}

impl Comparison<'_> {
    /// Compares all blocks and returns the differences.
    pub fn run(&self) -> Vec<String> {
        let block = self.geometry.block_size as usize;
        let differing = self.differing();
        // The owners of freed bmap btrees are known only after all inodes were read.
        let unlinked: BTreeSet<Ino> =
            differing.iter().flat_map(|at| self.unlinked_in(&self.read(self.ours, *at))).collect();
        let difference = |at: &u64| {
            let (ours, theirs) = (self.read(self.ours, *at), self.read(self.theirs, *at));
            let why = self.difference(&ours, &theirs, &unlinked)?;
            let block_number = at / block as u64;
            let (ag, within) = (
                block_number / u64::from(self.geometry.ag_blocks),
                block_number % u64::from(self.geometry.ag_blocks),
            );
            Some(format!("{}: AG {ag} block {within:#x}: {why}", self.name))
        };
        differing.iter().filter_map(difference).collect()
    }

    /// Returns the offsets in bytes of blocks that differ, except for the log and AG headers.
    fn differing(&self) -> Vec<u64> {
        let (geometry, block) = (self.geometry, self.geometry.block_size as usize);
        let mut differing = Vec::new();
        let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
        for start in (0..geometry.bytes()).step_by(CHUNK) {
            let length = CHUNK.min((geometry.bytes() - start) as usize);
            self.ours.read_at(start, &mut ours[..length]).unwrap();
            self.theirs.read_at(start, &mut theirs[..length]).unwrap();
            if ours == theirs {
                continue;
            }
            for at in (0..length).step_by(block) {
                if ours[at..at + block] != theirs[at..at + block] && !self.is_log_or_header(start + at as u64)
                {
                    differing.push(start + at as u64);
                }
            }
        }
        differing
    }

    fn is_log_or_header(&self, offset: u64) -> bool {
        let geometry = self.geometry;
        let linear = offset >> geometry.block_log;
        let within = AgBlock((linear % u64::from(geometry.ag_blocks)) as u32);
        let ag = AgNumber((linear / u64::from(geometry.ag_blocks)) as u32);
        let log = geometry.log_start.and_then(|start| geometry.split_fs_block(start));
        let in_log = log.is_some_and(|(log_ag, first)| {
            log_ag == ag && (first.get()..first.get() + geometry.log_blocks).contains(&within.get())
        });
        in_log || within.get() < geometry.ag_header_blocks()
    }

    fn read(&self, device: &dyn Device, at: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry.block_size as usize];
        device.read_at(at, &mut bytes).unwrap();
        bytes
    }

    fn inodes<'b>(&self, block: &'b [u8]) -> impl Iterator<Item = &'b RawInode> + use<'b> {
        block
            .chunks_exact(self.geometry.inode_size as usize)
            .filter_map(|slot| RawInode::view(slot).filter(|inode| inode.magic.get() == INODE_MAGIC))
    }

    fn unlinked_in(&self, block: &[u8]) -> Vec<Ino> {
        let unlinked = |inode: &&RawInode| inode.mode.get() != 0 && inode.nlink.get() == 0;
        self.inodes(block).filter(unlinked).map(|inode| Ino(inode.ino.get())).collect()
    }

    /// Returns why a block must not differ, or `None` if it may.
    fn difference(&self, ours: &[u8], theirs: &[u8], unlinked: &BTreeSet<Ino>) -> Option<String> {
        let may_change = |ino: Ino| unlinked.contains(&ino) || self.concerned.contains(&ino);
        if is_ag_tree(ours) || is_ag_tree(theirs) {
            return None;
        }
        if magic(ours) == BmBt::MAGIC || magic(theirs) == BmBt::MAGIC {
            let owner = |block: &[u8]| LongHeader::view(block).map(|header| Ino(header.owner.get()));
            let owners = [owner(ours), owner(theirs)];
            let excused = owners.into_iter().flatten().any(may_change);
            return (!excused).then(|| format!("bmap btree of {owners:?}"));
        }
        if self.inodes(ours).next().is_none() {
            return Some(format!("magic {:#x}, by Linux {:#x}", magic(ours), magic(theirs)));
        }
        let size = self.geometry.inode_size as usize;
        let differing =
            ours.chunks_exact(size).zip(theirs.chunks_exact(size)).filter(|(ours, theirs)| ours != theirs);
        let inodes = differing.filter_map(|(ours, _)| RawInode::view(ours)).map(|inode| Ino(inode.ino.get()));
        let wrong: Vec<_> = inodes.filter(|ino| !may_change(*ino)).collect();
        (!wrong.is_empty()).then(|| format!("inodes {wrong:?}"))
    }
}

fn magic(block: &[u8]) -> u32 {
    U32::view(block).map_or(0, |magic| magic.get())
}

fn is_ag_tree(block: &[u8]) -> bool {
    [BnoBt::MAGIC, CntBt::MAGIC, InoBt::MAGIC, FinoBt::MAGIC, RmapBt::MAGIC, RefcountBt::MAGIC]
        .contains(&magic(block))
}

//! Finds the use of all blocks: AG by AG, from their trees, and all inodes in the order of the disk.
//!
//! # Invariants
//! Results wait in a queue of limited size; nothing is kept for each file or extent.

use base::pipeline::{PipelineItem, PipelineSink, PipelineWork};
use base::{AgBlock, AgIno, AgNumber, Ino};
use format::agfl::Agfl;
use format::btree::{BnoBt, Btree, CntBt, FinoBt, InoBt, InodeChunk, REFCOUNT_COW, RefcountBt, RmapBt};
use format::extent::Extent;
use format::inode::{Dinode, FileType, ForkKind, flags2};
use format::{Damage, Place};
use read::{AgTree, ExtentWalk, InodeReader, TreeLeaves, Volume};
use xebec::{Counts, Progress as _};

use super::histogram::Histogram;
use super::space::{BlockUse, Space, UsedRun};
use crate::commands::usage::shared::{SharedExtents, refcounts};
use crate::failure::Failure;
use crate::output::Messages;
use crate::progress::TransferProgress;

/// Figures about files.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Number of inodes in use.
    pub inodes: u64,
    /// Regular files by size in bytes.
    pub by_size: Histogram,
    /// Regular files with data by their number of fragments.
    pub by_fragments: Histogram,
    /// Fragments by their length in bytes; sums are bytes.
    pub fragments: Histogram,
}

impl Files {
    fn add_all(&mut self, other: &Self) {
        self.inodes += other.inodes;
        self.by_size.add_all(&other.by_size);
        self.by_fragments.add_all(&other.by_fragments);
        self.fragments.add_all(&other.fragments);
    }
}

/// What the scan has found.
pub struct Found<'m> {
    pub space: Space,
    pub files: Files,
    /// Runs of free blocks by their length in blocks; sums are blocks.
    pub free_runs: Histogram,
    messages: &'m Messages,
    progress: &'m TransferProgress<'m>,
}

impl<'m> Found<'m> {
    pub fn new(volume: &Volume, messages: &'m Messages, progress: &'m TransferProgress<'m>) -> Self {
        Self {
            space: Space::new(volume.geometry()),
            files: Files::default(),
            free_runs: Histogram::default(),
            messages,
            progress,
        }
    }
}

/// The scan.
pub struct Scan<'s> {
    pub volume: &'s Volume,
    pub shared: &'s SharedExtents,
}

/// A task.
pub enum ScanTask {
    /// The trees of an AG.
    Ag(AgNumber),
    /// Inodes of an AG.
    Inodes(AgNumber, Vec<InodeChunk>),
}

/// A result.
pub enum ScanResult {
    Runs(Vec<UsedRun>),
    Files(Box<Files>),
    Failed(Failure),
}

type Items = Vec<PipelineItem<ScanTask, ScanResult>>;

/// Chunks of 64 inodes in a task.
const CHUNKS: usize = 64;
/// Runs in a result.
const RUNS: usize = 4096;

impl<'s> PipelineWork for Scan<'s> {
    type Task = ScanTask;
    type Result = ScanResult;
    type Worker = InodeReader<'s>;

    fn worker(&self) -> InodeReader<'s> {
        self.volume.inodes()
    }

    fn perform(&self, reader: &mut InodeReader<'s>, task: ScanTask, items: &mut Items) {
        let mut collected = Collected { items, runs: Vec::new() };
        match task {
            ScanTask::Ag(ag) => {
                if let Err(error) = self.ag(ag, &mut collected) {
                    collected.fail(format!("AG {ag}"), error);
                }
            }
            ScanTask::Inodes(ag, chunks) => self.inodes(reader, ag, &chunks, &mut collected),
        }
        collected.flush();
    }

    fn weight(&self, result: &ScanResult) -> usize {
        match result {
            ScanResult::Runs(runs) => runs.capacity() * size_of::<UsedRun>(),
            ScanResult::Files(_) => size_of::<Files>(),
            ScanResult::Failed(failure) => failure.text.capacity(),
        }
    }
}

/// Results of a task.
struct Collected<'c> {
    items: &'c mut Items,
    runs: Vec<UsedRun>,
}

impl Collected<'_> {
    fn add(&mut self, run: UsedRun) {
        if run.count == 0 {
            return;
        }
        self.runs.push(run);
        if self.runs.len() >= RUNS {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.runs.is_empty() {
            self.items.push(PipelineItem::Result(ScanResult::Runs(std::mem::take(&mut self.runs))));
        }
    }

    fn fail(&mut self, place: String, error: read::Error) {
        // The path is only a label here: errors name their place themselves.
        let failure = Failure::from(error);
        let text = if failure.text.contains(&place) {
            failure.text.clone()
        } else {
            format!("{place}: {}", failure.text)
        };
        self.items.push(PipelineItem::Result(ScanResult::Failed(failure.with_text(text))));
    }
}

impl<'s> Scan<'s> {
    /// Headers and trees of an AG. Its inodes become further tasks.
    fn ag(&self, ag: AgNumber, collected: &mut Collected<'_>) -> read::Result<()> {
        let (volume, geometry) = (self.volume, self.volume.geometry());
        let (agf, agi) = (volume.agf(ag)?, volume.agi(ag)?);
        let run = |start: u32, count: u32, block_use| UsedRun { ag, start: AgBlock(start), count, block_use };
        collected.add(run(0, geometry.ag_header_blocks(), BlockUse::Headers));
        if let Some((log_ag, start)) = geometry.log_start.and_then(|start| geometry.split_fs_block(start))
            && log_ag == ag
        {
            collected.add(run(start.get(), geometry.log_blocks, BlockUse::Log));
        }
        let agfl = volume.read_ag_header(ag, 3)?;
        let damaged = |damage: Damage| read::Error::damaged(Place::ag(ag), damage);
        let agfl = Agfl::verify(&agfl, geometry, ag).map_err(damaged)?;
        agfl.blocks(&agf).for_each(|block| collected.add(run(block.get(), 1, BlockUse::Headers)));
        let by_size = volume.ag_tree(ag, agf.cntroot.get(), agf.cntlevel.get());
        tree_blocks::<CntBt>(&by_size, ag, collected)?;
        if geometry.features.rmapbt() {
            let owners = volume.ag_tree(ag, agf.rmaproot.get(), agf.rmaplevel.get());
            tree_blocks::<RmapBt>(&owners, ag, collected)?;
        }
        if geometry.features.finobt() {
            let free = volume.ag_tree(ag, agi.free_root.get(), agi.free_level.get());
            tree_blocks::<FinoBt>(&free, ag, collected)?;
        }
        let free = volume.ag_tree(ag, agf.bnoroot.get(), agf.bnolevel.get());
        free.walk::<BnoBt>(TreeLeaves::Read, &mut |block, records| {
            collected.add(run(block.get(), 1, BlockUse::Headers));
            for record in records {
                collected.add(run(record.startblock.get(), record.blockcount.get(), BlockUse::Free));
            }
        })?;
        if let Some(refcounts) = refcounts(volume, ag, &agf) {
            refcounts.walk::<RefcountBt>(TreeLeaves::Read, &mut |block, records| {
                collected.add(run(block.get(), 1, BlockUse::Headers));
                for record in records {
                    let (start, count) = (record.startblock.get(), record.blockcount.get());
                    if start & REFCOUNT_COW != 0 {
                        collected.add(run(start & !REFCOUNT_COW, count, BlockUse::Staging));
                    } else if record.refcount.get() > 1 {
                        collected.add(run(start, count, BlockUse::Shared));
                    }
                }
            })?;
        }
        let mut tasks: Vec<Vec<InodeChunk>> = Vec::new();
        let mut last_block = None;
        let inodes = volume.ag_tree(ag, agi.root.get(), agi.level.get());
        inodes.walk::<InoBt>(TreeLeaves::Read, &mut |block, records| {
            collected.add(run(block.get(), 1, BlockUse::Headers));
            for chunk in records {
                self.chunk_blocks(ag, chunk, &mut last_block, collected);
                match tasks.last_mut().filter(|chunks| chunks.len() < CHUNKS) {
                    Some(chunks) => chunks.push(*chunk),
                    None => tasks.push(vec![*chunk]),
                }
            }
        })?;
        collected.flush();
        let tasks = tasks.into_iter().map(|chunks| PipelineItem::Task(ScanTask::Inodes(ag, chunks)));
        collected.items.extend(tasks);
        Ok(())
    }

    /// Blocks of a chunk of inodes. Several chunks may be in one block.
    fn chunk_blocks(
        &self,
        ag: AgNumber,
        chunk: &InodeChunk,
        last: &mut Option<AgBlock>,
        collected: &mut Collected<'_>,
    ) {
        let geometry = self.volume.geometry();
        let present = chunk.present(geometry.features.sparse_inodes());
        for inode in (0..64u32).filter(|bit| present >> bit & 1 != 0) {
            let block = geometry.ag_ino_block(AgIno(chunk.startino.get().saturating_add(inode)));
            if *last != Some(block) {
                *last = Some(block);
                collected.add(UsedRun { ag, start: block, count: 1, block_use: BlockUse::Inodes });
            }
        }
    }

    fn inodes(
        &self,
        reader: &mut InodeReader<'s>,
        ag: AgNumber,
        chunks: &[InodeChunk],
        collected: &mut Collected<'_>,
    ) {
        let geometry = self.volume.geometry();
        let mut files = Files::default();
        for chunk in chunks {
            let used = chunk.present(geometry.features.sparse_inodes()) & !chunk.free.get();
            for inode in (0..64u32).filter(|bit| used >> bit & 1 != 0) {
                let ino = geometry.ino(ag, AgIno(chunk.startino.get().saturating_add(inode)));
                files.inodes += 1;
                let read = reader.get(ino);
                if let Err(error) = read.and_then(|inode| self.inode(ino, &inode, &mut files, collected)) {
                    collected.fail(format!("inode {ino}"), error);
                }
            }
        }
        collected.flush();
        collected.items.push(PipelineItem::Result(ScanResult::Files(Box::new(files))));
    }

    /// The blocks of an inode, and its size and fragments.
    fn inode(
        &self,
        ino: Ino,
        inode: &Dinode<'_>,
        files: &mut Files,
        collected: &mut Collected<'_>,
    ) -> read::Result<()> {
        let geometry = self.volume.geometry();
        let file_type = inode.file_type().ok_or(read::Error::NoSuchInode(ino))?;
        let block_use = match file_type {
            FileType::Regular => BlockUse::Data,
            FileType::Directory => BlockUse::Directories,
            _ => BlockUse::Maps,
        };
        let is_file = file_type == FileType::Regular;
        let is_shared = is_file && inode.core.flags2.get() & flags2::REFLINK != 0;
        let mut pieces = Pieces::default();
        let bytes = |blocks: u64| blocks.saturating_mul(geometry.block_size.into());
        self.fork(inode, ForkKind::Data, collected, &mut |extent, collected| {
            if let Some(length) = pieces.add(extent).filter(|_| is_file) {
                files.fragments.add(bytes(length), bytes(length));
            }
            let mut at = extent.start.get();
            if is_shared {
                for shared in self.shared.within(extent) {
                    self.add(at, shared.start, block_use, collected);
                    at = shared.end;
                }
            }
            self.add(at, extent.start.get() + extent.count, block_use, collected);
        })?;
        self.fork(inode, ForkKind::Attr, collected, &mut |extent, collected| {
            self.add(extent.start.get(), extent.start.get() + extent.count, BlockUse::Maps, collected);
        })?;
        if is_file {
            files.by_size.add(inode.core.size.get(), inode.core.size.get());
            if let Some(last) = pieces.open {
                files.fragments.add(bytes(last.count), bytes(last.count));
                files.by_fragments.add(pieces.count, 1);
            }
        }
        Ok(())
    }

    /// Passes the extents of a fork to `visit`, and adds the blocks of its map.
    fn fork(
        &self,
        inode: &Dinode<'_>,
        kind: ForkKind,
        collected: &mut Collected<'_>,
        visit: &mut dyn FnMut(&Extent, &mut Collected<'_>),
    ) -> read::Result<()> {
        let mut walk = ExtentWalk::with_map_blocks(self.volume, inode, kind)?;
        loop {
            let extent = walk.next().transpose()?;
            for block in walk.take_map_blocks() {
                self.add(block.get(), block.get() + 1, BlockUse::Maps, collected);
            }
            match extent {
                Some(extent) => visit(&extent, collected),
                None => return Ok(()),
            }
        }
    }

    /// Adds file system blocks, which are in one AG.
    fn add(&self, start: u64, end: u64, block_use: BlockUse, collected: &mut Collected<'_>) {
        if let Some((ag, block)) = self.volume.geometry().split_fs_block(start.into())
            && let Ok(count) = u32::try_from(end.saturating_sub(start))
        {
            collected.add(UsedRun { ag, start: block, count, block_use });
        }
    }
}

/// Adjacent extents count as one piece: a record holds at most 2^21 blocks.
#[derive(Default)]
struct Pieces {
    count: u64,
    open: Option<Extent>,
}

impl Pieces {
    /// Adds an extent. Returns the length of the previous piece if this is a new one.
    fn add(&mut self, extent: &Extent) -> Option<u64> {
        match &mut self.open {
            Some(open) if open.start.get() + open.count == extent.start.get() => {
                open.count += extent.count;
                None
            }
            open => {
                self.count += 1;
                open.replace(*extent).map(|last| last.count)
            }
        }
    }
}

fn tree_blocks<T: Btree<Record: Copy>>(
    tree: &AgTree<'_>,
    ag: AgNumber,
    collected: &mut Collected<'_>,
) -> read::Result<()> {
    tree.walk::<T>(TreeLeaves::Skip, &mut |block, _| {
        collected.add(UsedRun { ag, start: block, count: 1, block_use: BlockUse::Headers });
    })
}

impl PipelineSink<Scan<'_>> for Found<'_> {
    type Error = std::convert::Infallible;

    fn take(&mut self, result: ScanResult, _: &mut Items) -> Result<(), Self::Error> {
        match result {
            ScanResult::Runs(runs) => {
                for run in &runs {
                    self.space.add(run);
                    if run.block_use == BlockUse::Free {
                        self.free_runs.add(run.count.into(), run.count.into());
                    }
                }
            }
            ScanResult::Files(files) => {
                self.files.add_all(&files);
                self.progress.advance(Counts { files: self.files.inodes, bytes: self.files.fragments.sum() });
            }
            ScanResult::Failed(failure) => self.messages.fail(failure),
        }
        Ok(())
    }
}

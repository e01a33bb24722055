//! A walk of trees that reports sizes, directory by directory, in the order of names.
//!
//! # Invariants
//! Memory is bounded by the largest directory for each thread, by the results that wait
//! ([`PipelineWork::budget`](base::pipeline::PipelineWork::budget)), and by one number for each directory.

use std::collections::HashSet;
use std::ops::AddAssign;

use base::Ino;
use base::pipeline::{PipelineItem, PipelineWork};
use format::inode::{Dinode, FileType};
use read::{InodeReader, Listing, Metadata, Visited, Volume, join, visit_inodes};

use super::shared::{Blocks, SharedExtents};
use crate::failure::Failure;

/// Space of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUsage {
    /// Bytes on disk, with the B+trees of the file.
    pub allocated: u64,
    /// Sizes of regular files and symbolic links.
    pub apparent: u64,
    /// Number of files.
    pub inodes: u64,
}

impl AddAssign for FileUsage {
    fn add_assign(&mut self, other: Self) {
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.apparent = self.apparent.saturating_add(other.apparent);
        self.inodes += other.inodes;
    }
}

/// A file, or several that need not be told apart.
#[derive(Clone, Debug, Default)]
pub struct SizedFile {
    /// Its path, if names are wanted.
    pub path: Option<Vec<u8>>,
    /// Inode number, if the file may appear again under another name.
    pub ino: Option<Ino>,
    /// Space.
    pub usage: FileUsage,
    /// Blocks shared with other files, if they are wanted.
    pub shared: Vec<Blocks>,
}

/// A result of the walk.
#[derive(Debug)]
pub enum SizeEvent {
    /// A directory: itself. The files in it follow, and then [`SizeEvent::Leave`].
    Enter { path: Vec<u8>, ino: Ino, usage: FileUsage },
    /// Files in the directory that was entered last, or operands that are no directories.
    Files(Vec<SizedFile>),
    /// The end of the directory that was entered last.
    Leave,
    /// A file that cannot be read.
    Failed(Failure),
}

/// A task of the walk.
#[derive(Debug)]
pub enum SizeTask {
    /// An operand, by its position.
    Operand { operand: usize, path: Vec<u8>, ino: Ino },
    /// A directory whose inode was read.
    Directory { operand: usize, path: Vec<u8>, ino: Ino, depth: usize, usage: FileUsage },
}

/// The walk.
pub struct SizeWalk<'w> {
    volume: &'w Volume,
    /// Reports shared blocks.
    shared: Option<&'w SharedExtents>,
    /// Reports each file with its path.
    names: bool,
    /// Directories, for each operand.
    visited: Vec<Visited>,
    /// Operands, which may appear again.
    operands: HashSet<Ino>,
}

impl<'w> SizeWalk<'w> {
    /// The walk of operands, and its first tasks.
    pub fn new(
        volume: &'w Volume,
        operands: Vec<(Vec<u8>, Ino)>,
        names: bool,
        shared: Option<&'w SharedExtents>,
    ) -> (Self, Vec<SizeTask>) {
        let several = operands.len() > 1;
        let walk = Self {
            volume,
            shared,
            names,
            visited: operands.iter().map(|_| Visited::default()).collect(),
            operands: operands.iter().filter(|_| several).map(|(_, ino)| *ino).collect(),
        };
        let tasks = operands.into_iter().enumerate();
        let tasks = tasks.map(|(operand, (path, ino))| SizeTask::Operand { operand, path, ino }).collect();
        (walk, tasks)
    }

    fn file(&self, inode: &Dinode<'_>, path: Option<Vec<u8>>) -> read::Result<(SizedFile, FileType)> {
        let metadata = Metadata::of(inode, self.volume.geometry())?;
        let is_directory = metadata.file_type == FileType::Directory;
        let has_size = matches!(metadata.file_type, FileType::Regular | FileType::Symlink);
        let usage = FileUsage {
            allocated: metadata.sectors.saturating_mul(512),
            apparent: if has_size { metadata.size } else { 0 },
            inodes: 1,
        };
        let may_repeat = metadata.links > 1 && !is_directory || self.operands.contains(&metadata.ino);
        let shared = match self.shared {
            Some(shared) if metadata.file_type == FileType::Regular => shared.of_file(self.volume, inode)?,
            _ => Vec::new(),
        };
        let ino = may_repeat.then_some(metadata.ino);
        Ok((SizedFile { path, ino, usage, shared }, metadata.file_type))
    }

    fn directory(
        &self,
        reader: &mut InodeReader<'_>,
        (operand, path, ino): (usize, Vec<u8>, Ino),
        depth: usize,
        usage: FileUsage,
        items: &mut Items,
    ) {
        let entered = self.visited.get(operand).map_or(Ok(()), |visited| visited.enter(ino, depth));
        if let Err(reason) = entered {
            return items.push(failed(&path, reason));
        }
        items.push(PipelineItem::Result(SizeEvent::Enter { path: path.clone(), ino, usage }));
        let mut listing = match reader.get(ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| items.push(failed(&path, error))),
            Err(error) => {
                items.push(failed(&path, error));
                Listing::default()
            }
        };
        listing.sort();
        let mut files: Vec<_> = listing.items().iter().map(|_| None).collect();
        visit_inodes(reader, listing.items(), |index, inode| {
            let (Some(file), Some(entry)) = (files.get_mut(index), listing.items().get(index)) else {
                return;
            };
            match inode.and_then(|inode| self.file(&inode, None)) {
                Ok(found) => *file = Some(found),
                Err(error) => items.push(failed(&join(&path, listing.name(entry)), error)),
            }
        });
        let mut batch = Vec::new();
        for (entry, file) in listing.items().iter().zip(files) {
            let Some((mut file, file_type)) = file else { continue };
            if file_type == FileType::Directory {
                push_batch(&mut batch, items);
                let (path, ino, usage) = (join(&path, listing.name(entry)), entry.ino, file.usage);
                let task = SizeTask::Directory { operand, path, ino, depth: depth + 1, usage };
                items.push(PipelineItem::Task(task));
            } else if self.names {
                file.path = Some(join(&path, listing.name(entry)));
                batch.push(file);
            } else {
                add(&mut batch, file);
            }
        }
        push_batch(&mut batch, items);
        items.push(PipelineItem::Result(SizeEvent::Leave));
    }
}

/// Adds a file without a name to a batch: one that cannot appear again is added to the others of its kind.
fn add(batch: &mut Vec<SizedFile>, file: SizedFile) {
    let is_plain = |file: &SizedFile| file.ino.is_none() && file.shared.is_empty();
    match batch.first_mut().filter(|first| is_plain(first)) {
        Some(first) if is_plain(&file) => first.usage += file.usage,
        _ if is_plain(&file) => batch.insert(0, file),
        _ => batch.push(file),
    }
}

fn push_batch(batch: &mut Vec<SizedFile>, items: &mut Items) {
    if !batch.is_empty() {
        items.push(PipelineItem::Result(SizeEvent::Files(std::mem::take(batch))));
    }
}

fn failed(path: &[u8], error: impl Into<Failure>) -> PipelineItem<SizeTask, SizeEvent> {
    PipelineItem::Result(SizeEvent::Failed(Failure::at(path, error)))
}

type Items = Vec<PipelineItem<SizeTask, SizeEvent>>;

impl<'w> PipelineWork for SizeWalk<'w> {
    type Task = SizeTask;
    type Result = SizeEvent;
    type Worker = InodeReader<'w>;

    fn worker(&self) -> InodeReader<'w> {
        self.volume.inodes()
    }

    fn perform(&self, reader: &mut InodeReader<'w>, task: SizeTask, items: &mut Items) {
        let (operand, path, ino) = match task {
            SizeTask::Operand { operand, path, ino } => (operand, path, ino),
            SizeTask::Directory { operand, path, ino, depth, usage } => {
                return self.directory(reader, (operand, path, ino), depth, usage, items);
            }
        };
        match reader.get(ino).and_then(|inode| self.file(&inode, Some(path.clone()))) {
            Ok((file, FileType::Directory)) => {
                self.directory(reader, (operand, path, ino), 0, file.usage, items);
            }
            Ok((file, _)) => items.push(PipelineItem::Result(SizeEvent::Files(vec![file]))),
            Err(error) => items.push(failed(&path, error)),
        }
    }

    fn weight(&self, event: &SizeEvent) -> usize {
        const REST: usize = 64;
        let of_file = |file: &SizedFile| {
            size_of::<SizedFile>()
                + file.path.as_ref().map_or(0, Vec::capacity)
                + file.shared.capacity() * size_of::<Blocks>()
        };
        REST + match event {
            SizeEvent::Enter { path, .. } => path.capacity(),
            SizeEvent::Files(files) => files.iter().map(of_file).sum(),
            SizeEvent::Leave => 0,
            SizeEvent::Failed(failure) => failure.text.capacity(),
        }
    }
}

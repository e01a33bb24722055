//! Counts the files of a directory by names and sizes, in any order: several times as fast as reading it.
//!
//! # Invariants
//! - The counts depend only on the tree, not on the order of directory entries or on threads.
//! - Attributes are sampled: those of the first file of each [`BATCH`] of a directory.

use std::collections::HashSet;
use std::sync::Arc;

use base::pipeline::{self, PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};
use rustix::fs::{FileType, Stat};

use super::BATCH;
use super::host::{Folder, Name};
use crate::item::Receiver as _;
use crate::survey::{FileClass, FileEstimate, Survey, attribute_bytes};
use crate::syscalls;
use crate::{Error, Result};

/// Counts the files of a directory.
///
/// # Errors
/// Unreadable directories.
pub fn count(root: Folder, walk: CountWalk<'_>, threads: usize, survey: &mut Survey) -> Result<()> {
    let mut sum = Sum { survey, several: HashSet::new() };
    pipeline::run(&walk, vec![CountTask::Folder(Arc::new(root))], &mut sum, threads)
}

/// What the tasks share.
pub struct CountWalk<'g> {
    /// Empty; copied for each task.
    pub survey: Survey,
    /// The device to stay on.
    pub device: Option<u64>,
    pub without: &'g [(u64, u64)],
}

pub enum CountTask {
    /// A directory and its entries.
    Folder(Arc<Folder>),
    /// A subdirectory.
    Below(Arc<Folder>, Vec<u8>),
    /// A batch of files of a directory.
    Files(Arc<Folder>, Vec<Name>),
}

/// The counts of a task.
pub struct Counted {
    survey: Survey,
    /// Files with hard links, by device and inode number.
    several: Vec<((u64, u64), FileEstimate)>,
}

impl PipelineWork for CountWalk<'_> {
    type Task = CountTask;
    type Result = Result<Counted>;
    type Worker = ();

    fn worker(&self) {}

    fn perform(&self, (): &mut (), task: CountTask, pieces: &mut Vec<PipelineItemOf<Self>>) {
        let mut counted = Counted { survey: self.survey.fresh(), several: Vec::new() };
        let done = match task {
            CountTask::Folder(folder) => self.folder(&folder, &mut counted, pieces),
            CountTask::Below(above, name) => above.open_below(&name).and_then(|folder| {
                if self.device.is_some_and(|device| device != folder.stat.st_dev) {
                    counted.itself(&folder)
                } else {
                    self.folder(&Arc::new(folder), &mut counted, pieces)
                }
            }),
            CountTask::Files(folder, names) => {
                self.files(&folder, &names, &mut counted, pieces);
                Ok(())
            }
        };
        pieces.push(PipelineItem::Result(Ok(counted)));
        pieces.extend(done.err().map(|error| PipelineItem::Result(Err(error))));
    }

    fn weight(&self, _: &Result<Counted>) -> usize {
        size_of::<Counted>()
    }
}

impl CountWalk<'_> {
    fn folder(
        &self,
        folder: &Arc<Folder>,
        counted: &mut Counted,
        pieces: &mut Vec<PipelineItemOf<Self>>,
    ) -> Result<()> {
        counted.itself(folder)?;
        let (files, folders) = folder.list()?;
        let mut batches = files.chunks(BATCH);
        if let Some(first) = batches.next() {
            self.files(folder, first, counted, pieces);
        }
        let later = batches.map(|names| CountTask::Files(Arc::clone(folder), names.to_vec()));
        let below = folders.into_iter().map(|name| CountTask::Below(Arc::clone(folder), name));
        pieces.extend(later.chain(below).map(PipelineItem::Task));
        Ok(())
    }

    fn files(
        &self,
        folder: &Folder,
        names: &[Name],
        counted: &mut Counted,
        pieces: &mut Vec<PipelineItemOf<Self>>,
    ) {
        let mut attributes = None;
        for name in names {
            if let Err(error) = self.file(folder, name, &mut attributes, counted) {
                pieces.push(PipelineItem::Result(Err(error)));
            }
        }
    }

    /// Counts a file. Attributes are read unless those of another file are known.
    fn file(
        &self,
        folder: &Folder,
        name: &Name,
        attributes: &mut Option<u64>,
        counted: &mut Counted,
    ) -> Result<()> {
        let stat = folder.stat_of(&name.bytes)?;
        let id = (stat.st_dev, stat.st_ino);
        if self.without.contains(&id) {
            return Ok(());
        }
        let attributes = match attributes {
            Some(bytes) => *bytes,
            None => {
                let found = folder.attributes_of(&name.bytes)?;
                *attributes.insert(attribute_bytes(&found.readable))
            }
        };
        let what = what(folder, name, &stat)?;
        let seen =
            FileEstimate { name: name.bytes.len(), attributes, what, modified: syscalls::modified(&stat) };
        if stat.st_nlink > 1 {
            counted.several.push((id, seen));
        } else {
            counted.survey.count(&seen);
        }
        Ok(())
    }
}

fn what(folder: &Folder, name: &Name, stat: &Stat) -> Result<FileClass> {
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let size = stat.st_size.unsigned_abs();
            FileClass::File { size, stored: folder.stored(&name.bytes, stat)? }
        }
        FileType::Symlink => FileClass::Symlink(stat.st_size.unsigned_abs()),
        FileType::Directory => FileClass::Directory,
        _ => FileClass::Other,
    })
}

impl Counted {
    fn itself(&mut self, folder: &Folder) -> Result<()> {
        let name = crate::item::split(&folder.path).map_or(0, |(_, name)| name.len());
        let attributes = attribute_bytes(&folder.attributes()?.readable);
        let modified = syscalls::modified(&folder.stat);
        self.survey.count(&FileEstimate { name, attributes, what: FileClass::Directory, modified });
        Ok(())
    }
}

/// Adds the counts.
struct Sum<'s> {
    survey: &'s mut Survey,
    several: HashSet<(u64, u64)>,
}

impl PipelineSink<CountWalk<'_>> for Sum<'_> {
    type Error = Error;

    fn take(
        &mut self,
        counted: Result<Counted>,
        _: &mut Vec<PipelineItem<CountTask, Result<Counted>>>,
    ) -> Result<()> {
        self.survey.check_cancelled()?;
        let Counted { survey, several } = match counted {
            Ok(counted) => counted,
            Err(error) if error.is_unreadable() => return self.survey.unreadable(error),
            Err(error) => return Err(error),
        };
        self.survey.add(&survey);
        for (id, seen) in several {
            let what = if self.several.insert(id) { seen.what } else { FileClass::Name };
            self.survey.count(&FileEstimate { what, ..seen });
        }
        Ok(())
    }
}

//! How much a directory holds, by names and sizes alone, in no order: several times as fast as reading it.
//!
//! # Invariants
//! - What is counted depends on the tree alone, not on the order in which a file system lists names, nor on threads.
//! - Of attributes a sample is looked at: those of the first name of each [`BATCH`] in a directory.

use std::collections::HashSet;
use std::sync::Arc;

use base::pipeline::{self, PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};
use rustix::fs::{FileType, Stat};

use super::BATCH;
use super::host::{self, Folder, Name};
use crate::item::Receiver as _;
use crate::survey::{Seen, Survey, What, attribute_bytes};
use crate::{Error, Result};

/// Counts what is in a directory.
///
/// # Errors
/// What cannot be listed.
pub fn look(root: Folder, glance: Glance<'_>, threads: usize, survey: &mut Survey) -> Result<()> {
    let mut sum = Sum { survey, several: HashSet::new() };
    pipeline::run(&glance, vec![Task::Folder(Arc::new(root))], &mut sum, threads)
}

/// What a thread does, or knows.
pub struct Glance<'g> {
    /// Counts nothing itself.
    pub survey: Survey,
    /// Directories of other file systems are empty.
    pub device: Option<u64>,
    pub without: &'g [(u64, u64)],
}

pub enum Task {
    /// The directory itself, and what is in it.
    Folder(Arc<Folder>),
    /// A directory in one.
    Below(Arc<Folder>, Vec<u8>),
    /// Some files in one.
    Files(Arc<Folder>, Vec<Name>),
}

/// What was counted by a task.
pub struct Counted {
    survey: Survey,
    /// Names of files that have several, by device and number.
    several: Vec<((u64, u64), Seen)>,
}

impl PipelineWork for Glance<'_> {
    type Task = Task;
    type Result = Result<Counted>;
    type Worker = ();

    fn worker(&self) {}

    fn perform(&self, (): &mut (), task: Task, pieces: &mut Vec<PipelineItemOf<Self>>) {
        let mut counted = Counted { survey: self.survey.fresh(), several: Vec::new() };
        let done = match task {
            Task::Folder(folder) => self.folder(&folder, &mut counted, pieces),
            Task::Below(above, name) => above.open_below(&name).and_then(|folder| {
                if self.device.is_some_and(|device| device != folder.stat.st_dev) {
                    counted.itself(&folder)
                } else {
                    self.folder(&Arc::new(folder), &mut counted, pieces)
                }
            }),
            Task::Files(folder, names) => {
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

impl Glance<'_> {
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
        let later = batches.map(|names| Task::Files(Arc::clone(folder), names.to_vec()));
        let below = folders.into_iter().map(|name| Task::Below(Arc::clone(folder), name));
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

    /// Counts a file. Its attributes are looked at unless those of another are known.
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
        let seen = Seen { name: name.bytes.len(), attributes, what, modified: host::modified(&stat) };
        if stat.st_nlink > 1 {
            counted.several.push((id, seen));
        } else {
            counted.survey.count(&seen);
        }
        Ok(())
    }
}

fn what(folder: &Folder, name: &Name, stat: &Stat) -> Result<What> {
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let size = stat.st_size.unsigned_abs();
            What::File { size, stored: folder.stored(&name.bytes, stat)? }
        }
        FileType::Symlink => What::Symlink(stat.st_size.unsigned_abs()),
        FileType::Directory => What::Directory,
        _ => What::Other,
    })
}

impl Counted {
    fn itself(&mut self, folder: &Folder) -> Result<()> {
        let name = crate::item::split(&folder.path).map_or(0, |(_, name)| name.len());
        let attributes = attribute_bytes(&folder.attributes()?.readable);
        let modified = host::modified(&folder.stat);
        self.survey.count(&Seen { name, attributes, what: What::Directory, modified });
        Ok(())
    }
}

/// Adds up.
struct Sum<'s> {
    survey: &'s mut Survey,
    several: HashSet<(u64, u64)>,
}

impl PipelineSink<Glance<'_>> for Sum<'_> {
    type Error = Error;

    fn take(
        &mut self,
        counted: Result<Counted>,
        _: &mut Vec<PipelineItem<Task, Result<Counted>>>,
    ) -> Result<()> {
        self.survey.check_cancelled()?;
        let Counted { survey, several } = match counted {
            Ok(counted) => counted,
            Err(error) if error.is_unreadable() => return self.survey.unreadable(error),
            Err(error) => return Err(error),
        };
        self.survey.add(&survey);
        for (id, seen) in several {
            let what = if self.several.insert(id) { seen.what } else { What::Name };
            self.survey.count(&Seen { what, ..seen });
        }
        Ok(())
    }
}

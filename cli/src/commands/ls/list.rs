//! Lists directories in parallel.
//!
//! The columns of a directory are as wide as its widest line: all inodes are read before the first line is written. A
//! small directory is one task. A large one is split into tasks that read inodes, a result that is delivered after all
//! of them, and tasks that write lines.

use std::sync::{Arc, OnceLock};

use format::inode::FileType;
use read::{InodeReader, Listing, ListingItem, Visited, Volume, join, visit_inodes};
use serde_json::json;

use super::file::FileInfo;
use super::lines::{self, Line, Widths};
use super::{Hidden, Operands, Options, OutputFormat};
use crate::json::{self, FileJson};
use crate::open::Image;
use crate::owners::Owners;
use crate::times::TimeFormatter;
use crate::walk::{TextSink, WalkItems as _, WalkOutput};
use base::pipeline::{self, PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};
use xebec::Ino;

/// A file or directory of the command line.
pub struct Operand {
    /// Path on the command line.
    pub path: Box<[u8]>,
    /// Its inode.
    pub ino: Ino,
    /// Metadata of an operand.
    pub file: FileInfo,
}

/// Directories with more entries are split into parts of this size.
const PART_ENTRIES: usize = 8192;

/// Lists everything.
pub fn list(
    image: &Image,
    options: &Options,
    owners: &Owners,
    operands: Operands,
    has_headers: bool,
    threads: usize,
) -> anyhow::Result<()> {
    let work = List { volume: &image.volume, options, owners, has_headers, visited: Visited::default() };
    let is_json = options.format == OutputFormat::Json;
    // Elements are preceded by a comma, headers by an empty line, except for the first.
    let skip = if is_json { json::SEPARATOR.len() } else { usize::from(has_headers) };
    let text_first = !operands.files.is_empty() && !is_json;
    let mut sink = TextSink::new(&image.messages, if text_first { 0 } else { skip });
    if is_json {
        sink.write(&json::begin("ls", image.messages.image(), json!({}), "entries"))?;
    }
    sink.write_output(WalkOutput::Text(work.operand_lines(&mut TimeFormatter::new(), &operands)))?;
    let tasks =
        operands.directories.into_iter().map(|operand| ListTask::Directory { operand, depth: 0 }).collect();
    pipeline::run(&work, tasks, &mut ListSink(&mut sink), threads)?;
    if is_json {
        sink.write(&json::end(json!({})))?;
    }
    Ok(sink.flush()?)
}

/// State shared by all tasks.
struct List<'l> {
    volume: &'l Volume,
    options: &'l Options,
    owners: &'l Owners,
    has_headers: bool,
    visited: Visited,
}

enum ListTask {
    /// A directory.
    Directory { operand: Operand, depth: usize },
    /// Read the inodes of a part of a large directory.
    Read(Arc<LargeDirectory>, usize),
    /// Write the lines of a part of a large directory.
    Write(Arc<LargeDirectory>, usize),
    /// Descend into the subdirectories of a large directory.
    Descend(Arc<LargeDirectory>),
}

enum ListResult {
    Output(WalkOutput),
    /// All inodes of a large directory were read.
    IsRead(Arc<LargeDirectory>),
}

impl From<WalkOutput> for ListResult {
    fn from(output: WalkOutput) -> Self {
        Self::Output(output)
    }
}

/// A directory shared by several tasks.
struct LargeDirectory {
    operand: Operand,
    depth: usize,
    listing: Listing,
    /// Metadata and widths of each part.
    parts: Vec<OnceLock<(Vec<FileInfo>, Widths)>>,
    /// Order and widths of lines, set after all parts are read.
    layout: OnceLock<(Vec<usize>, Widths)>,
}

impl LargeDirectory {
    fn file(&self, index: usize) -> Option<&FileInfo> {
        self.parts.get(index / PART_ENTRIES)?.get()?.0.get(index % PART_ENTRIES)
    }

    fn part(&self, part: usize) -> &[ListingItem] {
        self.listing.items().chunks(PART_ENTRIES).nth(part).unwrap_or_default()
    }
}

/// State of a thread.
struct Worker<'l> {
    reader: InodeReader<'l>,
    times: TimeFormatter,
}

type Items = Vec<PipelineItem<ListTask, ListResult>>;

impl<'l> PipelineWork for List<'l> {
    type Task = ListTask;
    type Result = ListResult;
    type Worker = Worker<'l>;

    fn worker(&self) -> Worker<'l> {
        Worker { reader: self.volume.inodes(), times: TimeFormatter::new() }
    }

    fn perform(&self, worker: &mut Worker<'l>, task: ListTask, items: &mut Items) {
        match task {
            ListTask::Directory { operand, depth } => self.directory(worker, operand, depth, items),
            ListTask::Read(large, part) => self.read_part(worker, &large, part, items),
            ListTask::Write(large, part) => self.write_part(worker, &large, part, items),
            ListTask::Descend(large) => self.descend(
                &large.operand.path,
                large.depth,
                large.layout.get().map_or(&[], |(order, _)| order),
                |index| Some((large.listing.items().get(index)?, large.file(index))),
                &large.listing,
                items,
            ),
        }
    }

    fn weight(&self, result: &ListResult) -> usize {
        match result {
            ListResult::Output(output) => output.weight(),
            ListResult::IsRead(_) => 0,
        }
    }
}

/// Standard output, which also starts the tasks of large directories that write lines.
struct ListSink<'t, 'm>(&'t mut TextSink<'m>);

impl<'l> PipelineSink<List<'l>> for ListSink<'_, '_> {
    type Error = std::io::Error;

    fn take(&mut self, result: ListResult, items: &mut Vec<PipelineItemOf<List<'l>>>) -> std::io::Result<()> {
        match result {
            ListResult::Output(output) => self.0.write_output(output),
            ListResult::IsRead(large) => {
                for part in 0..large.parts.len() {
                    items.task(ListTask::Write(large.clone(), part));
                }
                items.task(ListTask::Descend(large));
                Ok(())
            }
        }
    }
}

impl<'l> List<'l> {
    /// Lines of file operands, with widths that include directory operands.
    fn operand_lines(&self, times: &mut TimeFormatter, operands: &Operands) -> Vec<u8> {
        let mut widths = Widths::default();
        let entry = |operand: &Operand| ListingItem::of_operand(operand.ino);
        for operand in operands.files.iter().chain(&operands.directories) {
            widths.include(&entry(operand), &operand.file, self.owners, self.options);
        }
        let entries: Vec<ListingItem> = operands.files.iter().map(entry).collect();
        let lines = operands.files.iter().zip(&entries);
        let lines = lines.map(|(operand, entry)| Line { name: &operand.path, entry, file: &operand.file });
        let mut out = Vec::new();
        self.write_lines(times, &mut out, None, lines, &widths);
        out
    }

    fn directory(&self, worker: &mut Worker<'l>, operand: Operand, depth: usize, items: &mut Items) {
        if let Err(reason) = self.visited.enter(operand.ino, depth) {
            return items.fail(&operand.path, reason);
        }
        let mut listing = match worker.reader.get(operand.ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| items.fail(&operand.path, error)),
            Err(error) => return items.fail(&operand.path, error),
        };
        if self.options.hidden == Hidden::None {
            listing.retain(|name| name.first() != Some(&b'.'));
        }
        if self.options.hidden == Hidden::All {
            listing.add_dots(operand.ino);
        }
        listing.sort();
        if listing.items().len() > PART_ENTRIES && self.options.needs_inodes() {
            return self.split(operand, depth, listing, items);
        }
        let (files, widths) = self.read_files(worker, &listing, listing.items(), &operand.path, items);
        let order = self.order(files.len(), |index| files.get(index));
        let mut out = Vec::with_capacity(files.len() * 64 + operand.path.len() + 32);
        self.push_head(&mut out, &operand.path, &widths);
        let entry = |index: usize| Some((listing.items().get(index)?, files.get(index)));
        let lines = order.iter().filter_map(|index| {
            let (entry, file) = entry(*index)?;
            Some(Line { name: listing.name(entry), entry, file: file? })
        });
        self.write_lines(&mut worker.times, &mut out, Some(&operand.path), lines, &widths);
        items.text(out);
        self.descend(&operand.path, depth, &order, entry, &listing, items);
    }

    fn split(&self, operand: Operand, depth: usize, listing: Listing, items: &mut Items) {
        let count = listing.items().len().div_ceil(PART_ENTRIES);
        let parts = (0..count).map(|_| OnceLock::new()).collect();
        let large = Arc::new(LargeDirectory { operand, depth, listing, parts, layout: OnceLock::new() });
        for part in 0..count {
            items.task(ListTask::Read(large.clone(), part));
        }
        items.push(PipelineItem::Result(ListResult::IsRead(large)));
    }

    fn read_part(&self, worker: &mut Worker<'l>, large: &LargeDirectory, part: usize, items: &mut Items) {
        let files = self.read_files(worker, &large.listing, large.part(part), &large.operand.path, items);
        if let Some(part) = large.parts.get(part) {
            // Each part is read by one task.
            let _ = part.set(files);
        }
    }

    fn write_part(&self, worker: &mut Worker<'l>, large: &LargeDirectory, part: usize, items: &mut Items) {
        let (order, widths) = large.layout.get_or_init(|| {
            let mut widths = Widths::default();
            large.parts.iter().filter_map(OnceLock::get).for_each(|(_, part)| widths.join(part));
            (self.order(large.listing.items().len(), |index| large.file(index)), widths)
        });
        let path = &large.operand.path;
        let mut out = Vec::with_capacity(PART_ENTRIES * 64);
        if part == 0 {
            self.push_head(&mut out, path, widths);
        }
        // Columns span all parts: the task of the first part writes them.
        let is_columns = matches!(self.options.format, OutputFormat::Columns(_));
        let indices = match (is_columns, part) {
            (true, 0) => order.as_slice(),
            (true, _) => &[],
            _ => order.chunks(PART_ENTRIES).nth(part).unwrap_or_default(),
        };
        let lines = indices.iter().filter_map(|index| {
            let entry = large.listing.items().get(*index)?;
            Some(Line { name: large.listing.name(entry), entry, file: large.file(*index)? })
        });
        self.write_lines(&mut worker.times, &mut out, Some(path), lines, widths);
        items.text(out);
    }

    /// Reads inodes of entries, if needed.
    fn read_files(
        &self,
        worker: &mut Worker<'l>,
        listing: &Listing,
        entries: &[ListingItem],
        path: &[u8],
        items: &mut Items,
    ) -> (Vec<FileInfo>, Widths) {
        let mut files = vec![FileInfo::default(); entries.len()];
        let mut widths = Widths::default();
        if self.options.needs_inodes() {
            visit_inodes(&mut worker.reader, entries, |index, inode| {
                let (Some(file), Some(entry)) = (files.get_mut(index), entries.get(index)) else { return };
                match inode.and_then(|inode| FileInfo::of(self.volume, &inode, self.options)) {
                    Ok(found) => *file = found,
                    Err(error) => items.fail(&join(path, listing.name(entry)), error),
                }
            });
        }
        for (entry, file) in entries.iter().zip(&files) {
            widths.include(entry, file, self.owners, self.options);
        }
        (files, widths)
    }

    /// Order of lines, as indices; entries are already ordered by name.
    fn order<'r>(&self, count: usize, file: impl Fn(usize) -> Option<&'r FileInfo>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        self.options.sort(&mut order, |index| file(*index).and_then(|file| file.metadata));
        order
    }

    fn push_head(&self, out: &mut Vec<u8>, path: &[u8], widths: &Widths) {
        if self.options.format == OutputFormat::Json {
            return;
        }
        if self.has_headers {
            out.push(b'\n');
            self.options.quoting.push(out, path);
            out.extend_from_slice(b":\n");
        }
        if self.options.format == OutputFormat::Long {
            widths.push_total(out, self.options);
        }
    }

    fn write_lines<'i>(
        &self,
        times: &mut TimeFormatter,
        out: &mut Vec<u8>,
        directory: Option<&[u8]>,
        lines: impl Iterator<Item = Line<'i>>,
        widths: &Widths,
    ) {
        match self.options.format {
            // Unreadable files are skipped: they were reported.
            OutputFormat::Json => lines.for_each(|line| {
                let Some(metadata) = &line.file.metadata else { return };
                let path =
                    directory.map_or_else(|| line.name.to_vec(), |directory| join(directory, line.name));
                FileJson::new(&path, metadata, line.file.target.as_deref()).push(out);
            }),
            OutputFormat::Long => lines.for_each(|line| {
                lines::push_long(out, line, widths, self.options, self.owners, times);
            }),
            OutputFormat::Lines | OutputFormat::Columns(_) => lines::push_short(out, lines, self.options),
        }
    }

    /// Descends into the directories among entries.
    fn descend<'e>(
        &self,
        path: &[u8],
        depth: usize,
        order: &[usize],
        entry: impl Fn(usize) -> Option<(&'e ListingItem, Option<&'e FileInfo>)>,
        listing: &Listing,
        items: &mut Items,
    ) {
        if !self.options.recursive {
            return;
        }
        for index in order {
            let Some((entry, file)) = entry(*index) else { continue };
            let name = listing.name(entry);
            let file_type = file.and_then(FileInfo::file_type).or(entry.file_type);
            if file_type == Some(FileType::Directory) && !matches!(name, b"." | b"..") {
                let operand =
                    Operand { path: join(path, name).into(), ino: entry.ino, file: FileInfo::default() };
                items.task(ListTask::Directory { operand, depth: depth + 1 });
            }
        }
    }
}

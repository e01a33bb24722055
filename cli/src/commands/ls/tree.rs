//! Parallel listing of directories: one task each; large ones are split.
//!
//! The columns of a directory are as wide as its widest line, so that no line can be written before all inodes are
//! read. A small directory is one task. A large one becomes tasks that read inodes, a result that waits for all of
//! them, and tasks that write lines.

use std::sync::{Arc, OnceLock};

use base::Ino;
use format::inode::FileType;
use read::{InodeReader, Listing, ListingItem, Visited, Volume, join, visit_inodes};

use super::row::Row;
use super::text::{self, Line, Widths};
use super::{Hidden, Operands, Options, OutputFormat};
use crate::failure::Failure;
use crate::json::{self, FileJson};
use crate::open::Image;
use crate::owners::Owners;
use crate::times::Clock;
use crate::walk::{Shown, TextSink};
use base::pipeline::{self, PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};

/// A file or directory of the command line.
pub struct Operand {
    /// Path on the command line.
    pub path: Box<[u8]>,
    /// Its inode.
    pub ino: Ino,
    /// Metadata of an operand.
    pub row: Row,
}

/// Directories with more entries are split into parts of this size.
const PART: usize = 8192;

/// Lists everything.
pub fn list(
    image: &Image,
    options: &Options,
    owners: &Owners,
    operands: Operands,
    headed: bool,
    threads: usize,
) -> anyhow::Result<()> {
    let work = List { volume: &image.volume, options, owners, headed, visited: Visited::default() };
    let is_json = options.form == OutputFormat::Json;
    // Elements are preceded by a comma, headers by an empty line, except for the first.
    let skip = if is_json { json::SEPARATOR.len() } else { usize::from(headed) };
    let text_first = !operands.files.is_empty() && !is_json;
    let mut sink = TextSink::new(&image.messages, if text_first { 0 } else { skip });
    if is_json {
        sink.write(&json::begin("ls", image.messages.image(), json::Empty {}, "entries"))?;
    }
    sink.show(Shown::Text(work.files(&mut Clock::new(), &operands)))?;
    let tasks =
        operands.directories.into_iter().map(|operand| Task::Directory { operand, depth: 0 }).collect();
    pipeline::run(&work, tasks, &mut LargeDirectories(&mut sink), threads)?;
    if is_json {
        sink.write(&json::end(json::Empty {}))?;
    }
    Ok(sink.flush()?)
}

/// State shared by all tasks.
struct List<'l> {
    volume: &'l Volume,
    options: &'l Options,
    owners: &'l Owners,
    headed: bool,
    visited: Visited,
}

enum Task {
    /// A directory.
    Directory { operand: Operand, depth: usize },
    /// Read the inodes of a part of a large directory.
    Read(Arc<Large>, usize),
    /// Write the lines of a part of a large directory.
    Write(Arc<Large>, usize),
    /// Descend into the subdirectories of a large directory.
    Descend(Arc<Large>),
}

enum ListResult {
    /// Text, or a failure.
    Shown(Shown),
    /// All inodes of a large directory were read.
    IsRead(Arc<Large>),
}

/// A directory shared by several tasks.
struct Large {
    operand: Operand,
    depth: usize,
    listing: Listing,
    /// Rows and widths of each part.
    parts: Vec<OnceLock<(Vec<Row>, Widths)>>,
    /// Order and widths of lines, set when all parts were read.
    plan: OnceLock<(Vec<usize>, Widths)>,
}

impl Large {
    fn row(&self, index: usize) -> Option<&Row> {
        self.parts.get(index / PART)?.get()?.0.get(index % PART)
    }

    fn part(&self, part: usize) -> &[ListingItem] {
        let items = self.listing.items();
        items.get(part * PART..items.len().min((part + 1) * PART)).unwrap_or_default()
    }
}

/// State of a thread.
struct Worker<'l> {
    reader: InodeReader<'l>,
    clock: Clock,
}

type Pieces = Vec<PipelineItem<Task, ListResult>>;

impl<'l> PipelineWork for List<'l> {
    type Task = Task;
    type Result = ListResult;
    type Worker = Worker<'l>;

    fn worker(&self) -> Worker<'l> {
        Worker { reader: self.volume.inodes(), clock: Clock::new() }
    }

    fn perform(&self, worker: &mut Worker<'l>, task: Task, pieces: &mut Pieces) {
        match task {
            Task::Directory { operand, depth } => self.directory(worker, operand, depth, pieces),
            Task::Read(large, part) => self.read_part(worker, &large, part, pieces),
            Task::Write(large, part) => self.write_part(worker, &large, part, pieces),
            Task::Descend(large) => self.descend(
                &large.operand.path,
                large.depth,
                large.plan.get().map_or(&[], |(order, _)| order),
                |index| Some((large.listing.items().get(index)?, large.row(index))),
                &large.listing,
                pieces,
            ),
        }
    }

    fn weight(&self, turn: &ListResult) -> usize {
        match turn {
            ListResult::Shown(shown) => shown.weight(),
            ListResult::IsRead(_) => 0,
        }
    }
}

/// Standard output, and the steps of large directories.
struct LargeDirectories<'t, 'm>(&'t mut TextSink<'m>);

impl<'l> PipelineSink<List<'l>> for LargeDirectories<'_, '_> {
    type Error = std::io::Error;

    fn take(&mut self, turn: ListResult, pieces: &mut Vec<PipelineItemOf<List<'l>>>) -> std::io::Result<()> {
        match turn {
            ListResult::Shown(shown) => self.0.show(shown),
            ListResult::IsRead(large) => {
                for part in 0..large.parts.len() {
                    pieces.push(PipelineItem::Task(Task::Write(large.clone(), part)));
                }
                pieces.push(PipelineItem::Task(Task::Descend(large)));
                Ok(())
            }
        }
    }
}

fn text(pieces: &mut Pieces, text: Vec<u8>) {
    if !text.is_empty() {
        pieces.push(PipelineItem::Result(ListResult::Shown(Shown::Text(text))));
    }
}

fn failure(pieces: &mut Pieces, path: &[u8], error: impl Into<Failure>) {
    pieces.push(PipelineItem::Result(ListResult::Shown(Shown::failure(path, error))));
}

impl<'l> List<'l> {
    /// Lines of file operands, with widths that include directory operands.
    fn files(&self, clock: &mut Clock, operands: &Operands) -> Vec<u8> {
        let mut widths = Widths::default();
        let item = |operand: &Operand| ListingItem::of_operand(operand.ino);
        for operand in operands.files.iter().chain(&operands.directories) {
            widths.include(&item(operand), &operand.row, self.owners, self.options);
        }
        let items: Vec<ListingItem> = operands.files.iter().map(item).collect();
        let lines = operands.files.iter().zip(&items);
        let lines = lines.map(|(operand, item)| Line { name: &operand.path, item, row: &operand.row });
        let mut out = Vec::new();
        self.write_lines(clock, &mut out, None, lines, &widths);
        out
    }

    fn directory(&self, worker: &mut Worker<'l>, operand: Operand, depth: usize, pieces: &mut Pieces) {
        if let Err(reason) = self.visited.enter(operand.ino, depth) {
            return failure(pieces, &operand.path, reason);
        }
        let mut listing = match worker.reader.get(operand.ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| failure(pieces, &operand.path, error)),
            Err(error) => return failure(pieces, &operand.path, error),
        };
        if self.options.hidden == Hidden::None {
            listing.retain(|name| name.first() != Some(&b'.'));
        }
        if self.options.hidden == Hidden::All {
            listing.add_dots(operand.ino);
        }
        listing.sort();
        if listing.items().len() > PART && self.options.needs_inodes() {
            return self.split(operand, depth, listing, pieces);
        }
        let (rows, widths) = self.rows(worker, &listing, listing.items(), &operand.path, pieces);
        let order = self.order(rows.len(), |index| rows.get(index));
        let mut out = Vec::with_capacity(rows.len() * 64 + operand.path.len() + 32);
        self.push_head(&mut out, &operand.path, &widths);
        let entry = |index: usize| Some((listing.items().get(index)?, rows.get(index)));
        let lines = order.iter().filter_map(|index| {
            let (item, row) = entry(*index)?;
            Some(Line { name: listing.name(item), item, row: row? })
        });
        self.write_lines(&mut worker.clock, &mut out, Some(&operand.path), lines, &widths);
        text(pieces, out);
        self.descend(&operand.path, depth, &order, entry, &listing, pieces);
    }

    fn split(&self, operand: Operand, depth: usize, listing: Listing, pieces: &mut Pieces) {
        let count = listing.items().len().div_ceil(PART);
        let parts = (0..count).map(|_| OnceLock::new()).collect();
        let large = Arc::new(Large { operand, depth, listing, parts, plan: OnceLock::new() });
        for part in 0..count {
            pieces.push(PipelineItem::Task(Task::Read(large.clone(), part)));
        }
        pieces.push(PipelineItem::Result(ListResult::IsRead(large)));
    }

    fn read_part(&self, worker: &mut Worker<'l>, large: &Large, part: usize, pieces: &mut Pieces) {
        let rows = self.rows(worker, &large.listing, large.part(part), &large.operand.path, pieces);
        if let Some(place) = large.parts.get(part) {
            // Each part is read by one task.
            let _ = place.set(rows);
        }
    }

    fn write_part(&self, worker: &mut Worker<'l>, large: &Large, part: usize, pieces: &mut Pieces) {
        let (order, widths) = large.plan.get_or_init(|| {
            let mut widths = Widths::default();
            large.parts.iter().filter_map(OnceLock::get).for_each(|(_, part)| widths.join(part));
            (self.order(large.listing.items().len(), |index| large.row(index)), widths)
        });
        let path = &large.operand.path;
        let mut out = Vec::with_capacity(PART * 64);
        if part == 0 {
            self.push_head(&mut out, path, widths);
        }
        // Columns span all parts, so that the first writes them.
        let whole = matches!(self.options.form, OutputFormat::Columns(_));
        let indices = match (whole, part) {
            (true, 0) => order.as_slice(),
            (true, _) => &[],
            _ => order.chunks(PART).nth(part).unwrap_or_default(),
        };
        let lines = indices.iter().filter_map(|index| {
            let item = large.listing.items().get(*index)?;
            Some(Line { name: large.listing.name(item), item, row: large.row(*index)? })
        });
        self.write_lines(&mut worker.clock, &mut out, Some(path), lines, widths);
        text(pieces, out);
    }

    /// Reads inodes of entries, if needed.
    fn rows(
        &self,
        worker: &mut Worker<'l>,
        listing: &Listing,
        items: &[ListingItem],
        path: &[u8],
        pieces: &mut Pieces,
    ) -> (Vec<Row>, Widths) {
        let mut rows = vec![Row::default(); items.len()];
        let mut widths = Widths::default();
        if self.options.needs_inodes() {
            visit_inodes(&mut worker.reader, items, |index, inode| {
                let row = inode.and_then(|inode| Row::of(self.volume, &inode, self.options));
                let (Some(place), Some(item)) = (rows.get_mut(index), items.get(index)) else { return };
                match row {
                    Ok(row) => *place = row,
                    Err(error) => failure(pieces, &join(path, listing.name(item)), error),
                }
            });
        }
        for (item, row) in items.iter().zip(&rows) {
            widths.include(item, row, self.owners, self.options);
        }
        (rows, widths)
    }

    /// Order of lines, as indices; entries are already ordered by name.
    fn order<'r>(&self, count: usize, row: impl Fn(usize) -> Option<&'r Row>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        self.options.sort(&mut order, |index| row(*index).and_then(|row| row.metadata));
        order
    }

    fn push_head(&self, out: &mut Vec<u8>, path: &[u8], widths: &Widths) {
        if self.options.form == OutputFormat::Json {
            return;
        }
        if self.headed {
            out.push(b'\n');
            self.options.quoting.push(out, path);
            out.extend_from_slice(b":\n");
        }
        if self.options.form == OutputFormat::Long {
            widths.push_total(out, self.options);
        }
    }

    fn write_lines<'i>(
        &self,
        clock: &mut Clock,
        out: &mut Vec<u8>,
        directory: Option<&[u8]>,
        lines: impl Iterator<Item = Line<'i>>,
        widths: &Widths,
    ) {
        match self.options.form {
            // Unreadable files are skipped: they were reported.
            OutputFormat::Json => lines.for_each(|line| {
                let Some(metadata) = &line.row.metadata else { return };
                let path =
                    directory.map_or_else(|| line.name.to_vec(), |directory| join(directory, line.name));
                FileJson::new(&path, metadata, line.row.target.as_deref()).push(out);
            }),
            OutputFormat::Long => lines.for_each(|line| {
                text::push_long(out, line, widths, self.options, self.owners, clock);
            }),
            OutputFormat::Lines | OutputFormat::Columns(_) => text::push_short(out, lines, self.options),
        }
    }

    /// Descends into the directories among entries.
    fn descend<'e>(
        &self,
        path: &[u8],
        depth: usize,
        order: &[usize],
        entry: impl Fn(usize) -> Option<(&'e ListingItem, Option<&'e Row>)>,
        listing: &Listing,
        pieces: &mut Pieces,
    ) {
        if !self.options.recursive {
            return;
        }
        for index in order {
            let Some((item, row)) = entry(*index) else { continue };
            let name = listing.name(item);
            let file_type = row.and_then(Row::file_type).or(item.file_type);
            if file_type == Some(FileType::Directory) && !matches!(name, b"." | b"..") {
                let operand = Operand { path: join(path, name).into(), ino: item.ino, row: Row::default() };
                pieces.push(PipelineItem::Task(Task::Directory { operand, depth: depth + 1 }));
            }
        }
    }
}

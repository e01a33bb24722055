//! `xebec find`: paths below a directory that pass all tests, as `find` prints them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use base::Ino;
use clap::Args;
use format::inode::{Dinode, FileType};
use read::{InodeReader, Last, Metadata, Volume, read_link, resolve};

use crate::args::Global;
use crate::commands::ls::mode_text;
use crate::facts::{self, Facts};
use crate::failure::Failure;
use crate::glob::Pattern;
use crate::listing::{Listing, visit_inodes};
use crate::names::Quoting;
use crate::open::{self, Image};
use crate::owners::Owners;
use crate::sizes::push_number;
use crate::times::{Clock, TimeStyle};
use crate::walk::{Shown, TextSink, Visited, join};
use base::pipeline::{self, Piece, Work};

/// Arguments of `find`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "All tests must hold. They may be written with one dash, as find has them. Entries of a \
    directory come sorted by \
    the bytes of their names.\n\n\
    Examples:\n  xebec find disk.xfs /etc -name '*.conf' -type f\n  xebec find disk.xfs --size +10M --ls\n  \
    xebec find disk.xfs -type f -print0 | xargs -0 -n1 xebec cat disk.xfs\n\n\
    Exit codes: 0 done, whether or not something was found; 1 something could not be read; 2 wrong usage."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Where to begin.
    #[arg(default_value = "/")]
    paths: Vec<OsString>,
    /// The name matches a shell pattern.
    #[arg(long, value_name = "PATTERN")]
    name: Option<OsString>,
    /// The same without regard to case.
    #[arg(long, value_name = "PATTERN")]
    iname: Option<OsString>,
    /// The whole path matches a shell pattern, in which * matches / too.
    #[arg(long, value_name = "PATTERN")]
    path: Option<OsString>,
    /// The same without regard to case.
    #[arg(long, value_name = "PATTERN")]
    ipath: Option<OsString>,
    /// The type is one of these letters: f file, d directory, l link, p fifo, s socket, b and c devices; several with
    /// commas.
    #[arg(long = "type", value_name = "LETTERS", value_delimiter = ',', value_parser = parse_type)]
    types: Vec<FileType>,
    /// The size: N, +N for more, -N for less; in units c bytes, k, M, G, or b blocks of 512, and rounded up to them.
    #[arg(long, value_name = "[+-]N[cbkMG]", value_parser = parse_size, allow_hyphen_values = true)]
    size: Vec<Size>,
    /// A file without contents, or a directory without entries.
    #[arg(long)]
    empty: bool,
    /// The inode number.
    #[arg(long, value_name = "N")]
    inum: Option<u64>,
    /// The number of links: N, +N or -N.
    #[arg(long, value_name = "[+-]N", value_parser = parse_bound, allow_hyphen_values = true)]
    links: Option<Bound>,
    /// The owner, as a number.
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    /// The group, as a number.
    #[arg(long, value_name = "N")]
    gid: Option<u32>,
    /// Changed later than this file of the image.
    #[arg(long, value_name = "PATH")]
    newer: Option<OsString>,
    /// Descend at most so many levels.
    #[arg(long, value_name = "LEVELS")]
    maxdepth: Option<usize>,
    /// Show nothing above so many levels.
    #[arg(long, value_name = "LEVELS")]
    mindepth: Option<usize>,
    /// Show what `ls -dils` would.
    #[arg(long)]
    ls: bool,
    /// End each path with a zero byte.
    #[arg(long, conflicts_with = "ls")]
    print0: bool,
}

/// A number to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    More(u64),
    Less(u64),
    Exactly(u64),
}

impl Bound {
    fn holds(self, number: u64) -> bool {
        match self {
            Self::More(bound) => number > bound,
            Self::Less(bound) => number < bound,
            Self::Exactly(bound) => number == bound,
        }
    }
}

/// A size to compare with, in a unit to which sizes are rounded up.
#[derive(Clone, Copy, Debug)]
struct Size {
    bound: Bound,
    unit: u64,
}

fn parse_bound(text: &str) -> Result<Bound, String> {
    let (make, digits): (fn(u64) -> Bound, &str) = match text.as_bytes().first() {
        Some(b'+') => (Bound::More, text.get(1..).unwrap_or("")),
        Some(b'-') => (Bound::Less, text.get(1..).unwrap_or("")),
        _ => (Bound::Exactly, text),
    };
    digits.parse().map(make).map_err(|_| format!("`{text}` is not a number with + or - before it"))
}

fn parse_size(text: &str) -> Result<Size, String> {
    let (unit, shorter) = match text.as_bytes().last() {
        Some(b'c') => (1, 1),
        Some(b'b') => (512, 1),
        Some(b'k') => (1 << 10, 1),
        Some(b'M') => (1 << 20, 1),
        Some(b'G') => (1 << 30, 1),
        _ => (512, 0),
    };
    let number = text.get(..text.len() - shorter).unwrap_or("");
    Ok(Size { bound: parse_bound(number)?, unit })
}

fn parse_type(letter: &str) -> Result<FileType, String> {
    Ok(match letter {
        "f" => FileType::Regular,
        "d" => FileType::Directory,
        "l" => FileType::Symlink,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        "b" => FileType::BlockDevice,
        "c" => FileType::CharDevice,
        _ => return Err("expected letters f, d, l, p, s, b or c".into()),
    })
}

/// Runs `find`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let image = open::open(&arguments.image, global)?;
    let work = Find::new(&image, arguments, global)?;
    let mut tasks = Vec::new();
    for path in &arguments.paths {
        match resolve(&image.volume, path.as_bytes(), Last::Keep) {
            Ok(inode) => tasks.push(Task::Start { path: path.as_bytes().into(), ino: inode.ino() }),
            Err(error) => image.messages.fail(Failure::naming(path.as_bytes(), &error)),
        }
    }
    let skip = if global.json { facts::SEPARATOR.len() } else { 0 };
    let mut sink = TextSink::new(&image.messages, skip);
    if global.json {
        sink.write(&facts::head("find", image.messages.image(), "entries"))?;
    }
    pipeline::run(&work, tasks, &mut sink, global.thread_count())?;
    if global.json {
        sink.write(facts::TAIL)?;
    }
    sink.flush()?;
    Ok(image.messages.finish())
}

/// The tests and the form, ready for use.
struct Find<'f> {
    volume: &'f Volume,
    arguments: &'f Arguments,
    /// Patterns for the name, and for the whole path.
    names: Vec<Pattern>,
    paths: Vec<Pattern>,
    newer: Option<format::timestamp::Timestamp>,
    form: Form,
    owners: Owners,
    visited: Visited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Lines(Quoting),
    Zeros,
    Long(Quoting),
    Json,
}

enum Task {
    /// A path that the command line named.
    Start { path: Box<[u8]>, ino: Ino },
    /// What is in a directory.
    Directory { path: Box<[u8]>, ino: Ino, depth: usize },
}

struct Worker<'f> {
    reader: InodeReader<'f>,
    clock: Clock,
}

/// One file to be tested and shown.
struct Candidate<'c> {
    path: &'c [u8],
    name: &'c [u8],
    ino: Ino,
    file_type: Option<FileType>,
    depth: usize,
    /// What the inode says, where it was asked for.
    row: Option<&'c Row>,
}

struct Row {
    metadata: Metadata,
    target: Option<Vec<u8>>,
    is_empty: bool,
}

impl<'f> Find<'f> {
    fn new(image: &'f Image, arguments: &'f Arguments, global: &Global) -> anyhow::Result<Self> {
        let pattern =
            |text: &Option<OsString>, fold| text.iter().map(|t| Pattern::new(t.as_bytes(), fold)).next();
        let newer = match &arguments.newer {
            Some(path) => {
                let inode = resolve(&image.volume, path.as_bytes(), Last::Keep)?;
                Some(inode.dinode().times().modify)
            }
            None => None,
        };
        let form = match (global.json, arguments.ls, arguments.print0) {
            (true, ..) => Form::Json,
            (_, true, _) => Form::Long(Quoting::for_stdout()),
            (_, _, true) => Form::Zeros,
            _ => Form::Lines(Quoting::for_stdout()),
        };
        Ok(Self {
            volume: &image.volume,
            arguments,
            names: [pattern(&arguments.name, false), pattern(&arguments.iname, true)]
                .into_iter()
                .flatten()
                .collect(),
            paths: [pattern(&arguments.path, false), pattern(&arguments.ipath, true)]
                .into_iter()
                .flatten()
                .collect(),
            newer,
            form,
            owners: if arguments.ls { image.owners() } else { Owners::default() },
            visited: Visited::default(),
        })
    }

    /// Whether the inodes of all entries are needed.
    fn needs_inodes(&self) -> bool {
        let arguments = self.arguments;
        let tested = !arguments.size.is_empty()
            || arguments.empty
            || arguments.links.is_some()
            || arguments.uid.is_some()
            || arguments.gid.is_some()
            || self.newer.is_some();
        tested || matches!(self.form, Form::Long(_) | Form::Json)
    }

    fn row(&self, inode: &Dinode<'_>) -> read::Result<Row> {
        let metadata = Metadata::of(inode, self.volume.geometry())?;
        let shown = matches!(self.form, Form::Long(_) | Form::Json);
        let target = match metadata.file_type {
            FileType::Symlink if shown => Some(read_link(self.volume, inode)?),
            _ => None,
        };
        let is_empty = self.arguments.empty
            && match metadata.file_type {
                FileType::Regular => metadata.size == 0,
                FileType::Directory => Listing::read(self.volume, inode, |_| {}).items().is_empty(),
                _ => false,
            };
        Ok(Row { metadata, target, is_empty })
    }

    fn passes(&self, candidate: &Candidate<'_>) -> bool {
        let arguments = self.arguments;
        let typed = arguments.types.is_empty()
            || candidate.file_type.is_some_and(|file_type| arguments.types.contains(&file_type));
        typed
            && arguments.mindepth.is_none_or(|least| candidate.depth >= least)
            && arguments.inum.is_none_or(|ino| candidate.ino == Ino(ino))
            && self.names.iter().all(|pattern| pattern.matches(candidate.name))
            && self.paths.iter().all(|pattern| pattern.matches(candidate.path))
            && (!self.needs_inodes() || candidate.row.is_some_and(|row| self.row_passes(row)))
    }

    fn row_passes(&self, row: &Row) -> bool {
        let (arguments, metadata) = (self.arguments, &row.metadata);
        arguments.size.iter().all(|size| size.bound.holds(metadata.size.div_ceil(size.unit)))
            && (!arguments.empty || row.is_empty)
            && arguments.links.is_none_or(|bound| bound.holds(metadata.links.into()))
            && arguments.uid.is_none_or(|uid| metadata.uid == uid)
            && arguments.gid.is_none_or(|gid| metadata.gid == gid)
            && self.newer.is_none_or(|time| metadata.times.modify > time)
    }

    fn show(&self, out: &mut Vec<u8>, clock: &mut Clock, candidate: &Candidate<'_>) {
        match (self.form, candidate.row) {
            (Form::Json, Some(row)) => {
                Facts::new(candidate.path, &row.metadata, row.target.as_deref()).push(out);
            }
            (Form::Long(quoting), Some(row)) => self.push_long(out, clock, candidate, row, quoting),
            (Form::Zeros, _) => {
                out.extend_from_slice(candidate.path);
                out.push(0);
            }
            (Form::Lines(quoting) | Form::Long(quoting), _) => {
                quoting.push(out, candidate.path);
                out.push(b'\n');
            }
            (Form::Json, None) => {}
        }
    }

    /// A line of `find -ls`.
    fn push_long(
        &self,
        out: &mut Vec<u8>,
        clock: &mut Clock,
        candidate: &Candidate<'_>,
        row: &Row,
        quoting: Quoting,
    ) {
        let metadata = &row.metadata;
        push_number(out, metadata.ino.get(), 9);
        out.push(b' ');
        push_number(out, metadata.sectors.div_ceil(2), 6);
        out.push(b' ');
        out.extend_from_slice(&mode_text(metadata.file_type, metadata.permissions));
        out.push(b' ');
        push_number(out, metadata.links.into(), 3);
        out.push(b' ');
        self.owners.users.push(out, metadata.uid, 8);
        out.push(b' ');
        self.owners.groups.push(out, metadata.gid, 8);
        out.push(b' ');
        if matches!(metadata.file_type, FileType::BlockDevice | FileType::CharDevice) {
            push_number(out, metadata.device.0.into(), 3);
            out.extend_from_slice(b", ");
            push_number(out, metadata.device.1.into(), 3);
        } else {
            push_number(out, metadata.size, 8);
        }
        out.push(b' ');
        clock.push(out, metadata.times.modify, &TimeStyle::Locale);
        out.push(b' ');
        quoting.push(out, candidate.path);
        if let Some(target) = &row.target {
            out.extend_from_slice(b" -> ");
            quoting.push(out, target);
        }
        out.push(b'\n');
    }
}

type Pieces = Vec<Piece<Task, Shown>>;

impl<'f> Work for Find<'f> {
    type Task = Task;
    type Result = Shown;
    type Worker = Worker<'f>;

    fn worker(&self) -> Worker<'f> {
        Worker { reader: self.volume.inodes(), clock: Clock::new() }
    }

    fn perform(&self, worker: &mut Worker<'f>, task: Task, pieces: &mut Pieces) {
        match task {
            Task::Start { path, ino } => self.start(worker, path, ino, pieces),
            Task::Directory { path, ino, depth } => self.directory(worker, &path, ino, depth, pieces),
        }
    }

    fn weight(&self, shown: &Shown) -> usize {
        shown.weight()
    }
}

impl<'f> Find<'f> {
    fn start(&self, worker: &mut Worker<'f>, path: Box<[u8]>, ino: Ino, pieces: &mut Pieces) {
        let row = match worker.reader.get(ino).and_then(|inode| self.row(&inode)) {
            Ok(row) => row,
            Err(error) => return pieces.push(Piece::Result(Shown::failure(&path, error))),
        };
        let trimmed = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let trimmed = path.get(..trimmed).unwrap_or_default();
        let name =
            trimmed.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty()).unwrap_or(&path);
        let file_type = Some(row.metadata.file_type);
        let candidate = Candidate { path: &path, name, ino, file_type, depth: 0, row: Some(&row) };
        let mut out = Vec::new();
        if self.passes(&candidate) {
            self.show(&mut out, &mut worker.clock, &candidate);
        }
        pieces.push(Piece::Result(Shown::Text(out)));
        if file_type == Some(FileType::Directory) && self.arguments.maxdepth != Some(0) {
            pieces.push(Piece::Task(Task::Directory { path, ino, depth: 0 }));
        }
    }

    fn directory(&self, worker: &mut Worker<'f>, path: &[u8], ino: Ino, depth: usize, pieces: &mut Pieces) {
        let failure = |path: &[u8], error: Failure| Piece::Result(Shown::failure(path, error));
        if let Err(reason) = self.visited.enter(ino, depth) {
            return pieces.push(failure(path, reason.into()));
        }
        let mut listing = match worker.reader.get(ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| pieces.push(failure(path, error.into()))),
            Err(error) => return pieces.push(failure(path, error.into())),
        };
        listing.sort();
        let mut rows: Vec<Option<Row>> = listing.items().iter().map(|_| None).collect();
        // Without file types in entries the inodes tell which are directories.
        if self.needs_inodes() || listing.items().iter().any(|item| item.file_type.is_none()) {
            visit_inodes(&mut worker.reader, listing.items(), |index, inode| {
                let row = inode.and_then(|inode| self.row(&inode));
                let (Some(place), Some(item)) = (rows.get_mut(index), listing.items().get(index)) else {
                    return;
                };
                match row {
                    Ok(row) => *place = Some(row),
                    Err(error) => pieces.push(failure(&join(path, listing.name(item)), error.into())),
                }
            });
        }
        let mut out = Vec::new();
        for (item, row) in listing.items().iter().zip(&rows) {
            let path = join(path, listing.name(item));
            let file_type = row.as_ref().map(|row| row.metadata.file_type).or(item.file_type);
            let candidate = Candidate {
                path: &path,
                name: listing.name(item),
                ino: item.ino,
                file_type,
                depth: depth + 1,
                row: row.as_ref(),
            };
            if self.passes(&candidate) {
                self.show(&mut out, &mut worker.clock, &candidate);
            }
            if file_type == Some(FileType::Directory)
                && self.arguments.maxdepth.is_none_or(|most| depth + 1 < most)
            {
                if !out.is_empty() {
                    pieces.push(Piece::Result(Shown::Text(std::mem::take(&mut out))));
                }
                let (path, ino, depth) = (path.into(), item.ino, depth + 1);
                pieces.push(Piece::Task(Task::Directory { path, ino, depth }));
            }
        }
        pieces.push(Piece::Result(Shown::Text(out)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_sizes_are_those_of_find() {
        assert_eq!(parse_bound("+3"), Ok(Bound::More(3)));
        assert_eq!(parse_bound("-0"), Ok(Bound::Less(0)));
        assert!(parse_bound("").is_err() && parse_bound("+").is_err() && parse_size("k").is_err());
        let holds = |text: &str, bytes: u64| {
            let size = parse_size(text).unwrap();
            size.bound.holds(bytes.div_ceil(size.unit))
        };
        // Sizes are rounded up: a file of one byte is not smaller than one block.
        assert!(holds("1", 1) && !holds("-1", 1) && holds("-1", 0) && holds("+1k", 1025) && holds("7c", 7));
    }
}

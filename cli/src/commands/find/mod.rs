//! `xebec find`: searches for files in a directory hierarchy.
//!
//! | part | subject |
//! |---|---|
//! | this file | the walk and the output |
//! | [`expression`] | parsing of tests, actions and operators |
//! | [`tests`] | values of tests |

pub mod expression;
mod tests;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use base::Ino;
use base::time::{Clock as _, SystemClock};
use clap::Args;
use format::inode::{Dinode, FileType};
use format::timestamp::Timestamp;
use read::{
    FinalSymlink, InodeReader, Listing, Metadata, Visited, Volume, join, read_link, resolve, visit_inodes,
};

use crate::args::Global;
use crate::commands::ls::mode_text;
use crate::failure::Failure;
use crate::json::{self, FileJson};
use crate::names::Quoting;
use crate::open::{self, Image};
use crate::owners::Owners;
use crate::sizes::push_number;
use crate::times::{Clock, TimeStyle};
use crate::walk::{Shown, TextSink};
use base::pipeline::{self, PipelineItem, PipelineWork};
use expression::{Action, Expression, Node, Test};
use tests::Bound;

/// Arguments of `find`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Tests and actions have one dash or two, and are combined as in GNU find: adjacent tests must all \
    be true, -o is or, ! is not, ( ) groups. Entries of a directory are sorted by the bytes of their names. There \
    is no -exec, as commands cannot access files in an image: pass paths to `xebec` with -print0 and xargs.\n\n\
    Examples:\n  xebec find disk.xfs /etc -name '*.conf' -type f\n  xebec find disk.xfs --size +10M --ls\n  \
    xebec find disk.xfs /home -mtime -2 -o -perm /6000\n  \
    xebec find disk.xfs / -path /proc -prune -o -user alice -print\n  \
    xebec find disk.xfs -name '*.tmp' -print0 | xargs -0 xebec rm disk.xfs\n\n\
    Exit codes: 0 success, also without matches; 1 a file could not be read; 2 usage error."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Starting points.
    #[arg(default_value = "/")]
    paths: Vec<OsString>,
    /// Maximum depth below the starting points.
    #[arg(long, value_name = "LEVELS")]
    maxdepth: Option<usize>,
    /// Minimum depth of files to test.
    #[arg(long, value_name = "LEVELS")]
    mindepth: Option<usize>,
    #[command(flatten)]
    expression: Expression,
}

/// Runs `find`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let image = open::open(&arguments.image, global)?;
    let work = Find::new(&image, arguments, global)?;
    let mut tasks = Vec::new();
    for path in image.paths(&arguments.paths) {
        match resolve(&image.volume, &path, FinalSymlink::Keep) {
            Ok(inode) => tasks.push(Task::Start { path: path.into(), ino: inode.ino() }),
            Err(error) => image.messages.fail(Failure::naming(&path, &error)),
        }
    }
    let skip = if global.json { json::SEPARATOR.len() } else { 0 };
    let mut sink = TextSink::new(&image.messages, skip);
    if global.json {
        sink.write(&json::begin("find", image.messages.image(), json::Empty {}, "entries"))?;
    }
    pipeline::run(&work, tasks, &mut sink, global.thread_count())?;
    if global.json {
        sink.write(&json::end(json::Empty {}))?;
    }
    sink.flush()?;
    Ok(image.messages.finish())
}

/// The prepared search.
struct Find<'f> {
    volume: &'f Volume,
    arguments: &'f Arguments,
    root: Node,
    now: Timestamp,
    needs_inodes: bool,
    finds_empty: bool,
    shows_targets: bool,
    form: OutputFormat,
    owners: Owners,
    visited: Visited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputFormat {
    Text(Quoting),
    Json,
}

/// Effects of actions: output, and pruning.
struct Effects<'e> {
    out: &'e mut Vec<u8>,
    clock: &'e mut Clock,
    prune: bool,
}

enum Task {
    /// A starting point.
    Start { path: Box<[u8]>, ino: Ino },
    /// Entries of a directory.
    Directory { path: Box<[u8]>, ino: Ino, depth: usize },
}

struct Worker<'f> {
    reader: InodeReader<'f>,
    clock: Clock,
}

/// A file to test.
struct Candidate<'c> {
    path: &'c [u8],
    name: &'c [u8],
    ino: Ino,
    file_type: Option<FileType>,
    depth: usize,
    /// Data of the inode, if it is needed.
    row: Option<&'c Row>,
}

struct Row {
    metadata: Metadata,
    target: Option<Vec<u8>>,
    is_empty: bool,
}

impl<'f> Find<'f> {
    fn new(image: &'f Image, arguments: &'f Arguments, global: &Global) -> anyhow::Result<Self> {
        let expression = arguments.expression.root.clone();
        let root = expression.with_tests(&mut |test| ready(image, test))?;
        let has = |is: &dyn Fn(&Test) -> bool| root.any(&|node| matches!(node, Node::Test(test) if is(test)));
        let acts =
            |wanted: Action| root.any(&|node| matches!(node, Node::Action(action) if *action == wanted));
        let form = if global.json { OutputFormat::Json } else { OutputFormat::Text(Quoting::for_stdout()) };
        let names = acts(Action::Long) || has(&|test| matches!(test, Test::NoUser | Test::NoGroup));
        let needs_inodes = has(&Test::needs_inode) || acts(Action::Long) || form == OutputFormat::Json;
        let now = SystemClock.now();
        Ok(Self {
            volume: &image.volume,
            arguments,
            now: Timestamp { seconds: now.seconds, nanoseconds: now.nanos },
            needs_inodes,
            finds_empty: has(&|test| matches!(test, Test::Empty)),
            shows_targets: acts(Action::Long) || form == OutputFormat::Json,
            form,
            owners: if names { image.owners() } else { Owners::default() },
            visited: Visited::default(),
            root,
        })
    }

    fn row(&self, inode: &Dinode<'_>) -> read::Result<Row> {
        let metadata = Metadata::of(inode, self.volume.geometry())?;
        let target = match metadata.file_type {
            FileType::Symlink if self.shows_targets => Some(read_link(self.volume, inode)?),
            _ => None,
        };
        let is_empty = self.finds_empty
            && match metadata.file_type {
                FileType::Regular => metadata.size == 0,
                FileType::Directory => Listing::read(self.volume, inode, |_| {}).items().is_empty(),
                _ => false,
            };
        Ok(Row { metadata, target, is_empty })
    }

    /// Tests a file and runs actions; returns whether to enter a directory.
    fn visit(&self, candidate: &Candidate<'_>, out: &mut Vec<u8>, clock: &mut Clock) -> bool {
        let mut effects = Effects { out, clock, prune: false };
        let is_deep = self.arguments.mindepth.is_none_or(|least| candidate.depth >= least);
        // An unreadable inode was reported already.
        if is_deep && (!self.needs_inodes || candidate.row.is_some()) {
            self.holds(&self.root, candidate, &mut effects);
        }
        !effects.prune
    }

    fn holds(&self, node: &Node, candidate: &Candidate<'_>, effects: &mut Effects<'_>) -> bool {
        match node {
            Node::Or(parts) => parts.iter().any(|part| self.holds(part, candidate, effects)),
            Node::And(parts) => parts.iter().all(|part| self.holds(part, candidate, effects)),
            Node::Not(part) => !self.holds(part, candidate, effects),
            Node::Test(test) => self.passes(test, candidate),
            Node::Action(Action::Prune) => {
                effects.prune = true;
                true
            }
            Node::Action(action) => {
                self.show(*action, candidate, effects);
                true
            }
        }
    }

    fn passes(&self, test: &Test, candidate: &Candidate<'_>) -> bool {
        match test {
            Test::Constant(value) => return *value,
            Test::Name(pattern) => return pattern.matches(candidate.name),
            Test::Path(pattern) => return pattern.matches(candidate.path),
            Test::Type(types) => return candidate.file_type.is_some_and(|kind| types.contains(&kind)),
            Test::Inode(bound) => return bound.holds(candidate.ino.get()),
            _ => {}
        }
        let Some(row) = candidate.row else { return false };
        let metadata = &row.metadata;
        let is_directory = metadata.file_type == FileType::Directory;
        match test {
            Test::Size(size) => size.holds(metadata.size),
            Test::Empty => row.is_empty,
            Test::Links(bound) => bound.holds(metadata.links.into()),
            Test::Uid(bound) => bound.holds(metadata.uid.into()),
            Test::Gid(bound) => bound.holds(metadata.gid.into()),
            Test::NoUser => self.owners.users.get(metadata.uid).is_none(),
            Test::NoGroup => self.owners.groups.get(metadata.gid).is_none(),
            Test::Perm(perm) => perm.holds(metadata.permissions, is_directory),
            Test::Age(stamp, age) => age.holds(stamp.of(&metadata.times), self.now),
            Test::After(stamp, time) => stamp.of(&metadata.times) > *time,
            // Other tests were evaluated above, or resolved when the image was opened.
            _ => false,
        }
    }

    fn show(&self, action: Action, candidate: &Candidate<'_>, effects: &mut Effects<'_>) {
        let Effects { out, clock, .. } = effects;
        match (self.form, action, candidate.row) {
            (OutputFormat::Json, _, Some(row)) => {
                FileJson::new(candidate.path, &row.metadata, row.target.as_deref()).push(out);
            }
            (OutputFormat::Text(quoting), Action::Long, Some(row)) => {
                self.push_long(out, clock, candidate, row, quoting);
            }
            (OutputFormat::Text(_), Action::Print0, _) => {
                out.extend_from_slice(candidate.path);
                out.push(0);
            }
            (OutputFormat::Text(quoting), ..) => {
                quoting.push(out, candidate.path);
                out.push(b'\n');
            }
            (OutputFormat::Json, _, None) => {}
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

/// Resolves a test with the image.
fn ready(image: &Image, test: Test) -> anyhow::Result<Test> {
    let number = |name: &OsString, path: &[u8]| {
        let known = name.to_str().and_then(|name| image.numbers_of(path).get(name));
        let number =
            known.or_else(|| name.to_str()?.parse().ok()).map(|number| Bound::Exactly(number.into()));
        let (name, path) = (name.display(), String::from_utf8_lossy(path));
        number.with_context(|| format!("no \"{name}\" in {path} of the volume (use a numeric ID)"))
    };
    Ok(match test {
        Test::User(name) => Test::Uid(number(&name, b"/etc/passwd")?),
        Test::Group(name) => Test::Gid(number(&name, b"/etc/group")?),
        Test::Newer(stamp, path) => {
            let inode = resolve(&image.volume, path.as_bytes(), FinalSymlink::Keep)?;
            Test::After(stamp, inode.dinode().times().modify)
        }
        test => test,
    })
}

type Pieces = Vec<PipelineItem<Task, Shown>>;

impl<'f> PipelineWork for Find<'f> {
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
            Err(error) => return pieces.push(PipelineItem::Result(Shown::failure(&path, error))),
        };
        let trimmed = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let trimmed = path.get(..trimmed).unwrap_or_default();
        let name =
            trimmed.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty()).unwrap_or(&path);
        let file_type = Some(row.metadata.file_type);
        let candidate = Candidate { path: &path, name, ino, file_type, depth: 0, row: Some(&row) };
        let mut out = Vec::new();
        let enter = self.visit(&candidate, &mut out, &mut worker.clock);
        pieces.push(PipelineItem::Result(Shown::Text(out)));
        if enter && file_type == Some(FileType::Directory) && self.arguments.maxdepth != Some(0) {
            pieces.push(PipelineItem::Task(Task::Directory { path, ino, depth: 0 }));
        }
    }

    fn directory(&self, worker: &mut Worker<'f>, path: &[u8], ino: Ino, depth: usize, pieces: &mut Pieces) {
        let failure = |path: &[u8], error: Failure| PipelineItem::Result(Shown::failure(path, error));
        if let Err(reason) = self.visited.enter(ino, depth) {
            return pieces.push(failure(path, reason.into()));
        }
        let mut listing = match worker.reader.get(ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| pieces.push(failure(path, error.into()))),
            Err(error) => return pieces.push(failure(path, error.into())),
        };
        listing.sort();
        let mut rows: Vec<Option<Row>> = listing.items().iter().map(|_| None).collect();
        // Without file types in directory entries, inodes are needed to find directories.
        if self.needs_inodes || listing.items().iter().any(|item| item.file_type.is_none()) {
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
            let enter = self.visit(&candidate, &mut out, &mut worker.clock);
            if enter
                && file_type == Some(FileType::Directory)
                && self.arguments.maxdepth.is_none_or(|most| depth + 1 < most)
            {
                if !out.is_empty() {
                    pieces.push(PipelineItem::Result(Shown::Text(std::mem::take(&mut out))));
                }
                let (path, ino, depth) = (path.into(), item.ino, depth + 1);
                pieces.push(PipelineItem::Task(Task::Directory { path, ino, depth }));
            }
        }
        pieces.push(PipelineItem::Result(Shown::Text(out)));
    }
}

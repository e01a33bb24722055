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
use clap::Args;
use format::inode::{Dinode, FileType};
use format::timestamp::Timestamp;
use read::{
    FinalSymlink, InodeReader, Listing, Metadata, Visited, Volume, join, read_link, resolve, visit_inodes,
};

use serde_json::json;

use crate::args::Global;
use crate::commands::ls::mode_text;
use crate::failure::Failure;
use crate::json::{self, FileJson};
use crate::names::Quoting;
use crate::open::{self, Image};
use crate::owners::Owners;
use crate::sizes::push_number;
use crate::times::{TimeFormatter, TimeStyle};
use crate::walk::{TextSink, WalkItems as _, WalkOutput};
use base::pipeline::{self, PipelineItem, PipelineWork};
use expression::{Action, Expression, Node, Test};
use tests::Bound;
use xebec::{Clock as _, Ino, SystemClock};

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
            Ok(inode) => tasks.push(FindTask::Operand { path: path.into(), ino: inode.ino() }),
            Err(error) => image.messages.fail(Failure::naming(&path, &error)),
        }
    }
    let skip = if global.json { json::SEPARATOR.len() } else { 0 };
    let mut sink = TextSink::new(&image.messages, skip);
    if global.json {
        sink.write(&json::begin("find", image.messages.image(), json!({}), "entries"))?;
    }
    pipeline::run(&work, tasks, &mut sink, global.thread_count())?;
    if global.json {
        sink.write(&json::end(json!({})))?;
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
    format: OutputFormat,
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
    times: &'e mut TimeFormatter,
    prune: bool,
}

enum FindTask {
    /// A starting point.
    Operand { path: Box<[u8]>, ino: Ino },
    /// Entries of a directory.
    Directory { path: Box<[u8]>, ino: Ino, depth: usize },
}

struct Worker<'f> {
    reader: InodeReader<'f>,
    times: TimeFormatter,
}

/// A file to test.
struct Candidate<'c> {
    path: &'c [u8],
    name: &'c [u8],
    ino: Ino,
    file_type: Option<FileType>,
    depth: usize,
    /// Metadata, if inodes are read.
    file: Option<&'c FileInfo>,
}

/// Metadata of a file.
struct FileInfo {
    metadata: Metadata,
    target: Option<Vec<u8>>,
    is_empty: bool,
}

impl<'f> Find<'f> {
    fn new(image: &'f Image, arguments: &'f Arguments, global: &Global) -> anyhow::Result<Self> {
        let expression = arguments.expression.root.clone();
        let root = expression.with_tests(&mut |test| resolve_test(image, test))?;
        let has = |is: &dyn Fn(&Test) -> bool| root.any(&|node| matches!(node, Node::Test(test) if is(test)));
        let has_action =
            |wanted: Action| root.any(&|node| matches!(node, Node::Action(action) if *action == wanted));
        let format = if global.json { OutputFormat::Json } else { OutputFormat::Text(Quoting::for_stdout()) };
        let names = has_action(Action::Long) || has(&|test| matches!(test, Test::NoUser | Test::NoGroup));
        let needs_inodes =
            has(&Test::needs_inode) || has_action(Action::Long) || format == OutputFormat::Json;
        let now = SystemClock.now();
        Ok(Self {
            volume: &image.volume,
            arguments,
            now: Timestamp { seconds: now.seconds, nanoseconds: now.nanos },
            needs_inodes,
            finds_empty: has(&|test| matches!(test, Test::Empty)),
            shows_targets: has_action(Action::Long) || format == OutputFormat::Json,
            format,
            owners: if names { image.owners() } else { Owners::default() },
            visited: Visited::default(),
            root,
        })
    }

    fn file_info(&self, inode: &Dinode<'_>) -> read::Result<FileInfo> {
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
        Ok(FileInfo { metadata, target, is_empty })
    }

    /// Tests a file and runs actions; returns whether to enter a directory.
    fn visit(&self, candidate: &Candidate<'_>, out: &mut Vec<u8>, times: &mut TimeFormatter) -> bool {
        let mut effects = Effects { out, times, prune: false };
        let is_deep = self.arguments.mindepth.is_none_or(|minimum| candidate.depth >= minimum);
        // An unreadable inode was reported already.
        if is_deep && (!self.needs_inodes || candidate.file.is_some()) {
            self.evaluate(&self.root, candidate, &mut effects);
        }
        !effects.prune
    }

    fn evaluate(&self, node: &Node, candidate: &Candidate<'_>, effects: &mut Effects<'_>) -> bool {
        match node {
            Node::Or(operands) => operands.iter().any(|node| self.evaluate(node, candidate, effects)),
            Node::And(operands) => operands.iter().all(|node| self.evaluate(node, candidate, effects)),
            Node::Not(node) => !self.evaluate(node, candidate, effects),
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
            Test::Inode(bound) => return bound.matches(candidate.ino.get()),
            _ => {}
        }
        let Some(file) = candidate.file else { return false };
        let metadata = &file.metadata;
        let is_directory = metadata.file_type == FileType::Directory;
        match test {
            Test::Size(size) => size.matches(metadata.size),
            Test::Empty => file.is_empty,
            Test::Links(bound) => bound.matches(metadata.links.into()),
            Test::Uid(bound) => bound.matches(metadata.uid.into()),
            Test::Gid(bound) => bound.matches(metadata.gid.into()),
            Test::NoUser => self.owners.users.get(metadata.uid).is_none(),
            Test::NoGroup => self.owners.groups.get(metadata.gid).is_none(),
            Test::Perm(perm) => perm.matches(metadata.permissions, is_directory),
            Test::Age(field, age) => age.matches(field.of(&metadata.times), self.now),
            Test::After(field, time) => field.of(&metadata.times) > *time,
            // Other tests were evaluated above, or resolved when the image was opened.
            _ => false,
        }
    }

    fn show(&self, action: Action, candidate: &Candidate<'_>, effects: &mut Effects<'_>) {
        let Effects { out, times, .. } = effects;
        match (self.format, action, candidate.file) {
            (OutputFormat::Json, _, Some(file)) => {
                FileJson::new(candidate.path, &file.metadata, file.target.as_deref()).push(out);
            }
            (OutputFormat::Text(quoting), Action::Long, Some(file)) => {
                self.push_long(out, times, candidate, file, quoting);
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
        times: &mut TimeFormatter,
        candidate: &Candidate<'_>,
        file: &FileInfo,
        quoting: Quoting,
    ) {
        let metadata = &file.metadata;
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
        times.push(out, metadata.times.modify, &TimeStyle::Locale);
        out.push(b' ');
        quoting.push(out, candidate.path);
        if let Some(target) = &file.target {
            out.extend_from_slice(b" -> ");
            quoting.push(out, target);
        }
        out.push(b'\n');
    }
}

/// Resolves a test with the image.
fn resolve_test(image: &Image, test: Test) -> anyhow::Result<Test> {
    let id = |name: &OsString, path: &str| {
        let known = name.to_str().and_then(|name| image.ids_by_name(path.as_bytes()).get(name));
        let id = known.or_else(|| name.to_str()?.parse().ok()).map(|id| Bound::Exactly(id.into()));
        id.with_context(|| format!("no \"{}\" in {path} of the volume (use a numeric ID)", name.display()))
    };
    Ok(match test {
        Test::User(name) => Test::Uid(id(&name, "/etc/passwd")?),
        Test::Group(name) => Test::Gid(id(&name, "/etc/group")?),
        Test::Newer(field, path) => {
            let inode = resolve(&image.volume, path.as_bytes(), FinalSymlink::Keep)?;
            Test::After(field, inode.dinode().times().modify)
        }
        test => test,
    })
}

type Items = Vec<PipelineItem<FindTask, WalkOutput>>;

impl<'f> PipelineWork for Find<'f> {
    type Task = FindTask;
    type Result = WalkOutput;
    type Worker = Worker<'f>;

    fn worker(&self) -> Worker<'f> {
        Worker { reader: self.volume.inodes(), times: TimeFormatter::new() }
    }

    fn perform(&self, worker: &mut Worker<'f>, task: FindTask, items: &mut Items) {
        match task {
            FindTask::Operand { path, ino } => self.operand(worker, path, ino, items),
            FindTask::Directory { path, ino, depth } => self.directory(worker, &path, ino, depth, items),
        }
    }

    fn weight(&self, output: &WalkOutput) -> usize {
        output.weight()
    }
}

impl<'f> Find<'f> {
    fn operand(&self, worker: &mut Worker<'f>, path: Box<[u8]>, ino: Ino, items: &mut Items) {
        let file = match worker.reader.get(ino).and_then(|inode| self.file_info(&inode)) {
            Ok(file) => file,
            Err(error) => return items.fail(&path, error),
        };
        let trimmed = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let trimmed = path.get(..trimmed).unwrap_or_default();
        let name =
            trimmed.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty()).unwrap_or(&path);
        let file_type = Some(file.metadata.file_type);
        let candidate = Candidate { path: &path, name, ino, file_type, depth: 0, file: Some(&file) };
        let mut out = Vec::new();
        let enter = self.visit(&candidate, &mut out, &mut worker.times);
        items.text(out);
        if enter && file_type == Some(FileType::Directory) && self.arguments.maxdepth != Some(0) {
            items.task(FindTask::Directory { path, ino, depth: 0 });
        }
    }

    fn directory(&self, worker: &mut Worker<'f>, path: &[u8], ino: Ino, depth: usize, items: &mut Items) {
        if let Err(reason) = self.visited.enter(ino, depth) {
            return items.fail(path, reason);
        }
        let mut listing = match worker.reader.get(ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| items.fail(path, error)),
            Err(error) => return items.fail(path, error),
        };
        listing.sort();
        let mut files: Vec<Option<FileInfo>> = listing.items().iter().map(|_| None).collect();
        // Without file types in directory entries, inodes are needed to find directories.
        if self.needs_inodes || listing.items().iter().any(|entry| entry.file_type.is_none()) {
            visit_inodes(&mut worker.reader, listing.items(), |index, inode| {
                let (Some(file), Some(entry)) = (files.get_mut(index), listing.items().get(index)) else {
                    return;
                };
                match inode.and_then(|inode| self.file_info(&inode)) {
                    Ok(found) => *file = Some(found),
                    Err(error) => items.fail(&join(path, listing.name(entry)), error),
                }
            });
        }
        let mut out = Vec::new();
        for (entry, file) in listing.items().iter().zip(&files) {
            let (path, name, ino, depth) =
                (join(path, listing.name(entry)), listing.name(entry), entry.ino, depth + 1);
            let file_type = file.as_ref().map(|file| file.metadata.file_type).or(entry.file_type);
            let candidate = Candidate { path: &path, name, ino, file_type, depth, file: file.as_ref() };
            let enter = self.visit(&candidate, &mut out, &mut worker.times);
            let is_within = self.arguments.maxdepth.is_none_or(|maximum| depth < maximum);
            if enter && is_within && file_type == Some(FileType::Directory) {
                items.text(std::mem::take(&mut out));
                items.task(FindTask::Directory { path: path.into(), ino, depth });
            }
        }
        items.text(out);
    }
}

//! `xebec tree`: lists a directory as a tree.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use base::Ino;
use clap::Args;
use format::inode::FileType;
use read::{FinalSymlink, InodeReader, Listing, Visited, Volume, read_link, resolve};

use crate::args::Global;
use crate::json;
use crate::names::{JsonName, Quoting};
use crate::output::Stdout;
use crate::walk::{Shown, TextSink};
use crate::{open, operands};
use base::pipeline::{self, PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};

/// Arguments of `tree`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec tree disk.xfs\n  xebec tree -L 2 -d disk.xfs /usr\n\n\
    Exit codes: 0 success; 1 a file could not be read; 2 usage error.")]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Directory to list.
    #[arg(default_value = "/")]
    path: OsString,
    /// Include names that start with a dot.
    #[arg(short, long)]
    all: bool,
    /// List directories only.
    #[arg(short, long)]
    directories: bool,
    /// Maximum depth.
    #[arg(short = 'L', long, value_name = "N")]
    level: Option<usize>,
}

/// Runs `tree`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let image = open::open(&arguments.image, global)?;
    let path = operands::path(&image.volume, arguments.path.as_bytes())?;
    let inode = resolve(&image.volume, &path, FinalSymlink::Follow)?;
    let work = Branches {
        volume: &image.volume,
        arguments,
        json: global.json,
        quoting: Quoting::for_stdout(),
        coloured: Stdout::is_coloured(global),
        visited: Visited::default(),
    };
    let mut sink = Counting { sink: TextSink::new(&image.messages, 0), directories: 0, files: 0 };
    let mut head = Vec::new();
    if global.json {
        head.extend_from_slice(&json::begin("tree", image.messages.image(), json::Empty {}, "tree"));
        work.push_json_head(&mut head, &path, inode.ino(), Some(FileType::Directory), None);
        head.extend_from_slice(b",\"contents\":[");
    } else {
        work.push_name(&mut head, &path, Some(FileType::Directory));
        head.push(b'\n');
    }
    sink.sink.write(&head)?;
    let task = Task { ino: inode.ino(), prefix: Vec::new(), depth: 0 };
    pipeline::run(&work, vec![task], &mut sink, global.thread_count())?;
    let tail = if global.json {
        #[derive(serde::Serialize)]
        struct Counts {
            directories: u64,
            files: u64,
        }
        let counts = Counts { directories: sink.directories, files: sink.files };
        [b"]}", json::end(counts).as_slice()].concat()
    } else {
        let plural =
            |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let directories = plural(sink.directories, "directory", "directories");
        match arguments.directories {
            true => format!("\n{directories}\n"),
            false => format!("\n{directories}, {}\n", plural(sink.files, "file", "files")),
        }
        .into_bytes()
    };
    sink.sink.write(&tail)?;
    sink.sink.flush()?;
    Ok(image.messages.finish())
}

struct Branches<'b> {
    volume: &'b Volume,
    arguments: &'b Arguments,
    json: bool,
    quoting: Quoting,
    coloured: bool,
    visited: Visited,
}

/// A directory to list, with the prefix of its lines.
struct Task {
    ino: Ino,
    prefix: Vec<u8>,
    depth: usize,
}

enum Drawn {
    Shown(Shown),
    /// Number of directories and of other files in a directory.
    Count(u64, u64),
}

/// Counts what is drawn.
struct Counting<'c> {
    sink: TextSink<'c>,
    directories: u64,
    files: u64,
}

impl<'b> PipelineSink<Branches<'b>> for Counting<'_> {
    type Error = std::io::Error;

    fn take(&mut self, drawn: Drawn, _: &mut Vec<PipelineItemOf<Branches<'b>>>) -> std::io::Result<()> {
        match drawn {
            Drawn::Shown(shown) => self.sink.show(shown),
            Drawn::Count(directories, files) => {
                self.directories += directories;
                self.files += files;
                Ok(())
            }
        }
    }
}

type Pieces = Vec<PipelineItem<Task, Drawn>>;

impl<'b> PipelineWork for Branches<'b> {
    type Task = Task;
    type Result = Drawn;
    type Worker = InodeReader<'b>;

    fn worker(&self) -> InodeReader<'b> {
        self.volume.inodes()
    }

    fn perform(&self, reader: &mut InodeReader<'b>, task: Task, pieces: &mut Pieces) {
        let failure = |error: &dyn std::fmt::Display| {
            let text = format!("inode {}: {error}", task.ino);
            PipelineItem::Result(Drawn::Shown(Shown::Failure(text.into())))
        };
        if let Err(reason) = self.visited.enter(task.ino, task.depth) {
            return pieces.push(failure(&reason));
        }
        let mut listing = match reader.get(task.ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| pieces.push(failure(&error))),
            Err(error) => return pieces.push(failure(&error)),
        };
        if !self.arguments.all {
            listing.retain(|name| name.first() != Some(&b'.'));
        }
        listing.sort();
        self.draw(reader, &listing, &task, pieces);
    }

    fn weight(&self, drawn: &Drawn) -> usize {
        match drawn {
            Drawn::Shown(shown) => shown.weight(),
            Drawn::Count(..) => 0,
        }
    }
}

impl<'b> Branches<'b> {
    fn draw(&self, reader: &mut InodeReader<'b>, listing: &Listing, task: &Task, pieces: &mut Pieces) {
        let types: Vec<Option<FileType>> = listing
            .items()
            .iter()
            .map(|item| item.file_type.or_else(|| reader.get(item.ino).ok()?.file_type()))
            .collect();
        let is_directory = |file_type: &Option<FileType>| *file_type == Some(FileType::Directory);
        let mut shown = listing
            .items()
            .iter()
            .zip(&types)
            .filter(|(_, file_type)| !self.arguments.directories || is_directory(file_type))
            .peekable();
        let (mut out, mut directories, mut files) = (Vec::new(), 0, 0);
        let mut first = true;
        while let Some((item, file_type)) = shown.next() {
            let last = shown.peek().is_none();
            let name = listing.name(item);
            let target = match file_type {
                Some(FileType::Symlink) => {
                    reader.get(item.ino).and_then(|inode| read_link(self.volume, &inode)).ok()
                }
                _ => None,
            };
            if self.json {
                out.extend_from_slice(if first { b"\n" } else { json::SEPARATOR });
                self.push_json_head(&mut out, name, item.ino, *file_type, target.as_deref());
            } else {
                out.extend_from_slice(&task.prefix);
                out.extend_from_slice(
                    if last { "\u{2514}\u{2500}\u{2500} " } else { "\u{251c}\u{2500}\u{2500} " }.as_bytes(),
                );
                self.push_name(&mut out, name, *file_type);
                if let Some(target) = target {
                    out.extend_from_slice(b" -> ");
                    self.quoting.push(&mut out, &target);
                }
                out.push(b'\n');
            }
            first = false;
            if is_directory(file_type) {
                directories += 1;
                self.descend(&mut out, task, item.ino, last, pieces);
            } else {
                files += 1;
            }
            if self.json {
                out.push(b'}');
            }
        }
        pieces.push(PipelineItem::Result(Drawn::Shown(Shown::Text(out))));
        pieces.push(PipelineItem::Result(Drawn::Count(directories, files)));
    }

    /// What is drawn so far comes before what is in the directory.
    fn descend(&self, out: &mut Vec<u8>, task: &Task, ino: Ino, last: bool, pieces: &mut Pieces) {
        if self.arguments.level.is_some_and(|most| task.depth + 1 >= most) {
            return;
        }
        if self.json {
            out.extend_from_slice(b",\"contents\":[");
        }
        pieces.push(PipelineItem::Result(Drawn::Shown(Shown::Text(std::mem::take(out)))));
        let mut prefix = task.prefix.clone();
        if !self.json {
            prefix.extend_from_slice(if last { "    " } else { "\u{2502}\u{a0}\u{a0} " }.as_bytes());
        }
        pieces.push(PipelineItem::Task(Task { ino, prefix, depth: task.depth + 1 }));
        if self.json {
            out.push(b']');
        }
    }

    fn push_name(&self, out: &mut Vec<u8>, name: &[u8], file_type: Option<FileType>) {
        let colour = match file_type {
            Some(FileType::Directory) if self.coloured => "\u{1b}[01;34m",
            Some(FileType::Symlink) if self.coloured => "\u{1b}[01;36m",
            _ => "",
        };
        out.extend_from_slice(colour.as_bytes());
        self.quoting.push(out, name);
        if !colour.is_empty() {
            out.extend_from_slice(b"\x1b[0m");
        }
    }

    /// The beginning of an object: everything but what a directory contains, and the closing brace.
    fn push_json_head(
        &self,
        out: &mut Vec<u8>,
        name: &[u8],
        ino: Ino,
        file_type: Option<FileType>,
        target: Option<&[u8]>,
    ) {
        #[derive(serde::Serialize)]
        struct Head<'h> {
            #[serde(flatten)]
            name: JsonName<'h>,
            ino: u64,
            #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
            kind: Option<&'static str>,
            #[serde(flatten)]
            target: Option<JsonName<'h>>,
        }
        let kind = file_type.map(json::type_name);
        let head =
            Head { name: JsonName::name(name), ino: ino.get(), kind, target: target.map(JsonName::target) };
        let head = json::object(&head);
        out.extend_from_slice(head.strip_suffix('}').unwrap_or(&head).as_bytes());
    }
}

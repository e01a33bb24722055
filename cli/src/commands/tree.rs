//! `xebec tree`: lists a directory as a tree.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use clap::Args;
use format::inode::FileType;
use read::{FinalSymlink, InodeReader, Listing, Visited, Volume, read_link, resolve};

use serde_json::json;

use crate::args::Global;
use crate::json::{self, JsonName};
use crate::names::Quoting;
use crate::output::{Stdout, counted};
use crate::walk::{TextSink, WalkItems as _, WalkOutput};
use crate::{open, operands};
use base::pipeline::{self, PipelineItem, PipelineWork};
use xebec::Ino;

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
    let work = TreeWalk {
        volume: &image.volume,
        arguments,
        json: global.json,
        quoting: Quoting::for_stdout(),
        coloured: Stdout::is_coloured(global),
        visited: Visited::default(),
        directories: AtomicU64::new(0),
        files: AtomicU64::new(0),
    };
    let mut sink = TextSink::new(&image.messages, 0);
    let mut head = Vec::new();
    if global.json {
        head.extend_from_slice(&json::begin("tree", image.messages.image(), json!({}), "tree"));
        work.push_json_head(&mut head, &path, inode.ino(), Some(FileType::Directory), None);
        head.extend_from_slice(b",\"contents\":[");
    } else {
        work.push_name(&mut head, &path, Some(FileType::Directory));
        head.push(b'\n');
    }
    sink.write(&head)?;
    let top = Directory { ino: inode.ino(), prefix: Vec::new(), depth: 0 };
    pipeline::run(&work, vec![top], &mut sink, global.thread_count())?;
    let (directories, files) = (work.directories.into_inner(), work.files.into_inner());
    let tail = if global.json {
        let counts = json!({ "directories": directories, "files": files });
        [b"]}", json::end(counts).as_slice()].concat()
    } else {
        let directories = counted(directories, "directory");
        match arguments.directories {
            true => format!("\n{directories}\n"),
            false => format!("\n{directories}, {}\n", counted(files, "file")),
        }
        .into_bytes()
    };
    sink.write(&tail)?;
    sink.flush()?;
    Ok(image.messages.finish())
}

struct TreeWalk<'b> {
    volume: &'b Volume,
    arguments: &'b Arguments,
    json: bool,
    quoting: Quoting,
    coloured: bool,
    visited: Visited,
    /// Number of listed directories, without the first.
    directories: AtomicU64,
    /// Number of other listed files.
    files: AtomicU64,
}

/// A directory to list, with the prefix of its lines.
struct Directory {
    ino: Ino,
    prefix: Vec<u8>,
    depth: usize,
}

type Items = Vec<PipelineItem<Directory, WalkOutput>>;

impl<'b> PipelineWork for TreeWalk<'b> {
    type Task = Directory;
    type Result = WalkOutput;
    type Worker = InodeReader<'b>;

    fn worker(&self) -> InodeReader<'b> {
        self.volume.inodes()
    }

    fn perform(&self, reader: &mut InodeReader<'b>, directory: Directory, items: &mut Items) {
        let failure = |error: &dyn std::fmt::Display| {
            let text = format!("inode {}: {error}", directory.ino);
            PipelineItem::Result(WalkOutput::Failure(text.into()))
        };
        if let Err(reason) = self.visited.enter(directory.ino, directory.depth) {
            return items.push(failure(&reason));
        }
        let mut listing = match reader.get(directory.ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| items.push(failure(&error))),
            Err(error) => return items.push(failure(&error)),
        };
        if !self.arguments.all {
            listing.retain(|name| name.first() != Some(&b'.'));
        }
        listing.sort();
        self.list(reader, &listing, &directory, items);
    }

    fn weight(&self, output: &WalkOutput) -> usize {
        output.weight()
    }
}

impl<'b> TreeWalk<'b> {
    fn list(
        &self,
        reader: &mut InodeReader<'b>,
        listing: &Listing,
        directory: &Directory,
        items: &mut Items,
    ) {
        let types: Vec<Option<FileType>> = listing
            .items()
            .iter()
            .map(|entry| entry.file_type.or_else(|| reader.get(entry.ino).ok()?.file_type()))
            .collect();
        let is_directory = |file_type: &Option<FileType>| *file_type == Some(FileType::Directory);
        let mut shown = listing
            .items()
            .iter()
            .zip(&types)
            .filter(|(_, file_type)| !self.arguments.directories || is_directory(file_type))
            .peekable();
        let mut out = Vec::new();
        let mut first = true;
        while let Some((entry, file_type)) = shown.next() {
            let last = shown.peek().is_none();
            let name = listing.name(entry);
            let target = match file_type {
                Some(FileType::Symlink) => {
                    reader.get(entry.ino).and_then(|inode| read_link(self.volume, &inode)).ok()
                }
                _ => None,
            };
            if self.json {
                out.extend_from_slice(if first { b"\n" } else { json::SEPARATOR });
                self.push_json_head(&mut out, name, entry.ino, *file_type, target.as_deref());
            } else {
                out.extend_from_slice(&directory.prefix);
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
                self.directories.fetch_add(1, Relaxed);
                self.descend(&mut out, directory, entry.ino, last, items);
            } else {
                self.files.fetch_add(1, Relaxed);
            }
            if self.json {
                out.push(b'}');
            }
        }
        items.text(out);
    }

    /// Outputs the lines so far, and then the contents of a subdirectory.
    fn descend(&self, out: &mut Vec<u8>, directory: &Directory, ino: Ino, last: bool, items: &mut Items) {
        if self.arguments.level.is_some_and(|level| directory.depth + 1 >= level) {
            return;
        }
        if self.json {
            out.extend_from_slice(b",\"contents\":[");
        }
        items.text(std::mem::take(out));
        let mut prefix = directory.prefix.clone();
        if !self.json {
            prefix.extend_from_slice(if last { "    " } else { "\u{2502}\u{a0}\u{a0} " }.as_bytes());
        }
        items.task(Directory { ino, prefix, depth: directory.depth + 1 });
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

    /// The start of an object: everything but the contents of a directory and the closing brace.
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
        let head = Head {
            name: JsonName("name", name),
            ino: ino.get(),
            kind,
            target: target.map(|target| JsonName("target", target)),
        };
        let head = json::object(&head);
        out.extend_from_slice(head.strip_suffix('}').unwrap_or(&head).as_bytes());
    }
}

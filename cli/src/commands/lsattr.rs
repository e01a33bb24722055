//! `xebec lsattr`: shows inode flags and project IDs.

use std::io::Write as _;

use clap::Args;
use format::inode::FileType;
use read::{FinalSymlink, Inode, Metadata, Visited};
use serde::Serialize;
use serde_json::json;

use crate::args::Global;
use crate::commands::Show;
use crate::failure::Failure;
use crate::flags;
use crate::json;
use crate::names;
use crate::open::{Files, Image};
use crate::output::Stdout;

/// Arguments of `lsattr`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Letters are those of chattr. For directories, their files are listed.\n\n\
    Examples:\n  xebec lsattr disk.xfs /etc\n  xebec lsattr -Rp disk.xfs /srv\n\n\
    Exit codes: 0 success; 1 a file could not be read; 2 usage error.")]
pub struct Arguments {
    #[command(flatten)]
    files: Files,
    /// List directories themselves, not their contents.
    #[arg(short, long)]
    directory: bool,
    /// List directories recursively.
    #[arg(short = 'R', long, conflicts_with = "directory")]
    recursive: bool,
    /// Include names that start with a dot.
    #[arg(short, long)]
    all: bool,
    /// Show the project ID.
    #[arg(short, long)]
    project: bool,
    /// Show long flag names.
    #[arg(short, long)]
    long: bool,
}

/// A file with its flags and hints.
#[derive(Serialize)]
struct FileFlags {
    #[serde(flatten, serialize_with = "json::path")]
    path: Vec<u8>,
    flags: Vec<&'static str>,
    xflags: u32,
    projid: u32,
    extsize: u64,
    cowextsize: u64,
}

/// An element of the output.
enum Line {
    File(FileFlags),
    /// The header of a directory.
    Directory(Vec<u8>),
}

impl Show for Arguments {
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()> {
        let (mut lines, visited) = (Vec::new(), Visited::default());
        for (path, inode) in image.find_files(&self.files, FinalSymlink::Keep) {
            if self.directory || !is_directory(&inode) {
                lines.extend(FileFlags::of(image, path, &inode).map(Line::File));
                continue;
            }
            let mut directories = vec![(path, inode, 0)];
            while let Some((path, inode, depth)) = directories.pop() {
                if let Err(reason) = visited.enter(inode.ino(), depth) {
                    image.messages.fail(Failure::at(&path, reason));
                    continue;
                }
                let mut entries = image.read_dir(&path, &inode, |name| self.all || !name.starts_with(b"."));
                lines.push(Line::Directory(path));
                for (path, inode) in &entries {
                    lines.extend(FileFlags::of(image, path.clone(), inode).map(Line::File));
                }
                if self.recursive {
                    entries.retain(|(_, inode)| is_directory(inode));
                    directories
                        .extend(entries.into_iter().rev().map(|(path, inode)| (path, inode, depth + 1)));
                }
            }
        }
        if global.json {
            let file = |line| match line {
                Line::File(file) => Some(file),
                Line::Directory(_) => None,
            };
            let files: Vec<_> = lines.into_iter().filter_map(file).collect();
            return json::write("lsattr", image.messages.image(), json!({ "files": files }));
        }
        let mut out = Stdout::buffered();
        for line in &lines {
            match line {
                Line::File(file) => out.write_all(file.text(self).as_bytes())?,
                Line::Directory(path) if self.recursive => writeln!(out, "\n{}:", names::printable(path))?,
                Line::Directory(_) => {}
            }
        }
        Ok(out.flush()?)
    }
}

fn is_directory(inode: &Inode) -> bool {
    inode.dinode().file_type() == Some(FileType::Directory)
}

impl FileFlags {
    /// Reports and skips unreadable files.
    fn of(image: &Image, path: Vec<u8>, inode: &Inode) -> Option<Self> {
        let (dinode, geometry) = (inode.dinode(), image.volume.geometry());
        let metadata = Metadata::of(&dinode, geometry);
        let Metadata { xflags, project, .. } =
            metadata.map_err(|error| image.messages.fail(Failure::at(&path, error))).ok()?;
        let bytes = |blocks: u32| u64::from(blocks) << geometry.block_log;
        Some(Self {
            path,
            flags: flags::long_names(xflags),
            xflags,
            projid: project,
            extsize: bytes(dinode.core.extsize.get()),
            cowextsize: bytes(dinode.core.cowextsize.get()),
        })
    }

    fn text(&self, arguments: &Arguments) -> String {
        let path = names::printable(&self.path);
        let project = if arguments.project { format!("{:5} ", self.projid) } else { String::new() };
        if !arguments.long {
            return format!("{project}{} {path}\n", flags::letters(self.xflags));
        }
        let flags = if self.flags.is_empty() { "---".into() } else { self.flags.join(", ") };
        format!("{project}{path:28} {flags}\n")
    }
}

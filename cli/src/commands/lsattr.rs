//! `xebec lsattr`: shows inode flags and project IDs.

use std::io::Write as _;

use clap::Args;
use format::inode::FileType;
use read::{FinalSymlink, Inode, Listing, Metadata, Visited, join};
use serde::Serialize;

use crate::args::Global;
use crate::commands::Show;
use crate::failure::Failure;
use crate::flags;
use crate::json;
use crate::names::{self, JsonName};
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

/// A file and its flags.
struct Row {
    path: Vec<u8>,
    metadata: Metadata,
    extsize: u64,
    cowextsize: u64,
}

impl Show for Arguments {
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()> {
        let mut out = Stdout::buffered();
        let (mut rows, visited) = (Vec::new(), Visited::default());
        for (path, inode) in image.find_files(&self.files, FinalSymlink::Keep) {
            let is_directory = inode.dinode().file_type() == Some(FileType::Directory);
            if self.directory || !is_directory {
                rows.extend(Row::of(image, path, &inode).map(Part::File));
                continue;
            }
            let mut waiting = vec![(path, inode, 0)];
            while let Some((path, inode, depth)) = waiting.pop() {
                if let Err(why) = visited.enter(inode.ino(), depth) {
                    image.messages.fail(Failure::at(&path, why));
                    continue;
                }
                let below = list(image, self, &path, &inode, &mut rows);
                if self.recursive {
                    waiting.extend(below.into_iter().rev().map(|(path, inode)| (path, inode, depth + 1)));
                }
            }
        }
        if global.json {
            let files = rows.iter().filter_map(Part::file).map(Row::json).collect();
            json::write("lsattr", image.messages.image(), json::Files { files })?;
            rows.clear();
        }
        let headed = self.recursive;
        for part in &rows {
            match part {
                Part::File(row) => out.write_all(row.text(self).as_bytes())?,
                Part::Directory(path) if headed => writeln!(out, "\n{}:", names::printable(path))?,
                Part::Directory(_) => {}
            }
        }
        out.flush()?;
        Ok(())
    }
}

/// An element of the output.
enum Part {
    File(Row),
    /// The header of a directory.
    Directory(Vec<u8>),
}

impl Part {
    fn file(&self) -> Option<&Row> {
        match self {
            Self::File(row) => Some(row),
            Self::Directory(_) => None,
        }
    }
}

/// Lists a directory and returns its subdirectories.
fn list(
    image: &Image,
    arguments: &Arguments,
    path: &[u8],
    dir: &Inode,
    rows: &mut Vec<Part>,
) -> Vec<(Vec<u8>, Inode)> {
    let fail = |path: &[u8], error: Failure| {
        image.messages.fail(Failure::at(path, error));
    };
    let mut listing = Listing::read(&image.volume, &dir.dinode(), |error| fail(path, error.into()));
    if !arguments.all {
        listing.retain(|name| !name.starts_with(b"."));
    }
    listing.sort();
    rows.push(Part::Directory(path.to_vec()));
    let mut below = Vec::new();
    for item in listing.items() {
        let path = join(path, listing.name(item));
        match image.volume.inode(item.ino) {
            Ok(inode) => {
                rows.extend(Row::of(image, path.clone(), &inode).map(Part::File));
                if inode.dinode().file_type() == Some(FileType::Directory) {
                    below.push((path, inode));
                }
            }
            Err(error) => fail(&path, error.into()),
        }
    }
    below
}

impl Row {
    /// Reports and skips unreadable files.
    fn of(image: &Image, path: Vec<u8>, inode: &Inode) -> Option<Self> {
        let dinode = inode.dinode();
        let geometry = image.volume.geometry();
        match Metadata::of(&dinode, geometry) {
            Ok(metadata) => {
                let bytes = |blocks: u32| u64::from(blocks) << geometry.block_log;
                let (extsize, cowextsize) =
                    (bytes(dinode.core.extsize.get()), bytes(dinode.core.cowextsize.get()));
                Some(Self { path, metadata, extsize, cowextsize })
            }
            Err(error) => {
                image.messages.fail(Failure::at(&path, error));
                None
            }
        }
    }

    fn text(&self, arguments: &Arguments) -> String {
        let (xflags, path) = (self.metadata.xflags, names::printable(&self.path));
        let project = if arguments.project { format!("{:5} ", self.metadata.project) } else { String::new() };
        if !arguments.long {
            return format!("{project}{} {path}\n", flags::letters(xflags));
        }
        let words = flags::words(xflags);
        let words = if words.is_empty() { "---".into() } else { words.join(", ") };
        format!("{project}{path:28} {words}\n")
    }

    fn json(&self) -> JsonRow<'_> {
        JsonRow {
            path: JsonName::path(&self.path),
            flags: flags::words(self.metadata.xflags),
            xflags: self.metadata.xflags,
            projid: self.metadata.project,
            extsize: self.extsize,
            cowextsize: self.cowextsize,
        }
    }
}

#[derive(Serialize)]
struct JsonRow<'r> {
    #[serde(flatten)]
    path: JsonName<'r>,
    flags: Vec<&'static str>,
    xflags: u32,
    projid: u32,
    extsize: u64,
    cowextsize: u64,
}

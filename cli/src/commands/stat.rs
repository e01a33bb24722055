//! `xebec stat`: shows file metadata in the format of GNU `stat`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use clap::Args;
use format::extent::Extent;
use format::inode::{FileType, ForkKind};
use read::{ExtentWalk, FinalSymlink, Inode, Metadata, ParentLink, read_link, read_xattrs};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;
use crate::commands::Show;
use crate::commands::getfattr::json_attributes;
use crate::failure::Failure;
use crate::json::{self, FileJson};
use crate::names;
use crate::open::{Files, Image};
use crate::output::Stdout;
use crate::owners::{NamesById, Owners};
use crate::sizes::with_unit;
use crate::times::TimeFormatter;

/// Arguments of `stat`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "With --verbose, also shows extended attributes, extents and parent pointers.\n\n\
    Examples:\n  xebec stat disk.xfs /etc/passwd\n  xebec stat -v --inode 131 disk.xfs\n\n\
    Exit codes: 0 success; 1 a file could not be read; 2 usage error.")]
pub struct Arguments {
    #[command(flatten)]
    files: Files,
    /// Follow symbolic links.
    #[arg(short = 'L', long)]
    dereference: bool,
}

impl Show for Arguments {
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()> {
        let last = if self.dereference { FinalSymlink::Follow } else { FinalSymlink::Keep };
        let mut files = Vec::new();
        for (name, inode) in image.find_files(&self.files, last) {
            match File::of(image, &name, &inode, global.verbose || global.json) {
                Ok(file) => files.push(file),
                Err(error) => image.messages.fail(Failure::at(&name, error)),
            }
        }
        if global.json {
            let files: Vec<_> = files.iter().map(File::json).collect();
            return json::write("stat", image.messages.image(), json!({ "files": files }));
        }
        let (owners, mut times) = (image.owners(), TimeFormatter::new());
        let mut out = Stdout::buffered();
        for file in &files {
            out.write_all(file.text(image, &owners, &mut times).as_bytes())?;
        }
        Ok(out.flush()?)
    }
}

/// Metadata of a file.
struct File {
    name: Vec<u8>,
    metadata: Metadata,
    target: Option<Vec<u8>>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    extents: Vec<Extent>,
    parents: Vec<ParentLink>,
}

/// Maximum number of extents in the output.
const EXTENTS_MAX: usize = 100_000;

impl File {
    /// Reads the metadata; with `all`, also attributes, extents and parents.
    fn of(image: &Image, name: &[u8], inode: &Inode, all: bool) -> read::Result<Self> {
        let (volume, dinode) = (&image.volume, inode.dinode());
        let metadata = Metadata::of(&dinode, volume.geometry())?;
        let target = match metadata.file_type {
            FileType::Symlink => Some(read_link(volume, &dinode)?),
            _ => None,
        };
        let (xattrs, extents, parents) = (Vec::new(), Vec::new(), Vec::new());
        let mut file = Self { name: name.to_vec(), metadata, target, xattrs, extents, parents };
        if all {
            file.read_details(image, inode);
        }
        Ok(file)
    }

    /// Reports and skips damaged structures.
    fn read_details(&mut self, image: &Image, inode: &Inode) {
        let (volume, dinode) = (&image.volume, inode.dinode());
        let name = self.name.clone();
        let fail = |error: read::Error| image.messages.fail(Failure::at(&name, error));
        self.xattrs = read_xattrs(volume, &dinode, fail);
        let walk = ExtentWalk::new(volume, &dinode, ForkKind::Data, xebec::FileBlock(0)).map_err(fail);
        let extents = walk.into_iter().flatten().take(EXTENTS_MAX);
        self.extents = extents.filter_map(|extent| extent.map_err(fail).ok()).collect();
        if volume.geometry().features.parent() {
            self.parents = read::parents(volume, &dinode).map_err(fail).unwrap_or_default();
        }
    }

    /// The format of GNU `stat`, without the device number, which an image does not have.
    fn text(&self, image: &Image, owners: &Owners, times: &mut TimeFormatter) -> String {
        let metadata = &self.metadata;
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = write!(out, "  File: {}", names::quoted(&self.name));
        if let Some(target) = &self.target {
            let _ = write!(out, " -> {}", names::quoted(target));
        }
        let block = image.volume.geometry().block_size;
        let _ = write!(
            out,
            "\n  Size: {:<10}\tBlocks: {:<10} IO Block: {block:<6} {}\n",
            metadata.size,
            metadata.sectors,
            type_name(metadata)
        );
        let _ = write!(out, "Device: xfs\tInode: {:<11} Links: {}", metadata.ino, metadata.links);
        if matches!(metadata.file_type, FileType::BlockDevice | FileType::CharDevice) {
            let _ = write!(out, "     Device type: {},{}", metadata.device.0, metadata.device.1);
        }
        let mode = crate::commands::ls::mode_text(metadata.file_type, metadata.permissions);
        let _ = write!(
            out,
            "\nAccess: ({:04o}/{})  Uid: {}   Gid: {}\n",
            metadata.permissions,
            String::from_utf8_lossy(&mode),
            owner(&owners.users, metadata.uid),
            owner(&owners.groups, metadata.gid)
        );
        let inode_times = &metadata.times;
        for (label, time) in [
            ("Access", inode_times.access),
            ("Modify", inode_times.modify),
            ("Change", inode_times.change),
            (" Birth", inode_times.create),
        ] {
            let _ = writeln!(out, "{label}: {}", times.full(time));
        }
        if metadata.project != 0 || metadata.xflags != 0 {
            let _ = writeln!(
                out,
                " Flags: {:#x}  Project: {}  Generation: {}",
                metadata.xflags, metadata.project, metadata.generation
            );
        }
        self.push_details(&mut out, image);
        out
    }

    fn push_details(&self, out: &mut String, image: &Image) {
        let geometry = image.volume.geometry();
        for (name, value) in &self.xattrs {
            let start = names::printable(value.get(..value.len().min(64)).unwrap_or_default());
            let dots = if value.len() > 64 { "..." } else { "" };
            let _ = writeln!(
                out,
                " Xattr: {} ({}) {start}{dots}",
                names::quoted(name),
                with_unit(value.len() as u64)
            );
        }
        for parent in &self.parents {
            let _ = writeln!(out, "Parent: {} in inode {}", names::quoted(&parent.name), parent.ino);
        }
        for extent in &self.extents {
            let first = extent.offset.get();
            let (ag, block) = geometry.split_fs_block(extent.start).unwrap_or_default();
            let state = if extent.unwritten { " unwritten" } else { "" };
            let _ = writeln!(
                out,
                "Extent: blocks {first} to {} at AG {ag} block {block}, {} blocks{state}",
                extent.end().get() - 1,
                extent.count
            );
        }
    }

    fn json(&self) -> JsonFile<'_> {
        let extent = |extent: &Extent| {
            json!({
                "file_block": extent.offset.get(),
                "fs_block": extent.start.get(),
                "blocks": extent.count,
                "unwritten": extent.unwritten,
            })
        };
        let parent = |parent: &ParentLink| {
            let (key, name) = json::name("name", &parent.name);
            json!({ "ino": parent.ino.get(), "generation": parent.generation, (key): name })
        };
        JsonFile {
            file: FileJson::new(&self.name, &self.metadata, self.target.as_deref()),
            xattrs: json_attributes(&self.xattrs),
            extents: self.extents.iter().map(extent).collect(),
            parents: self.parents.iter().map(parent).collect(),
        }
    }
}

fn owner(names: &NamesById, id: u32) -> String {
    let name = names.get(id).map_or("UNKNOWN".into(), String::from_utf8_lossy);
    format!("({id:5}/{name:>8})")
}

fn type_name(metadata: &Metadata) -> &'static str {
    match metadata.file_type {
        FileType::Regular if metadata.size == 0 => "regular empty file",
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::BlockDevice => "block special file",
        FileType::CharDevice => "character special file",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

#[derive(Debug, Serialize)]
struct JsonFile<'f> {
    #[serde(flatten)]
    file: FileJson<'f>,
    xattrs: BTreeMap<String, String>,
    extents: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parents: Vec<Value>,
}

//! `xebec filefrag`: shows the extents of files.

use std::io::{self, Write as _};

use clap::Args;
use format::extent::Extent;
use format::inode::ForkKind;
use read::{ExtentWalk, FinalSymlink, Inode};
use serde::Serialize;
use serde_json::json;

use crate::args::Global;
use crate::commands::Show;
use crate::failure::Failure;
use crate::json;
use crate::names;
use crate::open::{Files, Image};
use crate::output::{Stdout, counted};

/// Arguments of `filefrag`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Shows the number of extents; with --verbose, all of them, in blocks. Physical offsets \
count from the start of the volume.\n\n\
    Examples:\n  xebec filefrag disk.xfs /var/log/messages\n  xebec filefrag -v disk.xfs /images/vm1.qcow2\n\n\
    Exit codes: 0 success; 1 a file could not be read; 2 usage error."
)]
pub struct Arguments {
    #[command(flatten)]
    files: Files,
}

/// A file with its extents.
#[derive(Serialize)]
struct File {
    #[serde(flatten, serialize_with = "json::path")]
    name: Vec<u8>,
    size: u64,
    extents: Vec<ExtentBlocks>,
}

/// An extent, in file system blocks.
#[derive(Clone, Copy, Debug, Serialize)]
struct ExtentBlocks {
    file_block: u64,
    device_block: u64,
    blocks: u64,
    unwritten: bool,
}

impl Show for Arguments {
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()> {
        let mut files = Vec::new();
        for (name, inode) in image.find_files(&self.files, FinalSymlink::Follow) {
            match extents(image, &inode) {
                Ok(extents) => files.push(File { name, size: inode.dinode().core.size.get(), extents }),
                Err(error) => image.messages.fail(Failure::at(&name, error)),
            }
        }
        let block_bytes = image.volume.geometry().block_size;
        if global.json {
            let document = json!({ "block_bytes": block_bytes, "files": files });
            return json::write("filefrag", image.messages.image(), document);
        }
        let mut out = Stdout::buffered();
        for file in &files {
            file.show(&mut out, block_bytes, global.verbose)?;
        }
        Ok(out.flush()?)
    }
}

fn extents(image: &Image, inode: &Inode) -> Result<Vec<ExtentBlocks>, read::Error> {
    let geometry = image.volume.geometry();
    let in_blocks = |extent: Extent| ExtentBlocks {
        file_block: extent.offset.get(),
        // The walk has verified that extents are within the volume.
        device_block: geometry.fs_block_offset(extent.start).unwrap_or(0) >> geometry.block_log,
        blocks: extent.count,
        unwritten: extent.unwritten,
    };
    let walk = ExtentWalk::new(&image.volume, &inode.dinode(), ForkKind::Data, 0.into())?;
    walk.map(|extent| extent.map(in_blocks)).collect()
}

impl File {
    /// Adjacent extents count as one: a record holds at most 2^21 blocks.
    fn count(&self) -> usize {
        let is_adjacent = |pair: &&[ExtentBlocks]| match pair {
            [left, right] => left.device_block + left.blocks == right.device_block,
            _ => false,
        };
        self.extents.len() - self.extents.windows(2).filter(is_adjacent).count()
    }

    fn show(&self, out: &mut impl io::Write, block_bytes: u32, verbose: bool) -> io::Result<()> {
        let name = names::quoted(&self.name);
        let found = counted(self.count() as u64, "extent");
        if !verbose {
            return writeln!(out, "{name}: {found} found");
        }
        let blocks = counted(self.size.div_ceil(block_bytes.into()), "block");
        writeln!(out, "File size of {name} is {} ({blocks} of {block_bytes} bytes)", self.size)?;
        writeln!(out, " ext:     logical_offset:        physical_offset: length: flags:")?;
        for (n, extent) in self.extents.iter().enumerate() {
            let ExtentBlocks { file_block, device_block, blocks, unwritten } = *extent;
            let (last, device_last) = (file_block + blocks - 1, device_block + blocks - 1);
            let mut flags = Vec::new();
            if n + 1 == self.extents.len() {
                flags.push("last");
            }
            if unwritten {
                flags.push("unwritten");
            }
            if (last + 1) * u64::from(block_bytes) >= self.size {
                flags.push("eof");
            }
            let flags = flags.join(",");
            writeln!(
                out,
                "{n:4}: {file_block:8}..{last:8}: {device_block:10}..{device_last:10}: {blocks:6}: {flags}"
            )?;
        }
        writeln!(out, "{name}: {found} found")
    }
}

//! `xebec clone`: another image with the same files, and a UUID of its own.
//!
//! The copy is made under a name that begins with a dot, and gets its own name when it is complete.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use rustix::fs::{FlockOperation, SeekFrom, flock, ioctl_ficlone, seek};
use serde::Serialize;
use xebec::identity::set_uuid;

use super::identity::generate;
use crate::args::Global;
use crate::commands::edit::DONE;
use crate::open::{self, ForChanges};
use crate::output::{JSON_VERSION, write_json};

/// Arguments of `clone`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Both can be mounted at the same time. Where the host's file system can, the copy shares its blocks \
    with the source and is made at once (XFS, Btrfs); else what the source holds is copied, and its holes stay holes. \
    A dirty log is replayed in the copy; the source is only read.\n\n\
    Examples:\n  \
    xebec clone base.xfs machine-1.xfs\n  \
    xebec clone --same-uuid disk.xfs backup.xfs\n\n\
    Exit codes: 0 done; 1 it failed, and there is no copy; 2 wrong usage."
)]
pub struct Clone {
    /// The image to copy: a file.
    pub image: PathBuf,
    /// The new file.
    pub copy: PathBuf,
    /// Overwrite a file that exists.
    #[arg(short, long)]
    pub force: bool,
    /// Keep the UUID: Linux then mounts only one of them at a time, or with nouuid.
    #[arg(long)]
    pub same_uuid: bool,
}

/// What was done, in the order of docs/json.md.
#[derive(Debug, Serialize)]
struct Document {
    version: u32,
    command: &'static str,
    image: String,
    copy: String,
    uuid: String,
    /// The copy shares blocks with the source on this machine.
    shared: bool,
    bytes: u64,
    file_bytes: u64,
}

/// A file that goes again unless it is complete.
struct Unfinished {
    path: PathBuf,
    keep: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.keep {
            // Nobody can be told.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Runs `clone`.
pub fn run(arguments: &Clone, global: &Global) -> anyhow::Result<u8> {
    let source = File::open(&arguments.image)?;
    let metadata = source.metadata()?;
    if !metadata.is_file() {
        bail!("only image files can be cloned (copy a device with `dd conv=sparse`, then see `xebec uuid`)");
    }
    let named = |path: &Path| path.display().to_string();
    if arguments.copy.symlink_metadata().is_ok() && !arguments.force {
        bail!("{} exists already (--force overwrites it)", named(&arguments.copy));
    }
    flock(&source, FlockOperation::NonBlockingLockShared).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => anyhow::anyhow!("somebody is writing to it: try again later"),
        error => io::Error::from(error).into(),
    })?;
    let mut unfinished = Unfinished { path: beside(&arguments.copy)?, keep: false };
    let what = || format!("{}: it cannot be written", named(&unfinished.path));
    let target = OpenOptions::new().write(true).create_new(true).open(&unfinished.path).with_context(what)?;
    let shared = ioctl_ficlone(&target, &source).is_ok();
    if !shared {
        copy_data(&source, &target, metadata.len()).with_context(what)?;
    }
    target.set_permissions(metadata.permissions()).with_context(what)?;
    target.sync_all().with_context(what)?;
    drop(target);
    let path = unfinished.path.clone();
    if !arguments.same_uuid {
        let ForChanges { device, options, .. } = open::for_changes(&path, global)?;
        set_uuid(&device, &options, generate()?)?;
    }
    let raw = open::superblock(&open::device(&path, global)?)?.raw;
    std::fs::rename(&path, &arguments.copy).with_context(|| named(&arguments.copy))?;
    unfinished.keep = true;
    if global.json {
        let copied = std::fs::metadata(&arguments.copy)?;
        write_json(&Document {
            version: JSON_VERSION,
            command: "clone",
            image: named(&arguments.image),
            copy: named(&arguments.copy),
            uuid: raw.uuid_text().to_string(),
            shared,
            bytes: copied.len(),
            file_bytes: copied.blocks() * 512,
        })?;
    }
    Ok(DONE)
}

/// A name beside the copy's, which nobody takes for a finished one.
fn beside(copy: &Path) -> anyhow::Result<PathBuf> {
    let Some(name) = copy.file_name() else { bail!("{}: this is no name for a file", copy.display()) };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.unfinished", std::process::id()));
    Ok(copy.with_file_name(hidden))
}

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Copies what the source holds, and leaves holes as they are.
fn copy_data(source: &File, target: &File, length: u64) -> io::Result<()> {
    target.set_len(length)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        // Behind the last data there is a hole up to the end; a file system that knows no holes has data everywhere.
        at = match seek(source, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(_) => at,
        };
        let end = seek(source, SeekFrom::Hole(at)).unwrap_or(length).min(length);
        while at < end {
            let wanted = (end - at).min(PIECE as u64) as usize;
            let Some(bytes) = piece.get_mut(..wanted) else { return Ok(()) };
            source.read_exact_at(bytes, at)?;
            // Zeros that the source has written down need not be.
            if bytes.iter().any(|byte| *byte != 0) {
                target.write_all_at(bytes, at)?;
            }
            at += wanted as u64;
        }
    }
    Ok(())
}

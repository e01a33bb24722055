//! `xebec clone`: another image with the same files, and a UUID of its own.
//!
//! The copy gets its name when it is complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use block::{Device as _, Durability, FileDevice, NewFile, OpenOptions};
use clap::Args;
use format::uuid::UuidText;
use rustix::fs::{FlockOperation, Mode, SeekFrom, fchmod, flock, ioctl_ficlone, seek};
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

/// Runs `clone`.
pub fn run(arguments: &Clone, global: &Global) -> anyhow::Result<u8> {
    let source = File::open(&arguments.image)?;
    let metadata = source.metadata()?;
    if !metadata.is_file() {
        bail!("only image files can be cloned (copy a device with `dd conv=sparse`, then see `xebec uuid`)");
    }
    if arguments.copy.symlink_metadata().is_ok() && !arguments.force {
        bail!("{} exists already (--force overwrites it)", arguments.copy.display());
    }
    flock(&source, FlockOperation::NonBlockingLockShared).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => anyhow::anyhow!("somebody is writing to it: try again later"),
        error => io::Error::from(error).into(),
    })?;
    let options = OpenOptions { writable: true, ..OpenOptions::default() };
    let make = if arguments.force { NewFile::replacing } else { NewFile::create };
    let new = make(&arguments.copy, metadata.len(), &options)?;
    let what = || format!("{}: it cannot be written", arguments.copy.display());
    let shared = ioctl_ficlone(new.device(), &source).is_ok();
    if !shared {
        copy_data(&source, new.device(), metadata.len()).with_context(what)?;
    }
    fchmod(new.device(), Mode::from_raw_mode(metadata.mode())).with_context(what)?;
    let uuid = match arguments.same_uuid {
        true => open::superblock(&open::device(&arguments.image, global)?)?.raw.uuid,
        false => {
            let ForChanges { device, options, .. } = open::new_for_changes(&new, &arguments.copy, global)?;
            set_uuid(&device, &options, generate()?)?.uuid
        }
    };
    new.publish()?;
    if global.json {
        let copied = std::fs::metadata(&arguments.copy)?;
        write_json(&Document {
            version: JSON_VERSION,
            command: "clone",
            image: arguments.image.display().to_string(),
            copy: arguments.copy.display().to_string(),
            uuid: UuidText(uuid).to_string(),
            shared,
            bytes: copied.len(),
            file_bytes: copied.blocks() * 512,
        })?;
    }
    Ok(DONE)
}

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Copies what the source holds, and leaves holes as they are.
fn copy_data(source: &File, target: &FileDevice, length: u64) -> anyhow::Result<()> {
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
                target.write_at(at, bytes, Durability::Buffered)?;
            }
            at += wanted as u64;
        }
    }
    Ok(())
}

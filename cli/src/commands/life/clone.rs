//! `xebec clone`: another image with the same files, and a UUID of its own.
//!
//! The copy gets its name when it is complete.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use block::{Device, Durability, FileDevice, NewFile, OpenOptions, Replaced, Share, open_locked};
use clap::Args;
use format::uuid::UuidText;
use rustix::fs::{Mode, SeekFrom, fchmod, ioctl_ficlone, seek};
use serde::Serialize;
use xebec::identity::set_uuid;
use xebec::image::{LogStatus, superblock};

use super::identity::generate;
use crate::args::Global;
use crate::commands::edit::DONE;
use crate::json;
use crate::open::{self, ForChanges, unless_ending};

/// Arguments of `clone`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Both can be mounted at the same time. Where the host's file system can, the copy shares its blocks \
    with the source and is made at once (XFS, Btrfs); else what the source holds is copied, and its holes stay holes. \
    A dirty log is replayed in the copy (with --same-uuid --no-replay it stays as it is); the source is only read, and \
    nobody may write to it meanwhile.\n\n\
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

/// The JSON payload, in the order of docs/json.md.
#[derive(Debug, Serialize)]
struct Document {
    copy: String,
    uuid: String,
    /// The copy shares blocks with the source on this machine.
    shared: bool,
    bytes: u64,
    file_bytes: u64,
}

/// Runs `clone`.
pub fn run(arguments: &Clone, global: &Global) -> anyhow::Result<u8> {
    let Clone { image, copy, force, same_uuid } = arguments;
    let found = std::fs::metadata(image)?;
    if !found.is_file() {
        bail!("only image files can be cloned (copy a device with `dd conv=sparse`, then see `xebec uuid`)");
    }
    let wait = global.wait();
    let (source, new) = match copy.symlink_metadata() {
        Ok(_) if !force => bail!("{} exists already (--force overwrites it)", copy.display()),
        _ if is_one_file(&found, copy) => bail!("{} is the same file", copy.display()),
        _ => {
            let source = unless_ending(image, global, || open_locked(image, Share::Readers, wait))?;
            (source, new_file(arguments, found.len(), global)?)
        }
    };
    let metadata = source.metadata()?;
    new.device().set_size(metadata.len())?;
    let what = || format!("{}: it cannot be written", copy.display());
    let shared = ioctl_ficlone(new.device(), &source).is_ok();
    if !shared {
        copy_data(&source, new.device(), metadata.len()).with_context(what)?;
    }
    fchmod(new.device(), Mode::from_raw_mode(metadata.mode())).with_context(what)?;
    let uuid =
        if *same_uuid { settle(&new, arguments, global)? } else { change_uuid(&new, arguments, global)? };
    new.publish()?;
    if global.json {
        let copied = std::fs::metadata(copy)?;
        json::write(
            "clone",
            &image.display().to_string(),
            Document {
                copy: copy.display().to_string(),
                uuid: UuidText(uuid).to_string(),
                shared,
                bytes: copied.len(),
                file_bytes: copied.blocks() * 512,
            },
        )?;
    }
    Ok(DONE)
}

fn is_one_file(source: &Metadata, copy: &Path) -> bool {
    std::fs::metadata(copy).is_ok_and(|copy| (copy.dev(), copy.ino()) == (source.dev(), source.ino()))
}

/// What becomes the copy. What it replaces, nobody uses.
fn new_file(arguments: &Clone, size: u64, global: &Global) -> anyhow::Result<NewFile> {
    let copy = &arguments.copy;
    let options = OpenOptions { writable: true, ..OpenOptions::default() };
    if !arguments.force {
        return Ok(NewFile::create(copy, size, &options)?);
    }
    let replaced = unless_ending(copy, global, || Replaced::claim(copy, global.wait()))?;
    Ok(NewFile::replacing(&Arc::new(replaced), size, &options)?)
}

/// Gives the copy a UUID of its own, which it returns. A dirty log is replayed first.
fn change_uuid(new: &NewFile, arguments: &Clone, global: &Global) -> anyhow::Result<[u8; 16]> {
    expect_own_log(&open::device(&arguments.image, global)?.device)?;
    let ForChanges { device, options, .. } = open::new_for_changes(new, &arguments.copy, global)?;
    Ok(set_uuid(&device, &options, generate()?)?.uuid)
}

/// Replays the log in the copy where it is dirty, unless that is to stay as it is; the UUID that both have.
fn settle(new: &NewFile, arguments: &Clone, global: &Global) -> anyhow::Result<[u8; 16]> {
    let source = open::device(&arguments.image, global)?;
    let superblock = superblock(&source.device)?;
    if !global.no_replay {
        expect_own_log(&source.device)?;
        match source.log {
            LogStatus::Clean => {}
            LogStatus::Unreadable(error) => return Err(error.into()),
            _ => {
                let ForChanges { device, options, .. } = open::new_for_changes(new, &arguments.copy, global)?;
                xebec::Volume::open(device, options)?.unmount()?;
            }
        }
    }
    Ok(superblock.raw.uuid)
}

/// A log on another device belongs to one volume: replayed in the copy, it would be gone for the source.
fn expect_own_log(source: &Arc<dyn Device>) -> anyhow::Result<()> {
    match superblock(source)?.geometry.log_start {
        Some(_) => Ok(()),
        None => bail!("its log lies on another device, which no copy can share"),
    }
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

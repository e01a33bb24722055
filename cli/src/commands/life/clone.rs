//! `xebec clone`: copies an image and gives the copy a new UUID. It appears under its name when it is complete.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use block::{Device, Durability, FileDevice, LockMode, NewFile, OpenOptions, ReplacedFile, open_locked};
use clap::Args;
use format::uuid::UuidText;
use rustix::fs::{Mode, SeekFrom, fchmod, ioctl_ficlone, seek};
use serde_json::json;
use xebec::identity::set_uuid;
use xebec::image::{LogStatus, superblock};

use super::identity::generate;
use crate::args::Global;
use crate::json;
use crate::open::{self, ForChanges, retry_while_ending};
use crate::output::exit_code;

/// Arguments of `clone`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Both volumes can be mounted at the same time. If the host file system supports reflinks (XFS, \
    Btrfs), the copy shares the blocks of the source; otherwise data is copied and holes are preserved. A dirty \
    log is replayed in the copy, unless --same-uuid --no-replay is given. The source is not changed, and must not \
    be written to during the copy.\n\n\
    Examples:\n  \
    xebec clone base.xfs machine-1.xfs\n  \
    xebec clone --same-uuid disk.xfs backup.xfs\n\n\
    Exit codes: 0 success; 1 failure, no copy was created; 2 usage error."
)]
pub struct Clone {
    /// Image file to copy.
    pub image: PathBuf,
    /// New image file.
    pub copy: PathBuf,
    /// Overwrite an existing file.
    #[arg(short, long)]
    pub force: bool,
    /// Keep the UUID. Linux mounts only one of the two at a time, unless nouuid is given.
    #[arg(long)]
    pub same_uuid: bool,
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
        Ok(_) if !force => bail!("{} exists (--force overwrites it)", copy.display()),
        _ if is_one_file(&found, copy) => bail!("{} is the same file as the source", copy.display()),
        _ => {
            let source = retry_while_ending(image, global, || open_locked(image, LockMode::Shared, wait))?;
            (source, new_file(arguments, found.len(), global)?)
        }
    };
    let metadata = source.metadata()?;
    new.device().set_size(metadata.len())?;
    let what = || format!("cannot write {}", copy.display());
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
        // `shared`: the copy shares blocks with the source on the host.
        let document = json!({
            "copy": copy.display().to_string(),
            "uuid": UuidText(uuid).to_string(),
            "shared": shared,
            "bytes": copied.len(),
            "file_bytes": copied.blocks() * 512,
        });
        json::write("clone", &image.display().to_string(), document)?;
    }
    Ok(exit_code::OK)
}

fn is_one_file(source: &Metadata, copy: &Path) -> bool {
    std::fs::metadata(copy).is_ok_and(|copy| (copy.dev(), copy.ino()) == (source.dev(), source.ino()))
}

/// Creates the temporary file of the copy, after locking a file that it replaces.
fn new_file(arguments: &Clone, size: u64, global: &Global) -> anyhow::Result<NewFile> {
    let copy = &arguments.copy;
    let options = OpenOptions { writable: true, ..OpenOptions::default() };
    if !arguments.force {
        return Ok(NewFile::create(copy, size, &options)?);
    }
    let replaced = retry_while_ending(copy, global, || ReplacedFile::lock(copy, global.wait()))?;
    Ok(NewFile::replacing(&Arc::new(replaced), size, &options)?)
}

/// Sets a new UUID in the copy and returns it. A dirty log is replayed first.
fn change_uuid(new: &NewFile, arguments: &Clone, global: &Global) -> anyhow::Result<[u8; 16]> {
    expect_own_log(&open::device(&arguments.image, global)?.device)?;
    let ForChanges { device, options, .. } = open::new_for_changes(new, &arguments.copy, global)?;
    Ok(set_uuid(&device, &options, generate()?)?.uuid)
}

/// Replays a dirty log in the copy, unless `--no-replay` is given, and returns the UUID.
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

/// An external log belongs to one volume: replaying it in the copy would clear it for the source.
fn expect_own_log(source: &Arc<dyn Device>) -> anyhow::Result<()> {
    match superblock(source)?.geometry.log_start {
        Some(_) => Ok(()),
        None => bail!("the volume has an external log, which a copy cannot share"),
    }
}

/// Size of a copy, in bytes.
const PIECE: usize = 1 << 20;

/// Copies data and preserves holes.
fn copy_data(source: &File, target: &FileDevice, length: u64) -> anyhow::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        // After the last data there is a hole up to the end; on a file system without holes, all is data.
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
            // Zeros in the source become holes.
            if bytes.iter().any(|byte| *byte != 0) {
                target.write_at(at, bytes, Durability::Buffered)?;
            }
            at += wanted as u64;
        }
    }
    Ok(())
}

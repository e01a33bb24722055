//! `xebec clone`: copies an image, or makes a volume that shares the data of another one, and gives the copy a new
//! UUID. It appears under its name when it is complete.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use format::uuid::UuidText;
use remote::RemoteUrl;
use serde_json::json;
use xebec::device::Device;
use xebec::identity::{NewUuid, set_uuid};
use xebec::image::{self, OpenedImage};
use xebec::{Access, CloneError, ImageClone};

use crate::args::Global;
use crate::commands::mkfs::wrong;
use crate::commands::remote::complete;
use crate::json;
use crate::open;
use crate::output::exit_code;
use crate::urls::shown;

/// Arguments of `clone`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Both volumes can be mounted at the same time. If the host file system supports reflinks (XFS, \
    Btrfs), the copy shares the blocks of the source; otherwise data is copied and holes are preserved. A dirty \
    log is replayed in the copy, unless --same-uuid --no-replay is given. The source is not changed, and must not \
    be written to during the copy.\n\n\
    If both are URLs of object storage, the copy shares the objects of the source, and takes no space at first. Both \
    must be in the same bucket, or in the same directory; the source may be a snapshot (URL@NAME), or in use: then the \
    copy has what was synced. In a Ceph cluster, the source must be a snapshot in the same pool. Between files and \
    URLs, use push and pull.\n\n\
    Examples:\n  \
    xebec clone base.xfs machine-1.xfs\n  \
    xebec clone --same-uuid disk.xfs backup.xfs\n  \
    xebec clone s3://bucket/base s3://bucket/machine-1\n\n\
    Exit codes: 0 success; 1 failure, no copy was created; 2 usage error."
)]
pub struct Clone {
    /// Image file, or URL of a volume or snapshot, to copy.
    pub image: PathBuf,
    /// New image file, or URL of a new volume.
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
    match (RemoteUrl::new(image), RemoteUrl::new(copy)) {
        (Some(source), Some(url)) => return clone_volume(&source, &url, arguments, global),
        (None, None) => {}
        (Some(url), None) | (None, Some(url)) => {
            return Err(wrong(format!(
                "{url}: a file and a volume that a URL names cannot share data: copy with pull or push, then give the \
                 copy another UUID with `xebec uuid`"
            )));
        }
    }
    let cloned = ImageClone::new(image, copy)
        .overwrite(*force)
        .same_uuid(*same_uuid)
        .options(open::options(Access::ReadWrite, global))
        .notice(|path, notice| open::print_notice(path, notice, global))
        .create()
        .map_err(failure)?;
    if global.json {
        // `shared`: the copy shares blocks with the source on the host.
        let document = json!({
            "copy": copy.display().to_string(),
            "uuid": UuidText(cloned.uuid).to_string(),
            "shared": cloned.shares_blocks,
            "bytes": cloned.size,
            "file_bytes": std::fs::metadata(copy)?.blocks() * 512,
        });
        json::write("clone", &image.display().to_string(), document)?;
    }
    Ok(exit_code::OK)
}

fn failure(error: CloneError) -> anyhow::Error {
    match error {
        CloneError::NotAFile => anyhow!(
            "only image files can be cloned (copy a device with `dd conv=sparse`, then see `xebec uuid`)"
        ),
        CloneError::Exists(copy) => anyhow!("{} exists (--force overwrites it)", copy.display()),
        error => error.into(),
    }
}

/// Makes a volume that shares the data of another one.
fn clone_volume(
    source: &RemoteUrl<'_>,
    url: &RemoteUrl<'_>,
    arguments: &Clone,
    global: &Global,
) -> anyhow::Result<u8> {
    if arguments.force {
        return Err(wrong(format!("--force: {url} is not replaced")));
    }
    let new = source.begin_clone(url, &global.remote(true))?;
    let size = new.device().size();
    let changed = change_copy(new.device(), arguments.same_uuid, global);
    let uuid = complete(new, changed)?;
    if global.json {
        let document = json!({
            "copy": shown(&arguments.copy),
            "uuid": UuidText(uuid).to_string(),
            "shared": true,
            "bytes": size,
        });
        json::write("clone", &shown(&arguments.image), document)?;
    }
    Ok(exit_code::OK)
}

/// Replays the log of a copy, and gives it a new UUID. Returns its UUID.
fn change_copy(device: Arc<dyn Device>, same_uuid: bool, global: &Global) -> anyhow::Result<[u8; 16]> {
    let access = if same_uuid && global.no_replay { Access::ReadOnly } else { Access::ReadWrite };
    let opened = image::open_image_on(device, &open::options(access, global))?;
    let superblock = image::superblock(&opened.device)?;
    if superblock.geometry.log_start.is_none() {
        return Err(CloneError::ExternalLog.into());
    }
    if same_uuid {
        if access == Access::ReadWrite {
            opened.open_volume(open::volume_options())?.unmount()?;
        }
        return Ok(superblock.raw.uuid);
    }
    let OpenedImage { device, log_device, .. } = opened;
    let options = xebec::Options { log_device, ..open::volume_options() };
    Ok(set_uuid(&device, &options, NewUuid::Random)?.uuid)
}

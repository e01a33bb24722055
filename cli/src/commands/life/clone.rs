//! `xebec clone`: copies an image and gives the copy a new UUID. It appears under its name when it is complete.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use format::uuid::UuidText;
use serde_json::json;
use xebec::{Access, CloneError, ImageClone};

use crate::args::Global;
use crate::json;
use crate::open;
use crate::output::exit_code;
use crate::urls::expect_file;

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
    [image, copy].into_iter().try_for_each(|path| expect_file(path, "clone copies"))?;
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

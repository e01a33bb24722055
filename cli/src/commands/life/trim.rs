//! `xebec trim`: discards free space.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::args::Global;
use crate::commands::edit::unmount;
use crate::json;
use crate::open;
use crate::output::{Stdout, counted, exit_code};
use crate::sizes::{self, with_unit};
use crate::urls::shown;

/// Arguments of `trim`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Like fstrim on a mounted volume: punches holes in an image file, or discards blocks of a device, \
    where the volume has free space. A dirty log is replayed first.\n\n\
    Examples:\n  \
    xebec trim disk.xfs\n  \
    xebec trim --minimum 1m disk.xfs\n  \
    xebec trim --json disk.xfs | jq .file_bytes_after\n\n\
    Exit codes: 0 success; 1 failure; 2 usage error."
)]
pub struct Trim {
    /// The image.
    pub image: PathBuf,
    /// Minimum length of free extents to discard; suffixes k, m, g.
    #[arg(short, long, value_name = "BYTES", default_value = "0", value_parser = sizes::parse)]
    pub minimum: u64,
}

/// Runs `trim`.
pub fn run(arguments: &Trim, global: &Global) -> anyhow::Result<u8> {
    let before = allocated(&arguments.image);
    let opened = open::writable(&arguments.image, global)?;
    let done = opened.volume.trim(arguments.minimum);
    unmount(opened.volume)?;
    let done = done?;
    let after = allocated(&arguments.image);
    if global.json {
        // The size of the file on the host is not for block devices.
        let document = json!({
            "free_bytes": done.free_bytes,
            "free_extents": done.free_extents,
            "trimmed_bytes": done.discarded_bytes,
            "short_extents": done.short_extents,
            "file_bytes_before": before,
            "file_bytes_after": after,
        });
        let image = shown(&arguments.image);
        json::write("trim", &image, json::without_nulls(document))?;
        return Ok(exit_code::OK);
    }
    if global.verbose {
        let mut out = Stdout::buffered();
        write!(out, "{} free in {}", with_unit(done.free_bytes), counted(done.free_extents, "extent"))?;
        match before.zip(after) {
            Some((before, after)) => {
                writeln!(out, "; the file takes {} -> {}", with_unit(before), with_unit(after))?
            }
            None => writeln!(out, " discarded")?,
        }
        out.flush()?;
    }
    if done.discarded_bytes < done.free_bytes && after.is_some() {
        opened.messages.note(match done.discarded_bytes {
            0 => {
                "nothing was freed: the host file system does not support holes, or no free extent covers a \
            cluster of the image"
            }
            _ => "some free space stays allocated: it shares clusters of the image with data",
        });
    }
    Ok(exit_code::OK)
}

/// Bytes allocated to a file on the host.
fn allocated(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.blocks() * 512)
}

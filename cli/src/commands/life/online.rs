//! `xebec grow` of a mounted volume: a request to the server of the mount.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use rustix::fs::XattrFlags;
use xebec::errno;
use xebec::resize::NewSize;

use super::size::{Resize, why_not};
use crate::args::Global;
use crate::commands::mount::status::{self, Document};
use crate::output::{Messages, exit_code};
use crate::sizes::with_unit;

/// Grows the volume mounted on a directory.
pub fn grow(directory: &Path, size: NewSize, global: &Global) -> anyhow::Result<u8> {
    let messages = Messages::new(global, directory.display().to_string());
    let before = now(directory)?;
    let block = before.block_size;
    let wanted = size.of(before.bytes, before.device_bytes.max(before.bytes));
    let blocks = (wanted / u64::from(block)).to_string();
    let name = std::str::from_utf8(fuse::volume_operations::GROW).context("the attribute's name")?;
    let requested = rustix::fs::setxattr(directory, name, blocks.as_bytes(), XattrFlags::empty());
    requested.map_err(|error| refused(error, wanted, &before))?;
    let after = now(directory)?;
    if after.bytes == before.bytes {
        messages.note("no room to grow: nothing was changed");
    }
    let blocks = |known: &Document| known.bytes / u64::from(block);
    let done = Resize {
        command: "grow",
        image: directory,
        device_bytes: after.device_bytes,
        block,
        ag_count: after.ag_count,
        before: blocks(&before),
        after: blocks(&after),
        end: None,
    };
    done.print(global)?;
    Ok(exit_code::OK)
}

fn now(directory: &Path) -> anyhow::Result<Document> {
    Ok(status::query(directory)?.1)
}

fn refused(error: rustix::io::Errno, wanted: u64, before: &Document) -> anyhow::Error {
    match errno::Errno::new(error.raw_os_error()) {
        errno::EPERM | errno::EACCES => {
            anyhow!("only the user who mounted it and root may grow it")
        }
        errno::EROFS => anyhow!("the volume is mounted read-only: unmount it and use `xebec grow IMAGE`"),
        errno::EFBIG => anyhow!(
            "{} is more than 64 times the size of the mounted volume, or more than the format supports: unmount \
            it, use `xebec grow IMAGE` and mount it again",
            with_unit(wanted)
        ),
        number => {
            let error = std::io::Error::from_raw_os_error(number.get()).into();
            why_not(error, number, wanted, before.bytes, before.device_bytes)
        }
    }
}

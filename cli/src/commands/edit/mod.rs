//! Commands that change a volume: one per process, or many in a session.
//!
//! | part | commands |
//! |---|---|
//! | `make` | `mkdir`, `touch`, `mknod`, `ln` |
//! | `rename` | `mv` |
//! | `remove` | `rm`, `rmdir` |
//! | `change` | `chmod`, `chown` |
//! | `contents` | `write`, `truncate`, `fallocate`, `reflink` |
//! | `copy` | `cp` |
//! | `tar_in` | `tar-in` |
//! | `xattr` | `setfattr` |
//! | `setfacl` | `setfacl` |
//! | `settings` | `chattr`, `project`, `extsize`, `cowextsize` |
//! | `mode` | octal and symbolic modes of `chmod` |
//! | `shell` | `sh` |
//! | `replay` | `replay` |
//!
//! # Invariants
//! Each command is a type with its arguments and [`Edit::perform`], for the command line and for `sh`. The image is
//! locked while it is open, and cleanly unmounted at the end, also after an error.

mod change;
mod contents;
pub mod copy;
mod make;
pub mod mode;
mod remove;
mod rename;
pub mod replay;
mod setfacl;
mod settings;
pub mod shell;
mod tar_in;
mod xattr;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Context as _;
use clap::Args;
use format::inode::FileType;
use xebec::{Cookie, FileId, Metadata, NewFile, Volume};

pub use change::{Chmod, Chown};
pub use contents::{Fallocate, Reflink, Truncate, Write};
pub use copy::{Copy, Cp};
pub use make::{Ln, Mkdir, Mknod, Touch};
pub use remove::{Rm, Rmdir};
pub use rename::Mv;
pub use setfacl::Setfacl;
pub use settings::{Chattr, Cowextsize, Extsize, Project};
pub use tar_in::TarIn;
pub use xattr::Setfattr;

use crate::args::Global;
use crate::commands::WithImage;
use crate::failure::AtPath;
use crate::{open, operands};

/// A command that changes a volume.
pub trait Edit {
    /// Runs the command. Failures of single operands are passed to `report`, and the other operands are processed.
    ///
    /// # Errors
    /// Those that end the command.
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()>;

    /// Whether it reads standard input, from which a session reads its commands.
    fn reads_standard_input(&self) -> bool {
        false
    }
}

/// Runs one command on its image.
pub fn run<T: Edit + Args>(on: &WithImage<T>, global: &Global) -> anyhow::Result<u8> {
    let opened = open::writable(&on.image, global)?;
    let result = on.command.perform(&opened.volume, &mut |error| opened.messages.fail(&error));
    if let Err(error) = result {
        opened.messages.fail(&error);
    }
    let failed = opened.messages.finish();
    unmount(opened.volume)?;
    Ok(failed)
}

/// Unmounts a volume after changes.
pub fn unmount(volume: Volume) -> anyhow::Result<()> {
    volume.unmount().map_err(unmount_failed)
}

/// The message for a volume that could not be unmounted.
pub fn unmount_failed(error: xebec::Error) -> anyhow::Error {
    anyhow::Error::new(error).context("unmount failed: the last changes may be lost")
}

/// Creates a directory and its missing parents.
pub fn directories(volume: &Volume, path: &[u8]) -> anyhow::Result<FileId> {
    let new = NewFile { permissions: 0o755, ..NewFile::directory() };
    volume.create_dir_all(path, &new).with_context(|| AtPath(path.to_vec()))?;
    volume.resolve(path, true).with_context(|| AtPath(path.to_vec()))
}

/// Expands patterns in operands; failures are reported.
fn paths(volume: &Volume, operands: &[OsString], report: &mut dyn FnMut(anyhow::Error)) -> Vec<Vec<u8>> {
    operands::paths(volume, operands.iter().map(|operand| operand.as_bytes()), &mut |path, error| {
        report(error.context(AtPath(path.to_vec())));
    })
}

/// Operands as paths, without expanding patterns.
fn literal_paths(operands: &[OsString]) -> Vec<Vec<u8>> {
    operands.iter().map(|operand| operand.as_bytes().to_vec()).collect()
}

/// Expands patterns in operands and calls `act` for each path; failures are reported with the path.
fn for_each_file<E: Into<anyhow::Error>>(
    volume: &Volume,
    operands: &[OsString],
    report: &mut dyn FnMut(anyhow::Error),
    act: impl FnMut(&[u8]) -> Result<(), E>,
) {
    for_each_path(&paths(volume, operands, report), report, act);
}

/// Calls `act` for each path; failures are reported with the path.
fn for_each_path<E: Into<anyhow::Error>>(
    paths: &[Vec<u8>],
    report: &mut dyn FnMut(anyhow::Error),
    mut act: impl FnMut(&[u8]) -> Result<(), E>,
) {
    for path in paths {
        if let Err(error) = act(path) {
            report(error.into().context(AtPath(path.clone())));
        }
    }
}

/// Parent and name of a file to be created that is not a directory: no trailing slash.
fn parent_of_new<'p>(volume: &Volume, path: &'p [u8]) -> xebec::Result<(FileId, &'p [u8])> {
    if path.ends_with(b"/") {
        expect_directory(volume, volume.resolve(path, true)?)?;
    }
    volume.resolve_parent(path)
}

/// Parent and name of a file to be moved or removed: with a trailing slash, it must be a directory and not a link to
/// one.
fn parent_of_existing<'p>(volume: &Volume, path: &'p [u8]) -> xebec::Result<(FileId, &'p [u8])> {
    let (dir, name) = volume.resolve_parent(path)?;
    if path.ends_with(b"/") {
        expect_directory(volume, volume.lookup(dir, name)?)?;
    }
    Ok((dir, name))
}

/// Fails with `ENOTDIR` unless it is a directory.
fn expect_directory(volume: &Volume, id: FileId) -> xebec::Result<()> {
    volume.read_dir(id, Cookie::default(), &mut |_| false)
}

/// Adds the path to an error.
fn at_path(path: &[u8]) -> impl Fn(xebec::Error) -> anyhow::Error {
    move |error| anyhow::Error::new(error).context(AtPath(path.to_vec()))
}

/// Visits a file and, if `recursive`, everything below it.
fn visit_tree<E: From<xebec::Error>>(
    volume: &Volume,
    top: FileId,
    recursive: bool,
    visit: &mut dyn FnMut(FileId, &Metadata) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = Some(top);
    let mut remaining = Vec::new();
    while let Some(id) = next {
        let file = volume.metadata(id)?;
        visit(id, &file)?;
        if recursive && file.file_type == FileType::Directory {
            volume.read_dir(id, Cookie::default(), &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    remaining.push(entry.ino);
                }
                true
            })?;
        }
        next = remaining.pop().map(|ino| volume.id_of(ino)).transpose()?;
    }
    Ok(())
}

//! The commands that change a volume: one at a time, or many in one session.
//!
//! | part | commands |
//! |---|---|
//! | `make` | `mkdir`, `touch`, `mknod`, `ln` |
//! | `move_` | `mv` |
//! | `remove` | `rm`, `rmdir` |
//! | `change` | `chmod`, `chown` |
//! | `contents` | `write`, `truncate`, `fallocate`, `reflink` |
//! | `copy` | `cp` |
//! | `trees` | `tar-in` |
//! | `attributes` | `setfattr` |
//! | `setfacl` | `setfacl` |
//! | `settings` | `chattr`, `project`, `extsize`, `cowextsize` |
//! | `mode` | the modes of `chmod`, in numbers and in letters |
//! | `shell` | `sh`: many of them, from arguments or standard input |
//! | `replay` | a dirty log, in place |
//!
//! # Invariants
//! Each of these commands is one type with its arguments and [`Edit::perform`]: the command line and `sh` run the same.
//! The image is locked while it is open, and cleanly unmounted at the end, also after an error.

mod attributes;
mod change;
mod contents;
pub mod copy;
mod make;
pub mod mode;
mod move_;
mod remove;
pub mod replay;
mod setfacl;
mod settings;
pub mod shell;
mod trees;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Context as _;
use base::Ino;
use clap::Args;
use format::inode::FileType;
use xebec::{Cookie, Metadata, New, Volume};

pub use attributes::Setfattr;
pub use change::{Chmod, Chown};
pub use contents::{Fallocate, Reflink, Truncate, Write};
pub use copy::{Copy, Cp};
pub use make::{Ln, Mkdir, Mknod, Touch};
pub use move_::Mv;
pub use remove::{Rm, Rmdir};
pub use setfacl::Setfacl;
pub use settings::{Chattr, Cowextsize, Extsize, Project};
pub use trees::TarIn;

use crate::args::Global;
use crate::commands::On;
use crate::failure::At;
use crate::output::exit_code;
use crate::{open, operands};

/// A command that changes a volume.
pub trait Edit {
    /// Does it. What it could not do is told by `tell`, one message each; the rest is done all the same.
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error));

    /// Whether it reads standard input, from which a session reads its commands.
    fn reads_standard_input(&self) -> bool {
        false
    }
}

/// Runs one command on its image.
pub fn run<T: Edit + Args>(on: &On<T>, global: &Global) -> anyhow::Result<u8> {
    let opened = open::writable(&on.image, global)?;
    on.what.perform(&opened.volume, &mut |error| opened.messages.fail(&error));
    let failed = opened.messages.finish();
    opened.volume.unmount().context("the last changes may not be on the disk")?;
    Ok(failed)
}

/// A path of the command line, as the volume has it.
fn bytes(path: &OsStr) -> &[u8] {
    path.as_bytes()
}

/// A directory, made with those above it where they are missing.
pub fn directories(volume: &Volume, path: &[u8]) -> anyhow::Result<Ino> {
    let new = New { permissions: 0o755, ..New::directory() };
    volume.create_dir_all(path, &new).with_context(|| At(path.to_vec()))?;
    volume.resolve(path, true).with_context(|| At(path.to_vec()))
}

/// The paths that operands name, patterns expanded; what cannot be expanded is told.
fn paths(volume: &Volume, operands: &[OsString], tell: &mut dyn FnMut(anyhow::Error)) -> Vec<Vec<u8>> {
    operands::paths(volume, operands.iter().map(|operand| bytes(operand)), &mut |path, error| {
        tell(error.context(At(path.to_vec())));
    })
}

/// Does something to each file that operands name, patterns expanded; failures are told with the path.
fn each(
    volume: &Volume,
    operands: &[OsString],
    tell: &mut dyn FnMut(anyhow::Error),
    act: impl FnMut(&[u8]) -> xebec::Result<()>,
) {
    each_name(&paths(volume, operands, tell), tell, act);
}

/// The same with names of what may be made: they are taken as they are.
fn each_name<P: AsRef<[u8]>>(
    paths: &[P],
    tell: &mut dyn FnMut(anyhow::Error),
    mut act: impl FnMut(&[u8]) -> xebec::Result<()>,
) {
    for path in paths {
        if let Err(error) = act(path.as_ref()) {
            tell(at(path.as_ref())(error));
        }
    }
}

/// The names of what may be made.
fn names(operands: &[OsString]) -> Vec<Vec<u8>> {
    operands.iter().map(|name| bytes(name).to_vec()).collect()
}

/// Where a file that is no directory is made: its name has no slash behind it.
fn place<'p>(volume: &Volume, path: &'p [u8]) -> xebec::Result<(Ino, &'p [u8])> {
    if path.ends_with(b"/") {
        expect_directory(volume, volume.resolve(path, true)?)?;
    }
    volume.resolve_parent(path)
}

/// Where a file is that is moved or removed: with a slash behind its name it is a directory, and no link to one.
fn place_of_existing<'p>(volume: &Volume, path: &'p [u8]) -> xebec::Result<(Ino, &'p [u8])> {
    let (dir, name) = volume.resolve_parent(path)?;
    if path.ends_with(b"/") {
        expect_directory(volume, volume.lookup(dir, name)?)?;
    }
    Ok((dir, name))
}

/// `ENOTDIR` where it is none.
fn expect_directory(volume: &Volume, ino: Ino) -> xebec::Result<()> {
    volume.read_dir(ino, Cookie::default(), &mut |_| false)
}

/// An error that belongs to a path.
fn at(path: &[u8]) -> impl Fn(xebec::Error) -> anyhow::Error {
    move |error| anyhow::Error::new(error).context(At(path.to_vec()))
}

/// Visits a file, and if asked everything below it.
fn tree<E: From<xebec::Error>>(
    volume: &Volume,
    top: Ino,
    recursive: bool,
    visit: &mut dyn FnMut(Ino, &Metadata) -> Result<(), E>,
) -> Result<(), E> {
    let mut waiting = vec![top];
    while let Some(ino) = waiting.pop() {
        let file = volume.metadata(ino)?;
        visit(ino, &file)?;
        if recursive && file.file_type == FileType::Directory {
            volume.read_dir(ino, Cookie::default(), &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    waiting.push(entry.ino);
                }
                true
            })?;
        }
    }
    Ok(())
}

/// What a session's command returns.
pub(crate) const DONE: u8 = exit_code::OK;

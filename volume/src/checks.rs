//! Operations that inode flags and project IDs forbid, to every user.
//!
//! An immutable file cannot be changed: neither its metadata nor, in a directory, its entries. An append-only file or
//! directory can only grow. Both flags are checked when a file is opened for writing; an open file remains writable. A
//! directory with the flag `PROJINHERIT` accepts only files of its own project. All as in Linux. The flags themselves
//! and the project can always be changed.

use base::errno;
use format::inode::{FileType, flags};
use inode::state::InodeState;

use crate::{Error, Result};

const IMMUTABLE: Error = Error::refused(errno::EPERM, "immutable (chattr -i allows changes again)");
const APPEND_ONLY: Error =
    Error::refused(errno::EPERM, "may only be appended to (chattr -a allows other changes again)");

/// Refuses changes of an immutable file, or of the entries of an immutable directory.
pub(crate) fn expect_mutable(state: &InodeState) -> Result<()> {
    expect_mutable_flags(state.core().flags.get())
}

/// Refuses changes of a file with these flags if it is immutable.
pub(crate) fn expect_mutable_flags(flags: u16) -> Result<()> {
    if flags & flags::IMMUTABLE != 0 { Err(IMMUTABLE) } else { Ok(()) }
}

/// Refuses changes of an append-only file or directory other than appending.
pub(crate) fn expect_not_append_only(state: &InodeState) -> Result<()> {
    expect_not_append_only_flags(state.core().flags.get())
}

/// Refuses changes of a file with these flags other than appending if it is append-only.
pub(crate) fn expect_not_append_only_flags(flags: u16) -> Result<()> {
    if flags & flags::APPEND != 0 { Err(APPEND_ONLY) } else { Ok(()) }
}

/// Refuses changes other than appending of an immutable or append-only file or directory.
pub(crate) fn expect_changeable(state: &InodeState) -> Result<()> {
    expect_mutable(state)?;
    expect_not_append_only(state)
}

/// Refuses symbolic links in a directory with the flag `NOSYMLINKS`.
pub(crate) fn expect_symlinks_allowed(dir: &InodeState) -> Result<()> {
    if dir.core().flags.get() & flags::NOSYMLINKS != 0 {
        return Err(Error::refused(errno::EPERM, "the directory does not allow symbolic links"));
    }
    Ok(())
}

/// Refuses a file of another project in a directory with the flag `PROJINHERIT`. Special files without a project are
/// allowed.
pub(crate) fn expect_same_project(dir: &InodeState, file: &InodeState) -> Result<()> {
    let (dir_project, file_project) = (dir.dinode().project(), file.dinode().project());
    if dir.core().flags.get() & flags::PROJINHERIT == 0 || dir_project == file_project {
        return Ok(());
    }
    let is_special = !matches!(
        FileType::from_mode(file.mode()),
        Some(FileType::Regular | FileType::Directory | FileType::Symlink)
    );
    if is_special && file_project == 0 {
        return Ok(());
    }
    Err(Error::refused(errno::EXDEV, "the directory passes on its project ID, and the file has another one"))
}

//! What flags and projects of files forbid, to everybody.
//!
//! An immutable file cannot be changed: neither what is known of it nor, in a directory, what names there are. One that
//! may only be appended to gains, and loses nothing. Whoever has opened such a file for writing before goes on writing.
//! A directory whose project new files take over takes no others in. All of it as Linux has it; the project itself, and
//! the flags, can always be changed.

use base::errno;
use format::inode::{FileType, flags};
use inode::state::InodeState;

use crate::{Error, Result};

const IMMUTABLE: Error = Error::refused(errno::EPERM, "immutable (chattr -i allows changes again)");
const APPEND_ONLY: Error =
    Error::refused(errno::EPERM, "may only be appended to (chattr -a allows other changes again)");

/// Refuses any change of an immutable file, or of the names in an immutable directory.
pub(crate) fn expect_mutable(state: &InodeState) -> Result<()> {
    if state.core().flags.get() & flags::IMMUTABLE != 0 { Err(IMMUTABLE) } else { Ok(()) }
}

/// Refuses what does more than to add to a file, or to a directory, where only that is allowed.
pub(crate) fn expect_not_append_only(state: &InodeState) -> Result<()> {
    if state.core().flags.get() & flags::APPEND != 0 { Err(APPEND_ONLY) } else { Ok(()) }
}

/// Refuses what an immutable file, and one that may only be appended to, does not allow.
pub(crate) fn expect_changeable(state: &InodeState) -> Result<()> {
    expect_mutable(state)?;
    expect_not_append_only(state)
}

/// Refuses a symbolic link in a directory that wants none.
pub(crate) fn expect_symlinks(dir: &InodeState) -> Result<()> {
    if dir.core().flags.get() & flags::NOSYMLINKS != 0 {
        return Err(Error::refused(errno::EPERM, "the directory wants no symbolic links"));
    }
    Ok(())
}

/// Refuses a file of another project in a directory that hands its own down. Devices and such, as long as they have no
/// project, are let in.
pub(crate) fn expect_same_project(dir: &InodeState, file: &InodeState) -> Result<()> {
    let (wanted, has) = (dir.dinode().project(), file.dinode().project());
    if dir.core().flags.get() & flags::PROJINHERIT == 0 || wanted == has {
        return Ok(());
    }
    let ordinary = matches!(
        FileType::from_mode(file.mode()),
        Some(FileType::Regular | FileType::Directory | FileType::Symlink)
    );
    if !ordinary && has == 0 {
        return Ok(());
    }
    Err(Error::refused(errno::EXDEV, "the directory hands its project down, and the file has another"))
}

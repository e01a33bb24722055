//! Programs that are measured beside Xebec, and what is missing of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::bench_volume::{BenchVolume, layout};

/// Programs, and the Debian packages that have them.
const PACKAGES: &[(&str, &str)] = &[
    ("cc", "gcc"),
    ("find", "findutils"),
    ("fuse2fs", "fuse2fs"),
    ("git", "git"),
    ("make", "make"),
    ("mke2fs", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("tar", "tar"),
    ("unshare", "util-linux"),
    ("valgrind", "valgrind"),
    ("xfs_repair", "xfsprogs"),
];

/// Directories of programs of the administrator, which may not be in `PATH`.
const MORE: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Succeeds if all programs are installed; else says which one is not, and how to install it.
///
/// # Errors
/// One is not installed.
pub fn installed(programs: &[impl AsRef<Path>]) -> Result<(), String> {
    programs.iter().map(AsRef::as_ref).find(|program| !is_installed(program)).map_or(Ok(()), |program| {
        let name = program.display().to_string();
        let package =
            PACKAGES.iter().find(|(known, _)| *known == name).map_or(&*name, |(_, package)| package);
        Err(format!("{name} is not installed: apt-get install {package}"))
    })
}

fn is_installed(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An absolute path replaces the directory.
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A value of `PATH` that has the directories of the administrator's programs as well: what is found is what is run.
pub fn path(current: OsString) -> OsString {
    let mut folders: Vec<_> = std::env::split_paths(&current).collect();
    let more: Vec<_> = MORE.map(PathBuf::from).into_iter().filter(|more| !folders.contains(more)).collect();
    folders.extend(more);
    // It fails for a directory with a colon, which no list of directories has.
    std::env::join_paths(folders).unwrap_or(current)
}

/// Succeeds if the kernel can mount XFS for this user; else says why not. Tries it with an image in a directory.
///
/// # Errors
/// It cannot.
pub fn kernel(folder: &Path) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("mounts by the kernel need root".into());
    }
    let image = folder.join("probe.img");
    let mounted = BenchVolume::kernel(&image, &layout(512 << 20, 64 << 20)).and_then(BenchVolume::unmount);
    // An image that stays does no harm: the next probe replaces it, and a temporary directory is removed as a whole.
    let _ = std::fs::remove_file(image);
    mounted.context("the kernel's XFS").map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        assert_eq!(installed(&["sh", "/bin/sh"]), Ok(()));
        let error = installed(&["sh", "no-such-program"]).expect_err("it is missing");
        assert_eq!(error, "no-such-program is not installed: apt-get install no-such-program");
        assert_eq!(path("/usr/sbin:/bin".into()), "/usr/sbin:/bin:/sbin");
        assert!(PACKAGES.is_sorted(), "so that it is easy to read");
    }
}

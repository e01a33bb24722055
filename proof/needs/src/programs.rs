//! Programs that tests start.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::Access;

/// Debian packages by what they install. Other programs are in a package of their own name.
const PACKAGES: &[(&str, &[&str])] = &[
    ("xfsprogs", &["mkfs.xfs", "xfs_repair", "xfs_db", "xfs_io", "xfs_logprint", "xfs_admin"]),
    ("attr", &["setfattr", "getfattr"]),
    ("acl", &["setfacl", "getfacl"]),
    ("e2fsprogs", &["mkfs.ext4", "mke2fs", "chattr", "lsattr"]),
    ("dosfstools", &["mkfs.vfat"]),
    ("btrfs-progs", &["mkfs.btrfs"]),
    ("qemu-utils", &["qemu-img"]),
    ("fuse3", &["fusermount3"]),
    ("libcap2-bin", &["setcap"]),
    ("gcc", &["cc"]),
    ("postgresql", &["psql", "pg_ctlcluster", "pg_createcluster"]),
    ("xz-utils", &["xz"]),
    ("util-linux", &["losetup", "unshare", "setpriv", "fstrim"]),
    ("mount", &["mount", "umount"]),
];

/// Programs that `cargo install` installs.
const CRATES: &[&str] = &["fsx", "pjdfstest"];

/// Where programs for root are. The `PATH` of other users lacks them.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// `PATH`, and [`SYSTEM`] behind it.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    for folder in SYSTEM {
        path.push(":");
        path.push(folder);
    }
    path
}

/// Whether this process can execute the file.
fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

fn find_in(search_path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(search_path).map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn find(name: &str) -> Result<PathBuf, String> {
    find_in(&search_path(), name).ok_or_else(|| {
        let package = PACKAGES.iter().find(|(_, programs)| programs.contains(&name));
        let package = package.map_or(name, |(package, _)| package);
        let how = if CRATES.contains(&name) { "cargo install" } else { "apt install" };
        format!("{name} is not installed: run .ci/install, or {how} {package}")
    })
}

/// Which of the programs is not installed, if one is not.
///
/// # Errors
/// A sentence that names what is missing and the command that installs or enables it.
pub fn tools(names: &[&str]) -> Result<(), String> {
    names.iter().try_for_each(|name| find(name).map(drop))
}

/// Where a program is installed.
///
/// # Panics
/// If it is not: the test did not ask for it by [`tools`].
#[expect(clippy::panic, reason = "a test that does not ask for what it needs is wrong")]
pub fn path(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|why| panic!("{why} (the test does not ask for it: needs::tools)"))
}

/// Starts a program of this workspace.
pub fn own(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// Starts an installed program. Its `PATH` has programs for root, and `$XEBEC_JUDGES/bin` has the newer xfsprogs.
///
/// # Panics
/// As [`path`].
pub fn command(name: &str) -> Command {
    with_environment(&path(name))
}

fn with_environment(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path()).env("XEBEC_JUDGES", judges_root());
    command
}

/// Starts a `bash` script in a mount namespace of its own. `set` are options as of `set`, such as `-eu`; `name` is its
/// `$0`.
///
/// # Panics
/// Where [`super::mounting`] was not asked for.
pub fn script(set: &str, text: &str, name: &str) -> Command {
    let mut command = command("unshare");
    command.args(["--mount", "bash"]).args(set.split(' ')).args(["-c", text, name]);
    command
}

fn judges_root() -> OsString {
    std::env::var_os("XEBEC_JUDGES").unwrap_or_else(|| "/opt/xebec-judges".into())
}

/// The folder with the programs of the newer xfsprogs.
pub fn judges() -> PathBuf {
    Path::new(&judges_root()).join("bin")
}

/// Starts a program of the newer xfsprogs.
pub fn newer(name: &str) -> Command {
    with_environment(&judges().join(name))
}

/// Why the newer xfsprogs cannot be used, if it cannot.
///
/// # Errors
/// A sentence that names what is missing and the command that installs or enables it.
pub fn newer_xfsprogs() -> Result<(), String> {
    let repair = judges().join("xfs_repair");
    if is_program(&repair) {
        return Ok(());
    }
    Err(format!("the newer xfsprogs, {}, is not installed: run .ci/install", repair.display()))
}

/// A program of the newest xfsprogs that is installed.
///
/// # Errors
/// A sentence that names what is missing and the command that installs or enables it.
pub fn newest(name: &str) -> Result<Command, String> {
    let newer = judges().join(name);
    let program = if is_program(&newer) { newer } else { find(name)? };
    Ok(with_environment(&program))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_an_executable_file_is_a_program() {
        let folders = [(), (), ()].map(|()| tempfile::tempdir().unwrap());
        let [directory, text, program] = folders.each_ref().map(|folder| folder.path().join("tool"));
        fs::create_dir(&directory).unwrap();
        for (path, mode) in [(&text, 0o644), (&program, 0o755)] {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let search = std::env::join_paths(folders.iter().map(|folder| folder.path())).unwrap();
        assert_eq!(find_in(&search, "tool"), Some(program));
        assert_eq!(find_in(&search, "other"), None);
    }

    #[test]
    fn what_is_missing_is_said_with_its_package() {
        assert_eq!(tools(&[]), Ok(()));
        let why = tools(&["no-such-program"]).unwrap_err();
        assert_eq!(why, "no-such-program is not installed: run .ci/install, or apt install no-such-program");
    }

    /// A package that is named here and that `.ci/install` does not install belongs to every Debian.
    #[test]
    fn packages_are_installed_by_ci() {
        let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/install");
        let text = fs::read_to_string(install).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        let missing = |(package, _): &&(&str, &[&str])| !words.contains(package);
        let missing: Vec<&str> = PACKAGES.iter().filter(missing).map(|(package, _)| *package).collect();
        assert_eq!(missing, ["xz-utils"], "of these, only xz-utils is installed already");
    }
}

//! External programs of tests.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::Access;

/// Debian packages and their programs. Other programs are in a package of the same name.
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
    ("ceph-mon", &["ceph-mon"]),
    ("ceph-osd", &["ceph-osd"]),
    ("ceph-common", &["ceph", "rbd", "ceph-authtool", "monmaptool"]),
    ("postgresql", &["psql", "pg_ctlcluster", "pg_createcluster"]),
    ("xz-utils", &["xz"]),
    ("util-linux", &["losetup", "unshare", "setpriv", "fstrim"]),
    ("mount", &["mount", "umount"]),
];

/// Programs that `cargo install` installs.
const CRATES: &[&str] = &["fsx", "pjdfstest"];

/// Programs that `pip install` installs, and their packages.
const PYTHON: &[(&str, &str)] = &[("moto_server", "'moto[server]'")];

/// Folders of programs for root, which are not in the `PATH` of other users.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns `PATH` followed by [`SYSTEM`].
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    for folder in SYSTEM {
        path.push(":");
        path.push(folder);
    }
    path
}

/// Returns true if this process can execute the file.
fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

fn find_in(search_path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(search_path).map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn find(name: &str) -> Result<PathBuf, String> {
    find_in(&search_path(), name).ok_or_else(|| {
        let python = PYTHON.iter().find(|(program, _)| *program == name);
        let debian = PACKAGES.iter().find(|(_, programs)| programs.contains(&name));
        let how = match (python, debian) {
            (Some((_, package)), _) => format!("pip install {package}"),
            (None, Some((package, _))) => format!("apt install {package}"),
            (None, None) if CRATES.contains(&name) => format!("cargo install {name}"),
            (None, None) => format!("apt install {name}"),
        };
        format!("{name} is not installed: run .ci/install, or {how}")
    })
}

/// Checks that programs are installed.
///
/// # Errors
/// What is missing, and the command that installs or enables it.
pub fn tools(names: &[&str]) -> Result<(), String> {
    names.iter().try_for_each(|name| find(name).map(drop))
}

/// Returns the path of an installed program.
///
/// # Panics
/// Panics if it is not installed: the test did not check for it with [`tools`].
#[expect(clippy::panic, reason = "the test must check for the program first")]
pub fn path(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|why| panic!("{why} (the test does not check for it with needs::tools)"))
}

/// Starts a program of this workspace.
pub fn own(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// Starts an installed program. Its `PATH` includes programs for root; `$XEBEC_JUDGES/bin` has the newer xfsprogs.
///
/// # Panics
/// Panics if it is not installed.
pub fn command(name: &str) -> Command {
    with_environment(&path(name))
}

pub(crate) fn with_environment(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path()).env("XEBEC_JUDGES", judges_root());
    command
}

/// Starts a `bash` script in a new mount namespace. `set` has shell options such as `-eu`; `name` is its `$0`.
///
/// # Panics
/// Panics if `unshare` is not installed: the test did not check [`super::mounting`].
pub fn script(set: &str, text: &str, name: &str) -> Command {
    let mut command = command("unshare");
    command.args(["--mount", "bash"]).args(set.split(' ')).args(["-c", text, name]);
    command
}

/// Runs a program with a server of S3, which ends with it: the caller adds the program and its arguments. The program
/// finds keys of the server in its environment, and in `XEBEC_TEST_STORE` the URL of a volume that does not exist.
///
/// # Errors
/// What is missing, and the command that installs it.
pub fn s3() -> Result<Command, String> {
    tools(&["moto_server", "python3", "setpriv"])?;
    Ok(with_environment(&Path::new(env!("CARGO_MANIFEST_DIR")).join("s3")))
}

fn judges_root() -> OsString {
    std::env::var_os("XEBEC_JUDGES").unwrap_or_else(|| "/opt/xebec-judges".into())
}

/// Returns the folder of the newer xfsprogs.
pub fn judges() -> PathBuf {
    Path::new(&judges_root()).join("bin")
}

/// Starts a program of the newer xfsprogs.
pub fn newer(name: &str) -> Command {
    with_environment(&judges().join(name))
}

/// Checks that the newer xfsprogs is installed.
///
/// # Errors
/// What is missing, and the command that installs or enables it.
pub fn newer_xfsprogs() -> Result<(), String> {
    let repair = judges().join("xfs_repair");
    if is_program(&repair) {
        return Ok(());
    }
    Err(format!("the newer xfsprogs, {}, is not installed: run .ci/install", repair.display()))
}

/// Starts a program of the newest installed xfsprogs.
///
/// # Errors
/// What is missing, and the command that installs or enables it.
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
    fn only_executable_files_are_programs() {
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
    fn missing_programs_are_reported_with_their_package() {
        assert_eq!(tools(&[]), Ok(()));
        let why = tools(&["no-such-program"]).unwrap_err();
        assert_eq!(why, "no-such-program is not installed: run .ci/install, or apt install no-such-program");
    }

    /// `.ci/install` installs all packages listed here, except those that every Debian has.
    #[test]
    fn ci_installs_all_packages() {
        let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/install");
        let text = fs::read_to_string(install).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        let missing = |(package, _): &&(&str, &[&str])| !words.contains(package);
        let missing: Vec<&str> = PACKAGES.iter().filter(missing).map(|(package, _)| *package).collect();
        assert_eq!(missing, ["xz-utils"], "only xz-utils is preinstalled");
    }
}

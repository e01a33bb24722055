//! Commands that change a volume, on the clean and the dirty sample, verified by `check`.

use samples::Sample;

use crate::{Scene, stderr};

impl Scene {
    /// Asserts that `check` finds no errors.
    fn assert_clean(&self) {
        self.xebec("check", &[]).assert().success();
    }
}

#[test]
fn creates_changes_moves_and_removes_files() {
    let scene = Scene::new(Sample::Clean);
    let before = scene.output("ls", &["-R", "/"]);
    scene.xebec("mkdir", &["-p", "/new/deep/er"]).assert().success();
    scene.xebec("touch", &["-d", "@1000000000", "-m", "600", "/new/file"]).assert().success();
    scene.xebec("ln", &["/new/file", "/new/hard"]).assert().success();
    scene.xebec("ln", &["-s", "../new/file", "/new/deep/link"]).assert().success();
    scene.xebec("mknod", &["/new/null", "c", "1", "3"]).assert().success();
    scene.xebec("mv", &["/new/hard", "/new/null", "/new/deep"]).assert().success();
    scene.xebec("chmod", &["-R", "u=rwX,go=", "/new"]).assert().success();
    scene.xebec("chown", &["-R", "7:8", "/new"]).assert().success();
    scene.assert_clean();
    let listed = scene.output("ls", &["-lR", "--time-style=full-iso", "/new"]);
    assert!(listed.contains("-rw------- 2 7 8"), "{listed}");
    assert!(listed.contains("crw------- 1 7 8"), "{listed}");
    assert!(listed.contains("2001-09-09 01:46:40"), "{listed}");
    assert!(listed.contains("link -> ../new/file"), "{listed}");
    assert!(scene.xebec("rmdir", &["/new"]).assert().failure().get_output().stdout.is_empty());
    scene.xebec("rm", &["-r", "/new"]).assert().success();
    assert_eq!(scene.output("ls", &["-R", "/"]), before);
    scene.assert_clean();
}

#[test]
fn a_session_runs_all_lines_and_names_the_failed_one() {
    let scene = Scene::new(Sample::Clean);
    let lines = "mkdir /s # a comment\ntouch '/s/two words'\nrm /s/none\n\nls /s\nexit\nmkdir /never\n";
    let output = scene.xebec("sh", &[]).write_stdin(lines).assert().code(1).get_output().clone();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "two words\n");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("line 3") && message.contains("/s/none"), "{message}");
    assert!(!scene.output("ls", &["/"]).contains("never"));
    scene.xebec("sh", &["-c", "rm -r /s", "-c", "sync"]).assert().success();
    scene.assert_clean();
}

/// Commands that show files see changes that are not unmounted yet.
#[test]
fn a_session_shows_its_own_changes() {
    let scene = Scene::new(Sample::Dirty);
    let before = scene.output("ls", &["-l", "--time-style=+", "/"]);
    let lines = "ls -l --time-style=+ /\nmkdir -m 700 /s\nwrite --text hello /s/file\nln -s file /s/link\n\
        cat /s/link /s/file\nls -l --time-style=+ /s\nwrite --append --text more /s/file\ncat /s/file\n\
        setfacl -m u:7:r /s/file\ngetfacl -c /s/file\nsetfattr -n user.a -v b /s/file\ngetfattr -d /s/file\n\
        chattr +a /s/file\nlsattr /s/file\nrm /s/file\nchattr -a /s/file\nrm /s/file\nls /s\ncat /s/file\n\
        stat /s\nexit\n";
    let output = scene.xebec("sh", &[]).write_stdin(lines).assert().code(1).get_output().clone();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = format!(
        "{before}hello\nhello\ntotal 4\n-rw-r--r-- 1 root root 6  file\n\
        lrwxrwxrwx 1 root root 4  link -> file\nhello\nmore\n\
        user::rw-\nuser:7:r--\ngroup::r--\nmask::r--\nother::r--\n\n\
        # file: /s/file\nsystem.posix_acl_access=0s"
    );
    let rest = shown.strip_prefix(&expected).unwrap_or_else(|| panic!("{shown}"));
    assert!(rest.contains("user.a=\"b\"\n\n--a------ /s/file\nlink\n  File: /s\n"), "{rest}");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("line 15: /s/file") && message.contains("may only be appended to"), "{message}");
    assert_eq!(
        message.matches("no such file").count() + message.matches("does not exist").count(),
        1,
        "{message}"
    );
    scene.assert_clean();
}

#[test]
fn replay_in_place_gives_the_same_tree_as_in_memory() {
    let scene = Scene::new(Sample::Dirty);
    let shown = scene.output("ls", &["-lR", "--time-style=full-iso", "/"]);
    scene.xebec("replay", &[]).assert().success();
    assert!(scene.output("info", &[]).contains("clean"));
    assert_eq!(scene.output("ls", &["-lR", "--time-style=full-iso", "/"]), shown);
    scene.assert_clean();
    let again = stderr(&mut scene.xebec("replay", &["-v"]));
    assert!(again.contains("clean"), "{again}");
}

/// Regression: after a failed mount the volume was not unmounted, and the log stayed dirty.
#[test]
fn a_failed_mount_leaves_a_clean_log() {
    let Some(()) = needs::met(needs::tools(&["setpriv"])) else { return };
    let scene = Scene::new(Sample::Dirty);
    let directory = scene.beside("mnt");
    std::fs::create_dir(&directory).unwrap();
    // Mounting fails for root without this capability, and for others without fusermount3, which PATH hides.
    let mut mount = needs::command("setpriv");
    if rustix::process::geteuid().is_root() {
        mount.args(["--bounding-set", "-sys_admin"]);
    }
    mount.arg(env!("CARGO_BIN_EXE_xebec")).args(["mount", "--foreground"]);
    let output = mount.arg(scene.image()).arg(&directory).env("PATH", "").output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(scene.output("info", &[]).contains("clean"), "{message}");
    scene.assert_clean();
}

#[test]
fn each_failure_is_one_error_without_changes() {
    let scene = Scene::new(Sample::Clean);
    for (command, arguments) in [
        ("mkdir", &["/etc/none/dir"][..]),
        ("rm", &["/none"]),
        ("mv", &["/none", "/other"]),
        ("ln", &["/none", "/other"]),
        ("chmod", &["600", "/none"]),
    ] {
        let message = stderr(&mut scene.xebec(command, arguments));
        assert_eq!(message.lines().count(), 1, "{message}");
        assert_eq!(message.matches("no such file or directory").count(), 1, "{message}");
        scene.xebec(command, arguments).assert().code(1);
    }
    scene.xebec("chmod", &["rwx", "/"]).assert().code(2);
    scene.assert_clean();
}

#[test]
fn owners_are_resolved_in_the_image() {
    let scene = Scene::new(Sample::Clean);
    let owner = |path: &str| {
        let listed = scene.output("ls", &["-ld", "--time-style=+", path]);
        listed.split_whitespace().skip(2).take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    scene.xebec("chown", &["ada", "/etc/motd"]).assert().success();
    assert_eq!(owner("/etc/motd"), ["ada", "root"]);
    scene.xebec("chown", &["grace:ada", "/etc/motd"]).assert().success();
    assert_eq!(owner("/etc/motd"), ["grace", "ada"]);
    scene.xebec("chown", &["grace:", "/etc/motd"]).assert().success();
    assert_eq!(owner("/etc/motd"), ["grace", "grace"]);
    scene.xebec("chown", &[":root", "/etc/motd"]).assert().success();
    assert_eq!(owner("/etc/motd"), ["grace", "root"]);
    scene.xebec("mkdir", &["--uid", "ada", "--gid", "grace", "/new"]).assert().success();
    assert_eq!(owner("/new"), ["ada", "grace"]);
    scene.xebec("ln", &["-s", "--uid", "ada", "/x", "/link"]).assert().success();
    assert_eq!(owner("/link"), ["ada", "root"]);
    for (arguments, part) in [
        (&["nosuch", "/etc/motd"][..], "no user \"nosuch\" in /etc/passwd"),
        (&[":nosuch", "/etc/motd"], "no group \"nosuch\" in /etc/group"),
        (&["77:", "/etc/motd"], "no user 77"),
    ] {
        let message = stderr(&mut scene.xebec("chown", arguments));
        assert!(message.contains(part) && message.lines().count() == 1, "{message}");
    }
    let message = stderr(&mut scene.xebec("touch", &["--uid", "nosuch", "/never"]));
    assert!(message.contains("no user") && !scene.output("ls", &["/"]).contains("never"), "{message}");
    scene.assert_clean();
}

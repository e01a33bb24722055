//! Messages name the operand or the option that is wrong, and say what to do.

use std::os::unix::fs::PermissionsExt as _;

use samples::Sample;

use crate::{Scene, stderr, xebec};

impl Scene {
    /// Standard error of a failing command in the directory of the image.
    fn stderr_of(&self, line: &str) -> String {
        let mut command = xebec();
        command.args(line.split(' ')).current_dir(self.image().parent().unwrap());
        let output = command.output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{line}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Two images `img` and `other`, a file and a directory.
fn scene() -> Scene {
    let scene = Scene::new(Sample::Clean);
    std::fs::copy(scene.image(), scene.beside("other")).unwrap();
    std::fs::rename(scene.image(), scene.beside("img")).unwrap();
    std::fs::write(scene.beside("f"), "x").unwrap();
    std::fs::create_dir(scene.beside("dir")).unwrap();
    scene
}

#[test]
fn messages_name_the_operand_and_the_option() {
    let scene = scene();
    let none = "no such file or directory";
    for (line, parts) in [
        ("cp f img:/nodir/", &["f: img:/nodir/: no such directory in the volume", "mkdir -p"][..]),
        ("cp f img:/nodir/x", &["f: img:/nodir/x: no such directory in the volume"]),
        ("cp f img", &["no operand names a path in an image", "`xebec cp f img:/`"]),
        ("cp f f img", &["no operand names a path in an image", "`xebec cp f img:/`"]),
        ("cp f", &["no operand names a path in an image", "`xebec cp FILE IMAGE:/`"]),
        ("cp f none:/x", &["xebec: none: no such image"]),
        ("cp none img:/", &["xebec: none: ", none]),
        ("cp img:/none .", &["xebec: img:/none: ", none]),
        ("cp img:/etc/motd none/x", &["img:/etc/motd: none/x: no such directory"]),
        ("cp f f img:/etc/motd", &["xebec: img:/etc/motd: target is not a directory"]),
        ("cp f f img:/none", &["xebec: img:/none: no such directory"]),
        ("cp img:/etc f img:/", &["f: is not a path in img"]),
        ("cp f img:/etc other:/", &["img:/etc: cannot mix host files"]),
        ("cp dir img:/", &["xebec: dir: is a directory (-r not specified)"]),
        ("cp -T f f img:/home", &["xebec: img:/home: -T takes one source only"]),
        ("cp -t f img:/etc/motd", &["xebec: f: target is not a directory"]),
        ("cp img:/etc/motd img:/etc/motd", &["xebec: img:/etc/motd: is the same file as img:/etc/motd"]),
        ("cp --exclude [x f img:/", &["xebec: --exclude: `[x`: "]),
        ("cp --exclude [x f f img:/none", &["xebec: img:/none: no such directory\n"]),
        ("mv img /none /x", &["img: /none: ", none]),
        ("mv img /etc/motd /none/x", &["img: /none/x: ", none]),
        ("mv img -T /etc/motd /home", &["img: /etc/motd: cannot move to /home: "]),
        ("ln img /none /x", &["img: /none: ", none]),
        ("ln img /etc/motd /none/x", &["img: /none/x: ", none]),
        ("reflink img /none /x", &["img: /none: ", none]),
        ("reflink img /etc/motd /none/x", &["img: /none/x: ", none]),
        ("mkfs new --size 1k", &["--size (-d size): 1024 bytes", "16 MiB"]),
        ("mkfs new --size 10x", &["--size <BYTES>", "suffix"]),
        ("mkfs new --size 9e", &["new: cannot create: File too large"]),
        ("mkfs new", &["--size"]),
        ("mkfs none/new --size 64m", &["none/new: cannot create: no such directory"]),
        ("create new --size 1m --from dir", &["--size (-d size): 1048576 bytes", "16 MiB"]),
        ("sync none img", &["none: ", "No such file"]),
        ("ls f", &["f: this is a file in an unknown format, not an XFS file system", "--offset"]),
        ("project img x /etc", &["'x' for '<ID>'", "number"]),
    ] {
        let message = scene.stderr_of(line);
        for part in parts {
            assert!(message.contains(part), "{line}: {part:?} is not in {message:?}");
        }
        assert!(!message.contains("cannot write to standard output"), "{line}: {message}");
    }
    assert!(!scene.beside("new").exists());
}

/// The library checks operands and knows no options: exit codes and JSON are those of the command.
#[test]
fn cp_fails_with_one_and_has_errno_in_json() {
    let scene = scene();
    for (line, message) in [
        ("cp --exclude [x f img:/", "`[x`"),
        ("cp --json f none/x img:/etc/motd/x", r#"{"error":{"message":"img:/etc/motd/x: "#),
        ("cp --json img:/etc/motd none/x", r#""image":"img","path":"/etc/motd","errno":2}}"#),
        ("cp --json none img:/", r#"{"error":{"message":"none: no such file or directory","path":"none"}}"#),
    ] {
        let mut command = xebec();
        command.args(line.split(' ')).current_dir(scene.beside(""));
        let output = command.output().unwrap();
        let found = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(found.contains(message), "{line}: {found}");
    }
}

#[test]
fn cp_copies_between_images() {
    let scene = scene();
    let run = |line: &str| {
        let mut command = xebec();
        command.args(line.split(' ')).current_dir(scene.beside(""));
        String::from_utf8_lossy(&command.assert().success().get_output().stdout).into_owned()
    };
    run("rm -r other /etc /home");
    run("cp -a img:/etc img:/home other:/");
    let strip = |text: String| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    for path in ["/etc", "/home"] {
        let listed = |image: &str| strip(run(&format!("ls -lR --time-style=full-iso {image} {path}")));
        assert_eq!(listed("img"), listed("other"));
    }
    run("check other");
    // Links are resolved by their paths in the image, not by the paths in messages.
    run("cp -rL img:/home out");
    assert!(scene.beside("out/welcome").is_file());
    // Two paths of one image.
    run("cp ./img:/etc/motd img:/motd");
    assert_eq!(run("cat img /motd"), run("cat img /etc/motd"));
    run("check img");
}

#[test]
fn a_read_only_image_has_its_own_message() {
    let scene = scene();
    let image = scene.beside("img");
    let mut permissions = image.metadata().unwrap().permissions();
    permissions.set_mode(0o444);
    std::fs::set_permissions(&image, permissions).unwrap();
    // Root needs to drop its capability to write to any file.
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let Some(()) = needs::met(needs::tools(&["setpriv"])) else { return };
            let mut command = needs::command("setpriv");
            command.args(["--bounding-set", "-dac_override", "--inh-caps", "-all"]);
            command.arg(env!("CARGO_BIN_EXE_xebec"));
            command
        }
        false => needs::own(env!("CARGO_BIN_EXE_xebec")),
    };
    let output = command.arg("touch").arg(&image).arg("/x").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("can be read, but is to be changed") && message.contains("-o ro"), "{message}");
    assert_eq!(message.matches("Permission denied").count(), 1, "{message}");
}

#[test]
fn a_full_output_device_is_reported_once() {
    let scene = scene();
    let mut command = xebec();
    command.args(["ls", "-R", "img", "/"]).current_dir(scene.beside(""));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = needs::own(env!("CARGO_BIN_EXE_xebec"));
    child.args(["ls", "-R", "img", "/"]).current_dir(scene.beside("")).stdout(full);
    let output = child.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("cannot write to standard output: No space left") && message.lines().count() == 1,
        "{message}"
    );
    assert!(stderr(&mut command).is_empty());
}

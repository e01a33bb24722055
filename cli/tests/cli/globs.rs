//! Patterns in paths of an image, which all commands expand in the same way.

use std::fs;

use samples::Sample;

use crate::{Scene, stderr};

impl Scene {
    /// The clean sample with some files in `/g`.
    fn with_files() -> Self {
        let scene = Self::new(Sample::Clean);
        let make = "mkdir -p /g/logs/a /g/logs/b\nwrite --text one /g/logs/1.gz\nwrite --text two /g/logs/2.gz\n\
            write --text h /g/logs/.3.gz\nwrite --text a /g/logs/a/x\nwrite --text b /g/logs/b/x\n\
            write --text s '/g/st*r'\nwrite --text t /g/star\ntouch '/g/two words'\n";
        scene.xebec("sh", &["-e"]).write_stdin(make).assert().success();
        scene
    }
}

/// A shell cannot expand paths in an image.
#[test]
fn commands_that_show_files_expand_patterns() {
    let scene = Scene::with_files();
    assert_eq!(scene.output("ls", &["/g/logs/*.gz"]), "/g/logs/1.gz\n/g/logs/2.gz\n");
    assert_eq!(scene.output("ls", &["/g/logs/[ab]"]), "/g/logs/a:\nx\n\n/g/logs/b:\nx\n");
    assert_eq!(scene.output("cat", &["g/logs/?.gz"]), "one\ntwo\n");
    assert_eq!(scene.output("cat", &["/g/*/[!b]/x", "/g/logs/.*"]), "a\nh\n");
    assert_eq!(scene.output("stat", &["/g/logs/*/x"]).matches("File: /g/logs/").count(), 2);
    assert_eq!(scene.output("find", &["/g/logs/?", "-type", "f"]), "/g/logs/a/x\n/g/logs/b/x\n");
    assert_eq!(scene.output("lsattr", &["/g/logs/*.gz"]).lines().count(), 2);
    assert_eq!(scene.output("getfacl", &["-c", "/g/logs/*.gz"]).matches("user::").count(), 2);
    assert_eq!(scene.output("filefrag", &["/g/logs/*.gz"]).lines().count(), 2);
    assert!(scene.output("tree", &["/g/lo*"]).starts_with("/g/logs\n"));
    let files = scene.json("stat", &["/g/logs/*.gz"])["files"].as_array().unwrap().len();
    assert_eq!(files, 2);
}

#[test]
fn commands_that_change_files_expand_existing_names_only() {
    let scene = Scene::with_files();
    scene.xebec("chmod", &["600", "/g/logs/*.gz"]).assert().success();
    scene.xebec("chown", &["7:8", "/g/logs/?.gz"]).assert().success();
    scene.xebec("setfattr", &["-n", "user.a", "-v", "b", "/g/logs/*.gz"]).assert().success();
    scene.xebec("truncate", &["-c", "-s", "3", "/g/logs/*.gz"]).assert().success();
    scene.xebec("touch", &["-c", "-d", "@0", "/g/logs/*.gz", "/g/none*"]).assert().success();
    let listed = scene.output("ls", &["-l", "--time-style=+%s", "/g/logs/*.gz"]);
    assert_eq!(listed.matches("-rw------- 1 7 8 3 0 /g").count(), 2, "{listed}");
    scene.xebec("ln", &["/g/logs/*.gz", "/g/logs/a"]).assert().success();
    scene.xebec("mv", &["/g/logs/*.gz", "/g/logs/b"]).assert().success();
    assert_eq!(
        scene.output("ls", &["-A", "/g/logs", "/g/logs/b"]),
        "/g/logs:\n.3.gz\na\nb\n\n/g/logs/b:\n1.gz\n2.gz\nx\n"
    );
    for (command, arguments) in [
        ("touch", &["/g/new*"][..]),
        ("mkdir", &["/g/dir?"]),
        ("write", &["--text", "x", "/g/file[1]"]),
        ("truncate", &["-s", "1", "/g/cut*"]),
        ("ln", &["-s", "*", "/g/link*"]),
        ("mv", &["/g/two*", "/g/moved*"]),
        ("cp", &["--within", "/g/sta[r]", "/g/copied*"]),
    ] {
        scene.xebec(command, arguments).assert().success();
    }
    let names = scene.output("ls", &["/g"]);
    assert_eq!(names, "copied*\ncut*\ndir?\nfile[1]\nlink*\nlogs\nmoved*\nnew*\nst*r\nstar\n");
    // A literal name takes precedence; a backslash quotes.
    assert_eq!(scene.output("cat", &["/g/st*r"]), "s\n");
    assert_eq!(scene.output("cat", &["/g/st\\*r", "/g/st[a]r"]), "s\nt\n");
    scene.xebec("rm", &["/g/st*r"]).assert().success();
    assert!(scene.output("ls", &["/g"]).contains("star"));
    scene.xebec("rm", &["-r", "/g/logs/*", "/g/[!l]*"]).assert().success();
    assert_eq!(scene.output("ls", &["-A", "/g", "/g/logs"]), "/g:\nlink*\nlogs\n\n/g/logs:\n.3.gz\n");
    scene.xebec("check", &[]).assert().success();
}

#[test]
fn cp_sh_extract_and_image_path_operands_expand_patterns() {
    let scene = Scene::with_files();
    let (image, out) = (scene.image().display().to_string(), scene.beside("out"));
    fs::create_dir(&out).unwrap();
    let stdout = |arguments: &[&str]| {
        let output = crate::xebec().args(arguments).assert().success().get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    };
    let to = out.display().to_string();
    crate::xebec().args(["cp", &format!("{image}:/g/logs/*.gz"), &to]).assert().success();
    assert_eq!(
        (out.join("1.gz").exists(), out.join("2.gz").exists(), out.join(".3.gz").exists()),
        (true, true, false)
    );
    let message = stderr(crate::xebec().args(["cp", &format!("{image}:/g/*.none"), &to]));
    assert_eq!(message, format!("xebec: '{image}:/g/*.none': no file matches this pattern\n"));
    // IMAGE:PATH works with every command.
    let path = format!("{image}:/g/logs/*.gz");
    assert_eq!(stdout(&["ls", &path]), "/g/logs/1.gz\n/g/logs/2.gz\n");
    assert_eq!(stdout(&["find", &format!("{image}:/g/logs"), "-name", "x"]), "/g/logs/a/x\n/g/logs/b/x\n");
    stdout(&["chmod", "600", &path, &format!("{image}:/g/star")]);
    stdout(&["ln", "-s", "a", &format!("{image}:/g/logs/link")]);
    stdout(&["mv", &format!("{image}:/g/logs/l*"), &format!("{image}:/g/logs/.link")]);
    assert!(stdout(&["ls", "-l", &path]).starts_with("-rw-------"));
    assert_eq!(stdout(&["ls", &format!("{image}:")]), scene.output("ls", &[]));
    scene.xebec("cat", &[&path]).assert().code(1);
    let message = stderr(crate::xebec().args(["cp", &format!("{image}:/g/logs/*.gz"), &to, "-T"]));
    assert!(message.contains("-T takes one source"), "{message}");
    // Names on the host are not expanded.
    fs::write(scene.beside("a*"), "").unwrap();
    fs::write(scene.beside("ab"), "").unwrap();
    scene.xebec("cp", &["a*", "/g/star"]).current_dir(scene.beside("")).assert().success();
    let lines = "cat /g/logs/*.gz\nrm '/g/logs/*.gz'\nls /g/logs\nrm /g/logs/*.gz\nrm -f /g/logs/*.gz\n";
    let session = scene.xebec("sh", &[]).write_stdin(lines).assert().code(1).get_output().clone();
    assert_eq!(String::from_utf8_lossy(&session.stdout), "one\ntwo\na\nb\n");
    let message = String::from_utf8_lossy(&session.stderr).into_owned();
    assert_eq!(message.matches("no file matches this pattern").count(), 1, "{message}");
    assert!(message.contains("line 4: '/g/logs/*.gz': no file matches this pattern"), "{message}");
    let tar = scene.beside("x.tar").display().to_string();
    scene.xebec("extract", &["/g/log*", "--to", &tar]).assert().success();
    let message = stderr(&mut scene.xebec("extract", &["/g/*", "--to", &tar, "--overwrite"]));
    assert!(message.contains("pattern matches 4 files, such as /g/logs and '/g/st*r'"), "{message}");
}

#[test]
fn a_pattern_without_matches_is_one_error() {
    let scene = Scene::with_files();
    for (command, arguments) in [
        ("ls", &["/g/*.none"][..]),
        ("cat", &["/g/*.none"]),
        ("rm", &["/g/*.none"]),
        ("chmod", &["600", "/g/*.none"]),
        ("mv", &["/g/*.none", "/g/logs"]),
        ("tree", &["/g/*.none"]),
        ("find", &["/g/*.none"]),
    ] {
        let message = stderr(&mut scene.xebec(command, arguments));
        assert_eq!(message.lines().count(), 1, "{command}: {message}");
        assert!(message.contains("'/g/*.none': no file matches this pattern"), "{command}: {message}");
        scene.xebec(command, arguments).assert().code(1);
    }
    let message = stderr(&mut scene.xebec("cat", &["--json", "/g/*.none"]));
    let message: serde_json::Value = serde_json::from_str(&message).unwrap();
    assert_eq!(
        (&message["error"]["path"], &message["error"]["errno"]),
        (&"/g/*.none".into(), &2.into()),
        "{message}"
    );
    scene.xebec("rm", &["-f", "/g/*.none"]).assert().success();
}

/// Regression: `mv /a /b /c` moved /a to /c, and then /b over it.
#[test]
fn mv_and_ln_refuse_several_sources_for_one_name() {
    let scene = Scene::with_files();
    let before = scene.output("ls", &["-lR", "--time-style=full-iso", "/g"]);
    for arguments in [
        &["/g/logs/1.gz", "/g/logs/2.gz", "/g/new"][..],
        &["/g/logs/*.gz", "/g/star"],
        &["/g/logs/*.gz", "/g/new"],
        &["-T", "/g/logs/*.gz", "/g/logs/a"],
    ] {
        scene.xebec("mv", arguments).assert().code(1);
        assert_eq!(stderr(&mut scene.xebec("mv", arguments)).lines().count(), 1);
        assert_eq!(scene.output("ls", &["-lR", "--time-style=full-iso", "/g"]), before);
    }
    scene.xebec("ln", &["/g/logs/*.gz", "/g/new"]).assert().code(1);
    // Two sources of the same name are not moved to one directory.
    let message = stderr(&mut scene.xebec("mv", &["/g/logs/*/x", "/g"]));
    assert!(message.contains("/g/logs/b/x: will not overwrite just-created x"), "{message}");
    assert_eq!(scene.output("cat", &["/g/x", "/g/logs/b/x"]), "a\nb\n");
}

/// Regression: `setfattr -n user.a -v b.xfs:/q a.xfs /z` changed b.xfs, as the value of an option was parsed as
/// `IMAGE:PATH`. `rm a.xfs:/z b.xfs:/z` removed the first file before it refused the second, in another image.
#[test]
fn only_operands_name_the_image_and_all_name_the_same() {
    let (scene, other) = (Scene::with_files(), Scene::with_files());
    let image = scene.image().display().to_string();
    let elsewhere = format!("{}:/g/star", other.image().display());
    let before = std::fs::read(other.image()).unwrap();
    scene.xebec("setfattr", &["-n", "user.a", "-v", &elsewhere, "/g/star"]).assert().success();
    scene.xebec("write", &["--text", &elsewhere, "/g/star"]).assert().success();
    assert_eq!(scene.output("cat", &["/g/star"]).trim_end(), elsewhere);
    let options_first = ["setfattr", "-n", "user.b", "-v", &elsewhere, &image, "/g/star"];
    crate::xebec().args(options_first).assert().success();
    assert!(scene.output("getfattr", &["-d", "/g/star"]).contains("user.b="));
    for refused in
        [["rm", &format!("{image}:/g/star"), &elsewhere], ["mv", &format!("{image}:/g/star"), &elsewhere]]
    {
        let message = stderr(crate::xebec().args(refused));
        assert!(message.contains("are different images"), "{message}");
        crate::xebec().args(refused).assert().code(2);
    }
    assert!(std::fs::read(other.image()).unwrap() == before, "the other image was changed");
    // Two paths of one image.
    let folder = scene.image().parent().unwrap();
    crate::xebec()
        .current_dir(folder)
        .args(["mv", "sample.xfs:/g/star", "./sample.xfs:/g/moved"])
        .assert()
        .success();
    assert_eq!(scene.output("cat", &["/g/moved"]).trim_end(), elsewhere);
}

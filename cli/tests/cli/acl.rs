//! getfacl and setfacl, with names of users and groups of the volume.

use samples::Sample;

use crate::{Scene, stderr};

/// A volume with its own /etc/passwd and /etc/group.
fn scene() -> Scene {
    let scene = Scene::new(Sample::Clean);
    scene.xebec("mkdir", &["-p", "/etc", "/srv"]).assert().success();
    scene.xebec("write", &["--text", "root:x:0:0\njoe:x:1001:7", "/etc/passwd"]).assert().success();
    scene.xebec("write", &["--text", "root:x:0:\nstaff:x:50:", "/etc/group"]).assert().success();
    scene.xebec("touch", &["-m", "640", "/srv/file"]).assert().success();
    scene
}

#[test]
fn getfacl_and_setfacl_use_names_of_the_volume() {
    let scene = scene();
    scene.xebec("setfacl", &["-m", "u:joe:rwX,g:staff:w,u:77:r", "/srv/file"]).assert().success();
    let shown = "# file: srv/file\n# owner: root\n# group: root\nuser::rw-\nuser:77:r--\nuser:joe:rw-\n\
        group::r--\ngroup:staff:-w-\nmask::rw-\nother::---\n\n";
    assert_eq!(scene.output("getfacl", &["/srv/file"]), shown);
    assert!(scene.output("getfacl", &["-n", "/srv/file"]).contains("user:1001:rw-"));
    let found = scene.json("getfacl", &["/srv/file"]);
    let joe = &found["files"][0]["access"][2];
    assert_eq!((&joe["for"], &joe["id"], &joe["name"]), (&"user".into(), &1001.into(), &"joe".into()));
    // setfacl accepts the output of getfacl.
    let saved = scene.beside("saved");
    std::fs::write(&saved, shown).unwrap();
    scene.xebec("setfacl", &["-b", "/srv/file"]).assert().success();
    assert!(!scene.output("getfattr", &["/srv/file"]).contains("posix_acl"));
    scene.xebec("setfacl", &["--set-file", saved.to_str().unwrap(), "/srv/file"]).assert().success();
    assert_eq!(scene.output("getfacl", &["/srv/file"]), shown);
    scene.xebec("setfacl", &["-M", "-", "/srv"]).write_stdin("d:u:joe:7\n# none\n").assert().success();
    assert!(scene.output("getfacl", &["-c", "/srv"]).contains("default:user:joe:rwx"));
    assert_eq!(scene.output("getfacl", &["-Rs", "/etc"]), "");
    scene.xebec("check", &[]).assert().success();
}

#[test]
fn setfacl_restores_the_output_of_getfacl() {
    let scene = scene();
    let odd = "/srv/d/a b\\c\n\u{202e}";
    scene.xebec("mkdir", &["/srv/d"]).assert().success();
    scene.xebec("touch", &["-m", "4750", odd]).assert().success();
    scene.xebec("setfacl", &["-R", "-m", "u:joe:rwX,d:g:staff:rx", "/srv"]).assert().success();
    scene.xebec("chmod", &["1775", "/srv/d"]).assert().success();
    scene.xebec("chown", &["77:50", "/srv/file"]).assert().success();
    let saved = scene.output("getfacl", &["-R", "/"]);
    assert!(saved.contains("# file: srv/d/a b\\134c\\012\\342\\200\\256\n"), "{saved}");
    scene.xebec("setfacl", &["-R", "-b", "/srv"]).assert().success();
    scene.xebec("setfacl", &["-m", "u:5:r,d:u:9:w", "/etc"]).assert().success();
    scene.xebec("chown", &["1:2", "/srv/file", odd]).assert().success();
    scene.xebec("chmod", &["0", "/srv/d", "/etc/passwd"]).assert().success();
    assert_ne!(scene.output("getfacl", &["-R", "/"]), saved);
    scene.xebec("setfacl", &["--restore", "-"]).write_stdin(saved.as_str()).assert().success();
    assert_eq!(scene.output("getfacl", &["-R", "/"]), saved);
    // Failures are reported, and the other files are restored.
    let some = "# file: none\nu::r\n# file: srv/file\n# owner: nobody-here\nu::r\n# file: srv\n# owner: 9\n\
        u::x,g::-,o::-\n";
    scene.xebec("setfacl", &["--restore", "-"]).write_stdin(some).assert().code(1);
    let shown = "# file: srv\n# owner: 9\n# group: root\nuser::--x\ngroup::---\nother::---\n\n";
    assert_eq!(scene.output("getfacl", &["/srv"]), shown);
    scene.xebec("check", &[]).assert().success();
}

#[test]
fn setfacl_refuses_invalid_entries() {
    let scene = scene();
    let before = scene.output("getfacl", &["-R", "/"]);
    for arguments in [
        &["-m", "u:nobody-here:r", "/srv/file"][..],
        &["-x", "o", "/srv/file"],
        &["-m", "d:u:joe:r", "/srv/file"],
        &["-m", "u:joe:r", "/none"],
        &["-M", "/no such file", "/srv/file"],
    ] {
        let message = stderr(&mut scene.xebec("setfacl", arguments));
        assert_eq!(message.lines().count(), 1, "{message}");
        scene.xebec("setfacl", arguments).assert().code(1);
    }
    for arguments in [&["-m", "u:joe", "/srv/file"][..], &["/srv/file"], &["-x", "u:joe:r", "/srv/file"]] {
        scene.xebec("setfacl", arguments).assert().code(2);
    }
    assert_eq!(scene.output("getfacl", &["-R", "/"]), before);
}

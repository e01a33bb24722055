//! `create`: images from directories and archives.

use std::fs;
use std::os::unix::fs::symlink;

use samples::Sample;

use super::{Scene, xebec};

/// A small tree of this user.
fn tree(scene: &Scene) -> std::path::PathBuf {
    let root = scene.beside("tree");
    fs::create_dir_all(root.join("etc/empty")).unwrap();
    fs::write(root.join("etc/motd"), b"Welcome\n").unwrap();
    fs::write(root.join("large"), vec![7; 3 << 20]).unwrap();
    symlink("etc/motd", root.join("link")).unwrap();
    fs::hard_link(root.join("large"), root.join("etc/large")).unwrap();
    root
}

fn on(command: &str) -> assert_cmd::Command {
    let mut xebec = xebec();
    xebec.arg(command);
    xebec
}

fn scene() -> Scene {
    Scene::new(Sample::Clean)
}

#[test]
fn create_and_extract_round_trip_a_directory() {
    let scene = scene();
    let (root, image) = (tree(&scene), scene.beside("made.xfs"));
    let shown = on("create").arg(&image).arg("--from").arg(&root).arg("--json").output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let document: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(document["files"], 7);
    assert_eq!(document["links"], 1);
    assert_eq!(document["size"], fs::metadata(&image).unwrap().len());
    on("check").arg(&image).assert().success();
    let out = scene.beside("out");
    on("extract").arg(&image).arg("--to").arg(&out).assert().success();
    assert_eq!(fs::read(out.join("etc/motd")).unwrap(), b"Welcome\n");
    assert_eq!(fs::read(out.join("etc/large")).unwrap(), vec![7; 3 << 20]);
    assert_eq!(fs::read_link(out.join("link")).unwrap().as_os_str(), "etc/motd");
    assert!(out.join("etc/empty").is_dir());
}

/// Regression: access times of the source differed between runs.
#[test]
fn reproducible_images_do_not_depend_on_atime() {
    let scene = scene();
    let root = tree(&scene);
    let made = |name: &str, read_at: u64| {
        let read_at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(read_at);
        for path in ["", "etc", "etc/motd", "large"] {
            let file = fs::File::open(root.join(path)).unwrap();
            file.set_times(fs::FileTimes::new().set_accessed(read_at)).unwrap();
        }
        let image = scene.beside(name);
        on("create").arg(&image).arg("--from").arg(&root).args(["-q", "--reproducible"]).assert().success();
        fs::read(image).unwrap()
    };
    assert!(made("one.xfs", 1_000_000_000) == made("two.xfs", 1_200_000_000));
}

#[test]
fn create_from_an_extracted_archive_gives_the_same_image() {
    let scene = scene();
    let (root, image) = (tree(&scene), scene.beside("made.xfs"));
    on("create").arg(&image).arg("--from").arg(&root).args(["-q", "--reproducible"]).assert().success();
    let archive = on("extract").arg(&image).args(["-q", "--to", "-"]).output().unwrap().stdout;
    let again = scene.beside("again.xfs");
    let create = on("create").arg(&again).args(["--from", "-", "-q"]).write_stdin(archive).output().unwrap();
    assert!(create.status.success(), "{}", String::from_utf8_lossy(&create.stderr));
    let manifest = |image| {
        let shown = on("manifest").arg(image).output().unwrap().stdout;
        let lines = String::from_utf8(shown).unwrap();
        let portable = |line: &str| {
            let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
            for key in ["ino", "ctime", "btime"] {
                record.as_object_mut().unwrap().remove(key);
            }
            record
        };
        lines.lines().map(portable).collect::<Vec<_>>()
    };
    assert_eq!(manifest(&image), manifest(&again));
}

#[test]
fn overrides_owner_mode_label_and_size_apply() {
    let scene = scene();
    let (root, image, list) = (tree(&scene), scene.beside("made.xfs"), scene.beside("list"));
    fs::write(&list, "dev type=dir mode=711\ndev/null type=char device=1,3 mode=666\netc/motd uid=7\n")
        .unwrap();
    let mut create = on("create");
    create.arg(&image).arg("--from").arg(&root).arg("--overrides").arg(&list);
    create.args(["--owner", "0:5", "--mode", "u=rwX,go=", "-L", "mine", "--size", "64m"]).assert().success();
    let shown = on("ls").arg(&image).args(["-lnR", "/"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let has =
        |mode: &str, words: &str| shown.lines().any(|line| line.starts_with(mode) && line.contains(words));
    assert!(has("crw-rw-rw-", "1,") && has("-rw-------", " 7 "), "{shown}");
    assert!(has("drwx------", "empty") && has("drwx--x--x", "dev"), "{shown}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
    let info = on("info").arg(&image).output().unwrap().stdout;
    assert!(String::from_utf8(info).unwrap().contains("mine"));
}

/// Long recursive listing of an image.
fn listed(image: &std::path::Path) -> String {
    let shown = on("ls").arg(image).args(["-lnR", "/"]).output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    String::from_utf8(shown.stdout).unwrap()
}

#[test]
fn gpt_and_qcow2_images_hold_the_same_volume() {
    let scene = scene();
    let (root, plain) = (tree(&scene), scene.beside("plain"));
    let create = |image: &std::path::Path, words: &[&str]| {
        on("create").arg(image).arg("--from").arg(&root).args(["-q", "--reproducible"]).args(words).assert()
    };
    create(&plain, &[]).success();
    let alone = fs::read(&plain).unwrap();
    for (name, words) in [
        ("gpt", &["--gpt"][..]),
        ("qcow2", &["--format", "qcow2"]),
        ("both", &["--gpt", "--format", "qcow2"]),
    ] {
        let image = scene.beside(name);
        create(&image, words).success();
        on("check").arg(&image).arg("-q").assert().success();
        assert_eq!(listed(&image), listed(&plain), "{name}");
        let bytes = fs::read(&image).unwrap();
        create(&image, words).failure();
        create(&image, &[words, &["-f"]].concat()).success();
        assert_eq!(listed(&image), listed(&plain), "{name} again");
        match name {
            // The same volume, with 1 MiB before and after it.
            "gpt" => {
                assert!(fs::read(&image).unwrap() == bytes, "other bytes");
                assert!(bytes[1 << 20..][..alone.len()] == alone && bytes.len() == alone.len() + (2 << 20))
            }
            // The empty log is larger than all contents.
            _ => assert!(bytes.len() < alone.len() / 3, "{name}: {} bytes", bytes.len()),
        }
    }
    assert_eq!(
        fs::read_dir(plain.parent().unwrap())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".new") })
            .count(),
        0
    );
    let sized = scene.beside("sized");
    create(&sized, &["--gpt", "--size", "64m"]).success();
    assert_eq!(fs::metadata(&sized).unwrap().len(), 64 << 20);
}

/// The first source would read all of it.
#[test]
fn standard_input_can_be_given_once() {
    let scene = scene();
    let mut create = on("create");
    create.arg(scene.beside("made.xfs")).args(["--from", "-", "--from", "-", "--size", "64m"]);
    let refused = create.write_stdin("nothing that is a tar archive").assert().failure();
    let message = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(message.contains("standard input can be given only once"), "{message}");
}

/// Regression: large blocks need a large log, and the volume was refused as too small although no size was given.
#[test]
fn the_default_size_fits_the_layout() {
    let scene = scene();
    let (root, image) = (tree(&scene), scene.beside("made.xfs"));
    for layout in [&["-b", "size=16384"][..], &["-b", "size=65536", "-i", "sparse=0"], &["-d", "agcount=20"]]
    {
        on("create").arg(&image).arg("--from").arg(&root).args(["-q", "-f"]).args(layout).assert().success();
        on("check").arg(&image).assert().success();
    }
    on("create")
        .arg(&image)
        .arg("--from")
        .arg(&root)
        .args(["-q", "-f", "-b", "size=3000"])
        .assert()
        .failure();
}

#[test]
fn cp_and_tar_in_add_trees_to_an_existing_volume() {
    let scene = scene();
    let root = tree(&scene);
    let (from, image) = (root.to_str().unwrap(), scene.image().to_path_buf());
    on("mkdir").arg(&image).args(["-p", "/srv/here"]).assert().success();
    on("cp").arg(&image).args([from, "/srv/here"]).assert().failure();
    on("cp").arg(&image).args(["-r", from, "/srv/here"]).assert().success();
    let stat =
        |path: &str| String::from_utf8(on("stat").arg(&image).arg(path).output().unwrap().stdout).unwrap();
    assert!(stat("/srv/here/tree/large").contains("3145728"));
    let kept = fs::File::open(root.join("etc/motd")).unwrap();
    kept.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890)).unwrap();
    on("cp").arg(&image).args(["-a", from, "/srv/copy"]).assert().success();
    assert!(stat("/srv/copy/etc/motd").contains("2009-02-13"), "{}", stat("/srv/copy/etc/motd"));
    assert!(!stat("/srv/here/tree/etc/motd").contains("2009-02-13"));
    let archive = on("tar-out").arg(&image).arg("/srv/copy").output().unwrap().stdout;
    on("mkdir").arg(&image).arg("/again").assert().success();
    on("tar-in").arg(&image).args(["-", "/again"]).write_stdin(archive).assert().success();
    assert!(stat("/again/etc/motd").contains("2009-02-13"));
    on("tar-in").arg(&image).args(["-", "/no/such"]).write_stdin("").assert().failure();
    on("check").arg(&image).assert().success();
}

/// Sorted paths of an image, by `find`.
fn names(image: &std::path::Path) -> Vec<String> {
    let listed = String::from_utf8(on("find").arg(image).output().unwrap().stdout).unwrap();
    let mut names: Vec<String> = listed.lines().map(Into::into).collect();
    names.sort();
    names
}

#[test]
fn exclude_skips_files_in_create_and_sync() {
    let scene = scene();
    let (root, image) = (tree(&scene), scene.beside("made.xfs"));
    fs::create_dir_all(root.join("build/cache")).unwrap();
    for name in ["build/a.o", "build/keep.o", "build/cache/x", "a.c", "etc/empty/b.o"] {
        fs::write(root.join(name), name).unwrap();
    }
    // An excluded directory is not opened.
    fs::create_dir(root.join("closed")).unwrap();
    fs::set_permissions(root.join("closed"), std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let list = scene.beside("list");
    fs::write(&list, "# objects\n*.o\n\ncache/\n").unwrap();
    let excluded = |command: &str| {
        let mut command = on(command);
        command.arg("--exclude-from").arg(&list).args(["--exclude", "!keep.o", "--exclude", "/closed"]);
        command
    };
    let wanted = [
        "/",
        "/a.c",
        "/build",
        "/build/keep.o",
        "/etc",
        "/etc/empty",
        "/etc/large",
        "/etc/motd",
        "/large",
        "/link",
    ];
    excluded("create").arg(&image).arg("--from").arg(&root).assert().success();
    assert_eq!(names(&image), wanted);
    // Other hard links of an excluded name are copied.
    let without = scene.beside("without.xfs");
    excluded("create")
        .arg(&without)
        .arg("--from")
        .arg(&root)
        .args(["--exclude", "etc/large"])
        .assert()
        .success();
    let out = on("cat").arg(&without).arg("/large").output().unwrap().stdout;
    assert_eq!(out, vec![7; 3 << 20]);
    // Excluded files in the volume are kept.
    on("write").arg(&image).args(["--text", "old", "/build/old.o"]).assert().success();
    on("write").arg(&image).args(["--text", "old", "/build/old.c"]).assert().success();
    excluded("sync").arg(&root).arg(&image).assert().success();
    assert!(
        names(&image).contains(&"/build/old.o".into()) && !names(&image).contains(&"/build/old.c".into())
    );
    fs::set_permissions(root.join("closed"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn exclude_skips_members_of_archives() {
    let scene = scene();
    let (root, image) = (tree(&scene), scene.beside("made.xfs"));
    fs::create_dir(root.join("build")).unwrap();
    for name in ["build/a", "a.c"] {
        fs::write(root.join(name), name).unwrap();
    }
    on("create").arg(&image).arg("--from").arg(&root).assert().success();
    let archive = on("tar-out").arg(&image).output().unwrap().stdout;
    fs::write(scene.beside("made.tar"), &archive).unwrap();
    let from_tar = scene.beside("tar.xfs");
    let create = || {
        let mut create = on("create");
        create.arg(&from_tar).arg("--from").arg(scene.beside("made.tar")).arg("--force");
        create
    };
    create().args(["--exclude", "build", "--exclude", "*large"]).assert().success();
    assert_eq!(names(&from_tar), ["/", "/a.c", "/etc", "/etc/empty", "/etc/motd", "/link"]);
    // A hard link to an excluded member is refused.
    let made = ["/etc/large", "/large"].map(|name| create().args(["--exclude", name]).output().unwrap());
    let refused: Vec<_> = made.iter().filter(|made| !made.status.success()).collect();
    assert!(matches!(*refused, [one] if String::from_utf8_lossy(&one.stderr).contains("is excluded")));
    on("mkdir").arg(&from_tar).arg("/in").assert().success();
    let tar_in = |pattern: &str| {
        let mut tar_in = on("tar-in");
        tar_in.arg(&from_tar).args(["-", "/in", "--exclude", pattern]).write_stdin(archive.clone());
        tar_in
    };
    tar_in("etc").args(["--exclude", "large"]).assert().success();
    assert!(names(&from_tar).contains(&"/in/a.c".into()) && !names(&from_tar).contains(&"/in/etc".into()));
    tar_in("a[b").assert().failure();
}

#[test]
fn an_image_inside_its_source_is_skipped() {
    let scene = scene();
    let root = tree(&scene);
    let image = root.join("made.xfs");
    for force in [&[][..], &["--force"]] {
        on("create")
            .arg(&image)
            .arg("--from")
            .arg(&root)
            .args(["-q", "-d", "size=64m"])
            .args(force)
            .assert()
            .success();
        let listed = on("find").arg(&image).output().unwrap().stdout;
        assert!(!String::from_utf8(listed).unwrap().contains("made.xfs"));
        assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
    }
}

#[test]
fn a_failed_create_leaves_no_file() {
    let scene = scene();
    let (root, image) = (tree(&scene), scene.beside("made.xfs"));
    let fails = |words: &[&str], says: &str| {
        let output = on("create").arg(&image).args(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(says), "{words:?}: {error}");
    };
    let from = root.to_str().unwrap();
    fails(&["--from", "/no/such/place"], "/no/such/place");
    fails(&["--from", from, "--size", "16m", "-l", "size=13m"], "--size");
    fails(&["--from", from, "--owner", "me"], "me");
    let text = scene.beside("text");
    fs::write(&text, "this is no archive".repeat(100)).unwrap();
    fails(&["--from", text.to_str().unwrap()], "not a tar archive");
    // A failed download may leave an empty file, or one of zeros.
    for nothing in [&b""[..], &[0; 10240]] {
        fs::write(&text, nothing).unwrap();
        fails(&["--from", text.to_str().unwrap()], "not a tar archive");
    }
    assert!(!image.exists());
    fs::write(&image, "mine").unwrap();
    fails(&["--from", from], "--force");
    assert_eq!(fs::read(&image).unwrap(), b"mine");
    let hidden = fs::read_dir(image.parent().unwrap()).unwrap();
    assert!(
        hidden.map(|entry| entry.unwrap().file_name()).all(|name| !name.to_string_lossy().starts_with('.'))
    );
    on("create").arg(&image).args(["--from", from, "--force", "-q"]).assert().success();
    on("check").arg(&image).assert().success();
}

#[test]
fn minimize_creates_an_image_of_minimum_size() {
    let scene = scene();
    let root = tree(&scene);
    let image = scene.beside("small.xfs");
    let make = |words: &[&str]| {
        let words = [&["--json", "-f", "-d", "agcount=4"], words].concat();
        let output = on("create").arg(&image).arg("--from").arg(&root).args(words).output();
        let json: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        on("check").arg(&image).assert().success();
        assert_eq!(on("cat").arg(&image).arg("/etc/motd").output().unwrap().stdout, b"Welcome\n");
        json["size"].as_u64().unwrap()
    };
    let fitting = make(&[]);
    let least = make(&["--minimize"]);
    assert!(least < fitting, "{least} of {fitting}");
    assert_eq!(fs::metadata(&image).unwrap().len(), least);
    let again = on("minimize").arg(&image).output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&again).starts_with("unchanged"), "{}", String::from_utf8_lossy(&again));
    assert_eq!(make(&["--minimize", "--gpt"]), least + (2 << 20));
    assert_eq!(fs::metadata(&image).unwrap().len(), least + (2 << 20));
    assert_eq!(make(&["--minimize", "--gpt", "--format", "qcow2"]), least + (2 << 20));
    // The number of threads does not change the image.
    let bytes = [&["--threads", "1"][..], &["--threads", "3"]].map(|threads| {
        make(&[&["--minimize", "--reproducible"], threads].concat());
        fs::read(&image).unwrap()
    });
    assert!(bytes[0] == bytes[1]);
    for size in [["--size", "1g"], ["--free", "1g"], ["-d", "size=1g"]] {
        let create =
            on("create").arg(&image).arg("--from").arg(&root).args(["-f", "--minimize"]).args(size).assert();
        create.code(2);
    }
}

#[test]
fn file_contexts_set_selinux_labels() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    for name in ["etc/passwd", "srv/www/index", "proc/1"] {
        builder.append_data(&mut header, name, &b"text"[..]).unwrap();
    }
    std::fs::write(path("a.tar"), builder.into_inner().unwrap()).unwrap();
    let contexts = "/.*\tsystem_u:object_r:default_t:s0\n/etc(/.*)? system_u:object_r:etc_t:s0\n\
        /etc/passwd -- system_u:object_r:passwd_t:s0\n/proc/.* <<none>>\n/ -d system_u:object_r:root_t:s0\n";
    std::fs::write(path("contexts"), contexts).unwrap();
    let option = format!("--file-contexts={}", path("contexts"));
    let image = path("a.xfs");
    let label = |of: &str| {
        let attributes = &stat(&image, of)["xattrs"]["security.selinux"];
        let bytes = attributes.as_str().map(|hex| {
            (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect::<Vec<_>>()
        });
        bytes.map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let is =
        |of: &str, kind: &str| assert_eq!(label(of), Some(format!("system_u:object_r:{kind}:s0\0")), "{of}");
    xebec().args(["create", &image, "--from", &path("a.tar"), &option]).assert().success();
    for (of, kind) in [
        ("/", "root_t"),
        ("/etc", "etc_t"),
        ("/etc/passwd", "passwd_t"),
        ("/srv", "default_t"),
        ("/srv/www/index", "default_t"),
    ] {
        is(of, kind);
    }
    assert_eq!(label("/proc/1"), None);
    // A changed policy changes labels without writing contents.
    std::fs::write(path("contexts"), contexts.replace("passwd_t", "shadow_t")).unwrap();
    // Without root, some labels cannot be set on the host.
    xebec().args(["extract", &image, "--to", &path("tree")]).output().unwrap();
    let synced =
        xebec().args(["sync", &path("tree"), &image, &option, "--owner", "0:0", "--json"]).output().unwrap();
    let synced: serde_json::Value = serde_json::from_slice(&synced.stdout).unwrap();
    assert_eq!(synced["bytes"], 0, "{synced}");
    is("/etc/passwd", "shadow_t");
    xebec().args(["mkdir", &image, "/in"]).assert().success();
    xebec().args(["tar-in", &image, &path("a.tar"), "/in", &option]).assert().success();
    is("/in/etc/passwd", "shadow_t");
    let bad = path("bad");
    std::fs::write(&bad, "/etc nonsense\n").unwrap();
    let message = crate::stderr(xebec().args([
        "create",
        &path("b.xfs"),
        "--from",
        &path("tree"),
        "--file-contexts",
        &bad,
    ]));
    assert!(message.contains("--file-contexts") && message.contains("line 1"), "{message}");
    xebec().args(["check", &image]).assert().success();
}

fn stat(image: &str, path: &str) -> serde_json::Value {
    let output = xebec().args(["stat", image, path, "--json"]).output().unwrap();
    serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["files"][0].clone()
}

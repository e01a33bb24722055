//! Commands that change file contents, verified by `cat`, `check` and `filefrag`.

use samples::Sample;

use crate::{Scene, stderr, xebec};

fn assert_clean(scene: &Scene) {
    scene.xebec("check", &[]).assert().success();
}

#[test]
fn write_and_truncate_change_contents() {
    let scene = Scene::new(Sample::Clean);
    scene.xebec("write", &["/new"]).write_stdin("hello\n").assert().success();
    scene.xebec("write", &["--append", "--text", "world", "/new"]).assert().success();
    scene.xebec("write", &["--at", "1", "--text", "E", "/new"]).assert().success();
    assert_eq!(scene.output("cat", &["/new"]), "hE\nlo\nworld\n");
    scene.xebec("write", &["--text", "all", "/new"]).assert().success();
    assert_eq!(scene.output("cat", &["/new"]), "all\n");
    scene.xebec("truncate", &["-s", "2", "/new"]).assert().success();
    assert_eq!(scene.output("cat", &["/new"]), "al");
    scene.xebec("truncate", &["-s", "+2", "/new"]).assert().success();
    assert_eq!(scene.output("cat", &["/new"]), "al\0\0");
    // An unreadable source does not truncate the file.
    scene.xebec("write", &["--from", "/no such file", "/new"]).assert().code(1);
    assert_eq!(scene.output("cat", &["/new"]), "al\0\0");
    assert_clean(&scene);
}

#[test]
fn cp_within_shares_blocks_and_fallocate_changes_ranges() {
    let scene = Scene::new(Sample::Clean);
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let bytes: String = (0..60_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(&source, &bytes).unwrap();
    let source = source.to_str().unwrap();
    scene.xebec("mkdir", &["/into"]).assert().success();
    scene.xebec("cp", &["-p", source, "/into"]).assert().success();
    scene.xebec("cp", &["--within", "/into/source", "/copy"]).assert().success();
    assert_eq!(scene.output("cat", &["/into/source"]), bytes);
    assert_eq!(scene.output("cat", &["/copy"]), bytes);
    scene.xebec("fallocate", &["-c", "-l", "4k", "/copy"]).assert().success();
    assert_eq!(scene.output("cat", &["/copy"]), bytes[4096..]);
    scene.xebec("fallocate", &["-p", "-o", "4k", "-l", "8k", "/copy"]).assert().success();
    let mut punched = bytes.as_bytes()[4096..].to_vec();
    punched[4096..12288].fill(0);
    assert_eq!(scene.output("cat", &["/copy"]).as_bytes(), punched);
    assert_eq!(scene.output("cat", &["/into/source"]), bytes);
    assert_clean(&scene);
    let found = scene.json("filefrag", &["/copy"]);
    let extents = found["files"][0]["extents"].as_array().unwrap();
    assert_eq!(extents[1]["file_block"], 3, "{found}");
    assert!(scene.output("filefrag", &["-v", "/copy"]).contains("last,eof"));
    assert!(scene.output("filefrag", &["/into/source"]).ends_with("found\n"));
}

#[test]
fn a_session_refuses_standard_input_as_a_source() {
    let scene = Scene::new(Sample::Clean);
    let lines = "write --text 'in a session' /s\nwrite /t\nreflink /s /u\n";
    scene.xebec("sh", &[]).write_stdin(lines).assert().code(1);
    assert_eq!(scene.output("cat", &["/u"]), "in a session\n");
    let message = stderr(&mut scene.xebec("cp", &["/no such file", "/x"]));
    assert!(message.contains("no such file"), "{message}");
    assert_clean(&scene);
}

#[test]
fn cp_copies_in_and_out() {
    let scene = Scene::new(Sample::Clean);
    let image = scene.image().display().to_string();
    let (out, file) = (scene.beside("out"), scene.beside("file"));
    let cp = |words: &[&str]| {
        let mut cp = xebec();
        cp.arg("cp").args(words);
        cp
    };
    let named = |path: &str| format!("{image}:{path}");
    std::fs::write(&file, b"in and out").unwrap();
    let (file, out_name) = (file.display().to_string(), out.display().to_string());
    cp(&[&file, &named("/with:colon")]).assert().success();
    assert_eq!(scene.output("cat", &["/with:colon"]), "in and out");
    cp(&[&named("/with:colon"), &out_name]).assert().success();
    assert_eq!(std::fs::read(&out).unwrap(), b"in and out");
    std::fs::remove_file(&out).unwrap();
    // A directory is copied to the target, or into it if it exists; files replace existing ones.
    scene.xebec("mkdir", &["-p", "/tree/deep"]).assert().success();
    cp(&[&file, &named("/tree/deep/")]).assert().success();
    assert!(stderr(&mut cp(&[&named("/tree"), &out_name])).contains("-r"));
    cp(&["-r", &named("/tree"), &out_name]).assert().success();
    cp(&["-a", &named("/tree"), &named("/with:colon"), &out_name]).assert().success();
    cp(&[&named("/tree/deep/file"), &out_name]).assert().success();
    for path in ["deep/file", "tree/deep/file", "with:colon", "file"] {
        assert_eq!(std::fs::read(out.join(path)).unwrap(), b"in and out", "{path}");
    }
    assert!(stderr(&mut cp(&[&named("/nothing"), &out_name])).contains("nothing"));
    let nowhere = scene.beside("no/where").display().to_string();
    assert!(stderr(&mut cp(&[&named("/with:colon"), &nowhere])).contains("no such directory"));
    // The whole volume, without device nodes, which require root.
    scene.xebec("rm", &["-r", "/dev"]).assert().success();
    let all = scene.beside("all").display().to_string();
    cp(&["-r", &named(""), &all]).assert().success();
    assert_eq!(std::fs::read(scene.beside("all/tree/deep/file")).unwrap(), b"in and out");
}

//! du, df.

use samples::Sample;

use crate::{Scene, xebec};

#[test]
fn du_adds_up_directories() {
    let scene = Scene::new(Sample::Clean);
    let text = scene.output("du", &["-d1"]);
    let paths: Vec<_> = text.lines().filter_map(|line| line.split('\t').nth(1)).collect();
    assert_eq!(paths, ["/dev", "/etc", "/home", "/usr", "/var", "/"]);
    let of = |options: &[&str]| -> u64 {
        let text = scene.output("du", &[options, &["-s"]].concat());
        text.split('\t').next().unwrap().parse().unwrap()
    };
    let (kib, bytes) = (of(&[]), of(&["-B1"]));
    assert_eq!(kib, bytes.div_ceil(1024));
    let json = scene.json("du", &["-s"]);
    assert_eq!((&json["entries"][0]["path"], &json["entries"][0]["allocated"]), (&"/".into(), &bytes.into()));
    assert_eq!(json["total"]["inodes"], of(&["--inodes"]));
    assert!(of(&["-b", "-B1"]) > 8 << 20, "the sparse file counts with its size");
    let threads = scene.output("du", &["-a", "--threads", "7"]);
    assert_eq!(threads, scene.output("du", &["-a", "--threads", "1"]));
}

#[test]
fn du_counts_hard_links_and_repeated_operands_once() {
    let scene = Scene::new(Sample::Clean);
    scene.xebec("write", &["/home/ada/one", "--text", "x"]).assert().success();
    scene.xebec("ln", &["/home/ada/one", "/home/ada/two"]).assert().success();
    let lines = |arguments: &[&str]| scene.output("du", arguments);
    assert_eq!(lines(&["-a", "/home/ada"]), "4\t/home/ada/notes.txt\n4\t/home/ada/one\n8\t/home/ada\n");
    assert_eq!(lines(&["-s", "-l", "/home/ada"]), "12\t/home/ada\n");
    assert_eq!(lines(&["-c", "/home/ada/one", "/home/ada"]), "4\t/home/ada/one\n4\t/home/ada\n8\ttotal\n");
    assert_eq!(lines(&["-sc", "/home/ada", "/home/ada"]), "8\t/home/ada\n8\ttotal\n");
}

#[test]
fn du_counts_shared_blocks_once_on_request() {
    let scene = Scene::new(Sample::Clean);
    let mut write = scene.xebec("write", &["/large"]);
    write.write_stdin("0123456789abcdef".repeat(1 << 14)).assert().success();
    scene.xebec("reflink", &["/large", "/copy"]).assert().success();
    assert_eq!(scene.output("du", &["-c", "/large", "/copy"]), "256\t/large\n256\t/copy\n512\ttotal\n");
    let unique = scene.output("du", &["--unique", "-c", "/large", "/copy"]);
    assert_eq!(unique, "256\t/large\n0\t/copy\n256\ttotal\n");
}

#[test]
fn du_reports_missing_files_and_goes_on() {
    let scene = Scene::new(Sample::Clean);
    let output = scene.xebec("du", &["/none", "/etc"]).assert().code(1).get_output().clone();
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("\t/etc\n"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/none"));
    xebec().arg("du").arg(format!("{}:/etc", scene.image().display())).assert().success();
}

#[test]
fn df_shows_the_volume_and_its_ags() {
    let scene = Scene::new(Sample::Dirty);
    let json = scene.json("df", &["--ags", "-q"]);
    let bytes = |key: &str| json[key].as_u64().unwrap();
    assert_eq!(bytes("used_bytes") + bytes("available_bytes"), bytes("size_bytes"));
    let ags = json["ags"].as_array().unwrap();
    assert_eq!(ags.len(), 4);
    let of_ags = |key: &str| ags.iter().map(|ag| ag[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(of_ags("size_bytes"), bytes("size_bytes"));
    assert_eq!(of_ags("inodes_used"), bytes("inodes_used"));
    assert!(of_ags("available_bytes") >= bytes("available_bytes"));
    let text = scene.output("df", &["-h", "--ags"]);
    let head = text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(head, ["Filesystem", "Size", "Used", "Avail", "Use%"]);
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(scene.output("df", &["-i"]).contains("IUse%"));
}

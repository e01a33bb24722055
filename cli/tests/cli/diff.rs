//! diff.

use assert_cmd::Command;
use samples::Sample;

use crate::{Scene, xebec};

/// A scene with a copy of its image, which differs after `change`.
struct Pair {
    scene: Scene,
    copy: String,
}

impl Pair {
    fn new() -> Self {
        let scene = Scene::new(Sample::Clean);
        let copy = scene.beside("copy.xfs").to_str().unwrap().to_owned();
        std::fs::copy(scene.image(), &copy).unwrap();
        Self { scene, copy }
    }

    /// Runs lines of a session on the copy.
    fn change(&self, lines: &str) {
        xebec().args(["sh", &self.copy]).write_stdin(lines).assert().success();
    }

    fn diff(&self, options: &[&str]) -> Command {
        let mut diff = self.scene.xebec("diff", &[&self.copy]);
        diff.args(options);
        diff
    }

    fn output(&self, options: &[&str], code: i32) -> String {
        let output = self.diff(options).assert().code(code).get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    }
}

const CHANGES: &str = "\
mkdir -p /new/below
write /new/below/file --text 12345
rm /usr/share/doc/chapter-100.txt
chmod 600 /etc/motd
chown 7:8 /etc/passwd
write /etc/group --text other
setfattr -n user.color -v blue /home/ada/notes.txt
rm /home/welcome
mkdir /home/welcome
";

#[test]
fn equal_volumes_are_equal() {
    let pair = Pair::new();
    assert_eq!(pair.output(&[], 0), "");
    assert_eq!(pair.output(&["--mtime"], 0), "");
    pair.change("touch /etc/motd");
    assert_eq!(pair.output(&[], 0), "");
    assert_eq!(pair.output(&["--mtime"], 1), "M etc/motd  (mtime)\n");
}

#[test]
fn differences_are_shown_in_all_formats() {
    let pair = Pair::new();
    let doc = pair.scene.output("find", &["/usr", "-name", "chapter-100.txt"]);
    let changes = CHANGES.replace("/usr/share/doc/chapter-100.txt", doc.trim());
    pair.change(&changes);
    let details = pair.output(&[], 1);
    for line in [
        "A new\n",
        "A new/below\n",
        "A new/below/file\n",
        "M etc/motd  (mode -rw-r--r-- -> -rw-------)\n",
        "M etc/passwd  (owner 0:0 -> 7:8)\n",
        "M home/ada/notes.txt  (user.color)\n",
        "T home/welcome  (symbolic link -> directory, ",
    ] {
        assert!(
            details.contains(line) || line.ends_with(", ") && details.contains(&line[..40]),
            "{line}: {details}"
        );
    }
    assert!(details.contains(&format!("D {}\n", &doc.trim()[1..])), "{details}");
    assert!(details.contains("M etc/group  (size "), "{details}");
    let status = pair.output(&["--name-status"], 1);
    assert!(status.contains("M\tetc/motd\n") && status.contains("A\tnew/below/file\n"), "{status}");
    let names = pair.output(&["--name-only", "-0"], 1);
    assert_eq!(names.matches('\0').count(), status.lines().count());
    let brief = pair.output(&["--brief"], 1);
    assert!(brief.contains(&format!("Only in {}: new\n", pair.copy)), "{brief}");
    assert!(!brief.contains("below"), "{brief}");
    let stat = pair.output(&["--stat"], 1);
    assert!(stat.contains(" 3 added, 1 removed, 5 changed\n"), "{stat}");
    let ignoring = pair.output(&["--ignore", "mode,owner", "--ignore", "xattrs"], 1);
    assert!(!ignoring.contains("etc/motd") && !ignoring.contains("passwd"), "{ignoring}");
    let json: serde_json::Value = serde_json::from_str(&pair.output(&["--json"], 1)).unwrap();
    let entries = json["entries"].as_array().unwrap();
    assert_eq!((json["command"].as_str(), entries.len()), (Some("diff"), status.lines().count()));
    let motd = entries.iter().find(|entry| entry["path"] == "etc/motd").unwrap();
    assert_eq!((&motd["properties"][0], &motd["new"]["mode"]), (&"mode".into(), &"0600".into()));
    assert_eq!(json["added"], 3);
}

#[test]
fn a_path_is_compared_with_a_directory() {
    let scene = Scene::new(Sample::Clean);
    let to = scene.beside("out");
    scene.xebec("extract", &["--to"]).arg(&to).arg("/home").assert().success();
    let operand = format!("{}:/home", scene.image().display());
    let diff = |code| {
        let mut diff = xebec();
        diff.args(["diff", &operand]).arg(&to).args(["--ignore", "owner"]);
        String::from_utf8(diff.assert().code(code).get_output().stdout.clone()).unwrap()
    };
    assert_eq!(diff(0), "");
    std::fs::write(to.join("grace/sparse"), "short").unwrap();
    std::fs::write(to.join("more"), "").unwrap();
    assert_eq!(diff(1), "M grace/sparse  (size 8388612 -> 5)\nA more\n");
}

/// Holes on one side are compared with zeros on the other.
#[test]
fn contents_of_one_size_are_compared() {
    let pair = Pair::new();
    let operands = |image: &str| format!("{image}:/home/grace/sparse");
    let (left, right) = (operands(pair.scene.image().to_str().unwrap()), operands(&pair.copy));
    let mut zeros = xebec();
    zeros.args(["write", &pair.copy, "/home/grace/sparse", "--at", "2000000"]).write_stdin(vec![0; 300_000]);
    zeros.assert().success();
    xebec().args(["diff", &left, &right]).assert().code(0).stdout("");
    let mut one = xebec();
    one.args(["write", &pair.copy, "/home/grace/sparse", "--at", "4000000"])
        .write_stdin("x")
        .assert()
        .success();
    xebec().args(["diff", &left, &right]).assert().code(1).stdout("M .  (contents)\n");
}

#[test]
fn trouble_is_2() {
    let pair = Pair::new();
    let none = format!("{}:/none", pair.copy);
    let output = pair.scene.xebec("diff", &[&none]).assert().code(2).get_output().clone();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("copy.xfs: /none: no such file"), "{message}");
    let missing = pair.scene.beside("missing.xfs");
    pair.scene.xebec("diff", &[]).arg(missing).assert().code(2);
    let folder = pair.scene.beside("");
    xebec().arg("diff").args([&folder, &folder]).assert().code(2);
}

//! `--json`: documents and messages of all commands.
//!
//! The list of commands is taken from the manual pages: a command that is not in the table below fails the test.

use std::collections::{BTreeMap, BTreeSet};

use samples::Sample;
use serde_json::Value;

use crate::{Scene, xebec};

/// Arguments with which each command fails; `@` is an image that does not exist.
const FAILING: &[(&str, &[&str])] = &[
    ("info", &["@"]),
    ("ls", &["@"]),
    ("tree", &["@"]),
    ("stat", &["@", "/"]),
    ("cat", &["@", "/f"]),
    ("find", &["@"]),
    ("df", &["@"]),
    ("diff", &["@", "@"]),
    ("map", &["@"]),
    ("du", &["@"]),
    ("extract", &["@", "--to", "@.out"]),
    ("check", &["@"]),
    ("log", &["@"]),
    ("dump", &["@", "sb"]),
    ("filefrag", &["@", "/f"]),
    ("getfacl", &["@", "/f"]),
    ("getfattr", &["@", "/f"]),
    ("lsattr", &["@", "/f"]),
    ("manifest", &["@"]),
    ("mkdir", &["@", "/f"]),
    ("touch", &["@", "/f"]),
    ("ln", &["@", "/f", "/g"]),
    ("mv", &["@", "/f", "/g"]),
    ("rm", &["@", "/f"]),
    ("rmdir", &["@", "/f"]),
    ("chmod", &["@", "600", "/f"]),
    ("chown", &["@", "1", "/f"]),
    ("write", &["@", "/f", "--text", "x"]),
    ("cp", &["@", "file", "/f"]),
    ("tar-in", &["@", "a.tar"]),
    ("tar-out", &["@", "/"]),
    ("truncate", &["@", "-s", "1", "/f"]),
    ("fallocate", &["@", "-l", "1", "/f"]),
    ("reflink", &["@", "/f", "/g"]),
    ("setfacl", &["@", "-b", "/f"]),
    ("setfattr", &["@", "-n", "user.a", "/f"]),
    ("chattr", &["@", "+i", "/f"]),
    ("project", &["@", "1", "/f"]),
    ("extsize", &["@", "0", "/f"]),
    ("cowextsize", &["@", "0", "/f"]),
    ("mknod", &["@", "/f", "p"]),
    ("sh", &["@", "-c", "ls"]),
    ("replay", &["@"]),
    ("mount", &["@", "@.mnt"]),
    ("umount", &["@"]),
    ("status", &["@"]),
    ("bench", &["--compare", "@", "@"]),
    ("grow", &["@"]),
    ("shrink", &["@", "--size", "1g"]),
    ("minimize", &["@"]),
    ("trim", &["@"]),
    ("label", &["@"]),
    ("uuid", &["@"]),
    ("features", &["@"]),
    ("clone", &["@", "@.copy"]),
    ("push", &["@", "file:///@/volume"]),
    ("pull", &["file:///@/volume", "@.file"]),
    ("snapshot", &["list", "file:///@/volume"]),
    ("objects", &["audit", "file:///@/volume"]),
    ("sync", &["@.dir", "@"]),
    ("create", &["@.new", "--from", "@"]),
    ("mkfs", &["@/below/a/file", "--size", "1g"]),
    ("completions", &["no-such-shell"]),
    ("man", &["no-such-command"]),
];

/// Commands that write a document, with arguments.
const SHOWING: &[(&str, &[&str])] = &[
    ("info", &[]),
    ("ls", &["-l", "/etc"]),
    ("tree", &["/etc"]),
    ("stat", &["/etc/motd"]),
    ("find", &["/etc"]),
    ("df", &["--ags"]),
    ("du", &["-a", "/etc"]),
    ("map", &[]),
    ("check", &[]),
    ("log", &[]),
    ("dump", &["sb", "0"]),
    ("filefrag", &["/etc/motd"]),
    ("getfacl", &["/etc/motd"]),
    ("getfattr", &["/home/ada/notes.txt"]),
    ("getfattr", &["-n", "user.origin", "/home/ada/notes.txt"]),
    ("lsattr", &["/etc"]),
    ("replay", &[]),
    ("label", &[]),
    ("uuid", &[]),
    ("features", &[]),
    ("trim", &[]),
    ("minimize", &[]),
];

/// Names of all commands, without their subcommands.
fn commands() -> BTreeSet<String> {
    let pages = tempfile::tempdir().unwrap();
    xebec().args(["man", "--to"]).arg(pages.path()).assert().success();
    let names = std::fs::read_dir(pages.path()).unwrap();
    let names: BTreeSet<String> = names
        .filter_map(|page| {
            let name = page.unwrap().file_name().into_string().unwrap();
            Some(name.strip_prefix("xebec-")?.strip_suffix(".1")?.to_owned())
        })
        .collect();
    let is_below = |name: &String| {
        let dashes = name.match_indices('-').filter_map(|(at, _)| name.get(..at));
        dashes.into_iter().any(|command| names.contains(command))
    };
    names.iter().filter(|name| !is_below(name)).cloned().collect()
}

/// Parses JSON objects, one per line.
fn objects(message: &[u8]) -> Vec<Value> {
    let message = String::from_utf8(message.to_vec()).unwrap();
    message.lines().map(|line| serde_json::from_str(line).map_err(|_| &message).unwrap()).collect()
}

#[test]
fn every_command_is_in_the_table_of_this_test() {
    let table: BTreeSet<String> = FAILING.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(commands(), table);
}

#[test]
fn every_command_reports_a_failure_as_one_object() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none").to_str().unwrap().to_owned();
    let table: BTreeMap<_, _> = FAILING.iter().copied().collect();
    for (name, arguments) in table {
        let help = xebec().args([name, "--help"]).assert().success().get_output().stdout.clone();
        assert!(String::from_utf8(help).unwrap().contains("--json"), "{name}");
        let arguments: Vec<String> = arguments.iter().map(|word| word.replace('@', &none)).collect();
        let words = xebec().arg(name).args(&arguments).current_dir(folder.path()).output().unwrap();
        let output =
            xebec().arg(name).args(&arguments).arg("--json").current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), words.status.code(), "{name}: exit codes stay");
        assert_ne!(output.status.code(), Some(0), "{name}");
        let report = objects(&output.stderr);
        assert_eq!(report.len(), 1, "{name}: {report:?}");
        assert!(
            report[0]["error"]["message"].as_str().is_some_and(|text| !text.is_empty()),
            "{name}: {report:?}"
        );
        let wrong = xebec().args([name, "--json", "--no-such-option"]).output().unwrap();
        let report = objects(&wrong.stderr);
        assert_eq!(report.len(), 1, "{name}: {report:?}");
        let message = report[0]["error"]["message"].as_str().unwrap();
        assert!(message.contains("--no-such-option") && !message.contains('\n'), "{name}: {message}");
        assert_eq!(wrong.status.code(), Some(if name == "check" { 16 } else { 2 }), "{name}");
    }
}

#[test]
fn commands_that_report_write_one_document() {
    let scene = Scene::new(Sample::Clean);
    for (name, arguments) in SHOWING {
        let document = scene.json(name, arguments);
        assert_eq!(document["version"], 1, "{name}");
        assert_eq!(document["command"], *name);
        assert_eq!(document["image"], scene.image().to_str().unwrap(), "{name}");
    }
    let document = scene.json("getfattr", &["/home/ada/notes.txt"]);
    assert_eq!(document["files"][0]["path"], "/home/ada/notes.txt");
    assert_eq!(document["files"][0]["xattrs"]["user.origin"], "7772697474656e2062792068616e64");
    let dirty = Scene::new(Sample::Dirty).json("replay", &[]);
    assert_eq!(dirty["replayed"], true);
    assert!(dirty["items"].as_u64().unwrap() > 0, "{dirty}");
}

/// Also with several failures. Notes and warnings are objects, too.
#[test]
fn error_objects_have_path_and_errno() {
    let scene = Scene::new(Sample::Dirty);
    let output =
        scene.xebec("stat", &["--json", "/none", "/etc/passwd/x"]).assert().code(1).get_output().clone();
    let report = objects(&output.stderr);
    assert!(report[0]["note"]["message"].as_str().unwrap().contains("replayed in memory"), "{report:?}");
    let errors: Vec<&Value> = report.iter().filter_map(|one| one.get("error")).collect();
    assert_eq!(errors.len(), 2, "{report:?}");
    assert_eq!((&errors[0]["path"], &errors[0]["errno"]), (&"/none".into(), &2.into()));
    assert_eq!(errors[1]["errno"], 20);
    assert_eq!(errors[0]["image"], scene.image().to_str().unwrap());
    assert!(!errors[0]["message"].as_str().unwrap().contains("sample.xfs"), "{report:?}");
    let output = scene.xebec("rm", &["--json", "/none", "/gone"]).assert().code(1).get_output().clone();
    let report = objects(&output.stderr);
    assert_eq!((&report[1]["error"]["path"], &report[1]["error"]["errno"]), (&"/gone".into(), &2.into()));
    let mut session = scene.xebec("sh", &["--json"]);
    let output = session.write_stdin("rm /none\nls /none\nnonsense\n").assert().code(1).get_output().clone();
    let report = objects(&output.stderr);
    assert_eq!(report.len(), 3, "{report:?}");
    assert_eq!((&report[0]["error"]["path"], &report[0]["error"]["errno"]), (&"/none".into(), &2.into()));
    let file = scene.beside("file");
    std::fs::write(&file, "x").unwrap();
    let to = format!("{}:/file", scene.image().display());
    let shown =
        xebec().args(["cp", "-v", "--json"]).arg(&file).arg(&to).assert().success().get_output().clone();
    let shown = objects(&shown.stdout);
    assert_eq!((&shown[0]["from"], &shown[0]["to"]), (&file.to_str().unwrap().into(), &to.into()));
}

/// Regression: in a session, a usage error was one line that contained `\n`.
#[test]
fn usage_errors_in_a_session_are_one_line() {
    let scene = Scene::new(Sample::Clean);
    let output =
        scene.xebec("sh", &[]).write_stdin("mkdir\nnonsense\n").assert().code(1).get_output().clone();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 2, "{message}");
    assert!(
        !message.contains("\\n") && message.contains("line 1: the following required arguments"),
        "{message}"
    );
    assert!(
        message.contains("line 2: unrecognized subcommand 'nonsense'") && !message.contains("Usage"),
        "{message}"
    );
}

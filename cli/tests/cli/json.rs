//! `--json`: every command of the command line takes it, and what fails is then an object, too.
//!
//! `--json` was taken by all commands and heeded by those that show something; errors stayed lines of words, so that a
//! program had to parse both. The list of commands is that of the manual pages, which clap's own tree makes: a command
//! that is not in the table below fails the test.

use std::collections::{BTreeMap, BTreeSet};

use samples::Sample;
use serde_json::Value;

use crate::{Scene, xebec};

/// What a command is called with to fail, `@` for an image that does not exist.
const FAILING: &[(&str, &[&str])] = &[
    ("info", &["@"]),
    ("ls", &["@"]),
    ("tree", &["@"]),
    ("stat", &["@", "/"]),
    ("cat", &["@", "/f"]),
    ("find", &["@"]),
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
    ("grow", &["@"]),
    ("shrink", &["@", "--size", "1g"]),
    ("minimize", &["@"]),
    ("trim", &["@"]),
    ("label", &["@"]),
    ("uuid", &["@"]),
    ("features", &["@"]),
    ("clone", &["@", "@.copy"]),
    ("sync", &["@.dir", "@"]),
    ("create", &["@.new", "--from", "@"]),
    ("mkfs", &["@/below/a/file", "--size", "1g"]),
    ("completions", &["no-such-shell"]),
    ("man", &["no-such-command"]),
];

/// Commands that print facts, called so that they do.
const SHOWING: &[(&str, &[&str])] = &[
    ("info", &[]),
    ("ls", &["-l", "/etc"]),
    ("tree", &["/etc"]),
    ("stat", &["/etc/motd"]),
    ("find", &["/etc"]),
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

/// The commands that clap knows.
fn commands() -> BTreeSet<String> {
    let pages = tempfile::tempdir().unwrap();
    xebec().args(["man", "--to"]).arg(pages.path()).assert().success();
    let names = std::fs::read_dir(pages.path()).unwrap();
    names
        .filter_map(|page| {
            let name = page.unwrap().file_name().into_string().unwrap();
            Some(name.strip_prefix("xebec-")?.strip_suffix(".1")?.to_owned())
        })
        .collect()
}

/// The objects of standard error, one a line.
fn objects(said: &[u8]) -> Vec<Value> {
    let said = String::from_utf8(said.to_vec()).unwrap();
    said.lines().map(|line| serde_json::from_str(line).map_err(|_| &said).unwrap()).collect()
}

#[test]
fn each_command_has_one_page_and_one_entry_here() {
    let table: BTreeSet<String> = FAILING.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(commands(), table);
}

#[test]
fn each_command_takes_json_and_fails_with_one_object() {
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
        let told = objects(&output.stderr);
        assert_eq!(told.len(), 1, "{name}: {told:?}");
        assert!(
            told[0]["error"]["message"].as_str().is_some_and(|text| !text.is_empty()),
            "{name}: {told:?}"
        );
        let wrong = xebec().args([name, "--json", "--no-such-option"]).output().unwrap();
        let told = objects(&wrong.stderr);
        assert_eq!(told.len(), 1, "{name}: {told:?}");
        let message = told[0]["error"]["message"].as_str().unwrap();
        assert!(message.contains("--no-such-option") && !message.contains('\n'), "{name}: {message}");
        assert_eq!(wrong.status.code(), Some(if name == "check" { 16 } else { 2 }), "{name}");
    }
}

#[test]
fn what_shows_facts_writes_one_document() {
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

/// Errors tell the path and the errno, also where several fail, and notes and warnings are objects, too.
#[test]
fn an_error_has_its_path_and_errno() {
    let scene = Scene::new(Sample::Dirty);
    let output =
        scene.xebec("stat", &["--json", "/none", "/etc/passwd/x"]).assert().code(1).get_output().clone();
    let told = objects(&output.stderr);
    assert!(told[0]["note"]["message"].as_str().unwrap().contains("replayed in memory"), "{told:?}");
    let errors: Vec<&Value> = told.iter().filter_map(|one| one.get("error")).collect();
    assert_eq!(errors.len(), 2, "{told:?}");
    assert_eq!((&errors[0]["path"], &errors[0]["errno"]), (&"/none".into(), &2.into()));
    assert_eq!(errors[1]["errno"], 20);
    assert_eq!(errors[0]["image"], scene.image().to_str().unwrap());
    assert!(!errors[0]["message"].as_str().unwrap().contains("sample.xfs"), "{told:?}");
    let output = scene.xebec("rm", &["--json", "/none", "/gone"]).assert().code(1).get_output().clone();
    let told = objects(&output.stderr);
    assert_eq!((&told[1]["error"]["path"], &told[1]["error"]["errno"]), (&"/gone".into(), &2.into()));
    let mut session = scene.xebec("sh", &["--json"]);
    let output = session.write_stdin("rm /none\nls /none\nnonsense\n").assert().code(1).get_output().clone();
    let told = objects(&output.stderr);
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!((&told[0]["error"]["path"], &told[0]["error"]["errno"]), (&"/none".into(), &2.into()));
    let file = scene.beside("file");
    std::fs::write(&file, "x").unwrap();
    let to = format!("{}:/file", scene.image().display());
    let shown =
        xebec().args(["cp", "-v", "--json"]).arg(&file).arg(&to).assert().success().get_output().clone();
    let shown = objects(&shown.stdout);
    assert_eq!((&shown[0]["from"], &shown[0]["to"]), (&file.to_str().unwrap().into(), &to.into()));
}

/// Errors of usage have several lines; in a session each was one line with `\n` in it.
#[test]
fn wrong_usage_in_a_session_is_one_line_of_words() {
    let scene = Scene::new(Sample::Clean);
    let output =
        scene.xebec("sh", &[]).write_stdin("mkdir\nnonsense\n").assert().code(1).get_output().clone();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(!said.contains("\\n") && said.contains("line 1: the following required arguments"), "{said}");
    assert!(said.contains("line 2: unrecognized subcommand 'nonsense'") && !said.contains("Usage"), "{said}");
}

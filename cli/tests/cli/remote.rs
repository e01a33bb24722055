//! Volumes that URLs name: what a URL may look like, the reasons why it cannot be opened, and volumes on object storage
//! in a directory. `proof/interop/tests/ceph.rs` uses a cluster.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use assert_cmd::Command;
use samples::Sample;

use crate::{Scene, stderr, xebec};

/// Standard output of a command that succeeds.
fn stdout(command: &mut Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

/// A URL is not the name of a file, for no command.
#[test]
fn wrong_urls_are_refused_with_their_form() {
    for words in [
        ["ls", "rbd://image"].as_slice(),
        &["cat", "rbd://image:/file"],
        &["mkdir", "rbd://image", "/new"],
        &["cp", "rbd://image:/file", "copy"],
        // `cp` into a volume used to say "rbd: no such image".
        &["cp", "-r", "/etc/skel", "rbd://image:/"],
        &["cp", "rbd://image:/file", "rbd://image:/copy"],
        &["cp", "rbd://image:/file", "rbd://pool/other:/copy"],
        &["cp", "rbd://image", "/etc/hostname", "/path"],
        &["mkfs", "rbd://image", "--size", "1g"],
        &["check", "rbd://image"],
        &["mount", "-f", "rbd://image", "/mnt"],
        &["sync", "/etc", "rbd://image"],
    ] {
        let message = stderr(xebec().args(words));
        let expected = "rbd://image: a pool and an image must be named (the form is rbd://POOL/";
        assert!(message.contains(expected), "{words:?}: {message}");
    }
}

/// The library need not be installed: then the message says so.
#[test]
fn a_configuration_that_is_missing_is_named() {
    let url = "rbd://pool/image?conf=/no/such/file";
    for words in [["ls", url].as_slice(), &["mkfs", url, "--size", "1g"]] {
        let message = stderr(xebec().args(words).env_remove("CEPH_ARGS"));
        let reasons = ["cannot read the configuration of Ceph in /no/such/file", "apt-get install librbd1"];
        assert!(reasons.iter().any(|reason| message.contains(reason)), "{words:?}: {message}");
    }
}

/// The library reads the bytes as they are.
#[test]
fn an_environment_that_is_not_utf8_is_refused() {
    let message =
        stderr(xebec().args(["ls", "rbd://pool/image"]).env("CEPH_ARGS", OsStr::from_bytes(b"--id \xff")));
    assert!(
        message.contains("cannot read the configuration of Ceph in CEPH_ARGS (it is not UTF-8)"),
        "{message}"
    );
}

/// URLs used to be taken for paths of files.
#[test]
fn what_uses_files_only_says_so() {
    let scene = Scene::new(Sample::Clean);
    let image = scene.image().to_str().unwrap();
    let (in_image, new) = (format!("{image}:/"), scene.beside("new"));
    let (new, url) = (new.to_str().unwrap(), "rbd://pool/image?key=hidden");
    let files_only = "files only: create a volume with mkfs, then use sync";
    for (words, expected) in [
        (["clone", image, url].as_slice(), "cannot share data: copy with pull or push"),
        (&["clone", url, new], "cannot share data: copy with pull or push"),
        (&["extract", image, "--to", url], files_only),
        (&["push", url, "rbd://pool/other"], files_only),
        (&["pull", url, "rbd://pool/other"], files_only),
        (&["create", url, "--from", "/etc/skel", "--force"], "is not replaced"),
        (&["cp", "-r", &in_image, url], "this names no path in the volume: write rbd://pool/image:/"),
        (&["cp", "-r", "-t", url, &in_image], "this names no path in the volume: write rbd://pool/image:/"),
        (&["mkfs", new, "--size", "1g", "-l", "logdev=rbd://pool/log"], "an external log must be in a file"),
        (&["mkfs", new, "--size", "1g", "--log-device", url], "an external log must be in a file"),
        (&["ls", image, "--log-device", url], "an external log must be in a file"),
        (&["mkfs", url, "--partition", "1"], "a new volume takes all of rbd://pool/image"),
        (&["mkfs", url, "--offset", "1m"], "a new volume takes all of rbd://pool/image"),
    ] {
        let message = stderr(xebec().args(words));
        assert!(message.contains("rbd://pool/") && message.contains(expected), "{words:?}: {message}");
        assert!(!message.contains("hidden"), "{words:?}: {message}");
    }
    assert!(!scene.beside("new").exists());
}

#[test]
fn keys_are_not_repeated_in_messages() {
    let url = "rbd://pool/image?key=hidden&conf=/no/such/file";
    let path = format!("{url}:/path");
    for words in [
        ["ls", url].as_slice(),
        &["info", url, "--json"],
        &["check", url],
        &["touch", &path],
        &["cp", "/etc/hostname", &path],
        &["cp", "/etc/hostname", url],
        &["cp", "/etc/hostname", &path, "rbd://pool/other:/path"],
        &["cp", &path, "rbd://pool/other:/path"],
        &["mv", &path, "rbd://pool/other:/path"],
        &["diff", url, "/etc"],
        &["mkfs", url, "--size", "1g"],
        &["create", url, "--from", "/etc/skel"],
        &["push", "/etc/hostname", url],
        &["pull", url, "/no/such/folder/file"],
        &["snapshot", "list", url],
        &["clone", url, "rbd://pool/copy"],
        &["sync", "/etc", url, "--json"],
        &["ls", "rbd://pool/image?hidden"],
        &["ls", "rbd://pool/image?key=hidden%ff"],
        // The name of the image in front of the message had them.
        &["ls", "https://user:hidden@host/volume"],
        &["info", "https://hidden@host/volume", "--json"],
        &["cp", "-r", "/etc/skel", "https://user:hidden@host/volume:/"],
        &["mkfs", "s3://key:hidden@bucket/volume", "--size", "1g"],
        &["ls", "s3://bucket/volume?key=hidden"],
        &["check", "https://host/volume@now?signature=hidden", "--json"],
    ] {
        let message = stderr(xebec().args(words).env_remove("CEPH_ARGS"));
        assert!(!message.is_empty() && !message.contains("hidden"), "{words:?}: {message}");
    }
}

/// They had no `errno`.
#[test]
fn errors_of_urls_have_their_errno() {
    let folder = tempfile::tempdir().unwrap();
    let absent = format!("file://{}/absent", folder.path().display());
    for (url, errno) in [("rbd://image", 22), ("s3://bucket", 22), (&absent, 2)] {
        let message = stderr(xebec().args(["ls", url, "--json"]));
        let message: serde_json::Value = serde_json::from_str(&message).unwrap();
        assert_eq!(message["error"]["errno"], errno, "{message}");
    }
}

/// Commands on a volume in a directory of the host, which is stored as in any object store.
#[test]
fn a_volume_on_object_storage_is_an_image() {
    let folder = tempfile::tempdir().unwrap();
    used_as_an_image(&format!("file://{}/bucket/volume", folder.path().display()));
}

/// The same in a store behind a network. Without its URL in `XEBEC_TEST_STORE`, the test starts a server of S3, and
/// runs itself again with that server's URL.
#[cfg(feature = "network")]
#[test]
fn a_volume_behind_a_network_is_an_image() {
    if let Ok(url) = std::env::var("XEBEC_TEST_STORE") {
        used_as_an_image(&format!("{url}-image"));
        return crate::stored::all(&url);
    }
    let Some(mut server) = needs::met(needs::s3()) else { return };
    let test = ["--exact", "remote::a_volume_behind_a_network_is_an_image", "--nocapture"];
    assert!(server.arg(std::env::current_exe().unwrap()).args(test).status().unwrap().success());
}

/// Uses the volume of a URL, which does not exist yet.
fn used_as_an_image(url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| stdout(xebec().args(words));
    run(&["mkfs", url, "--size", "1g"]);
    let again = stderr(xebec().args(["mkfs", url, "--size", "1g"]));
    assert!(again.contains("-f"), "{again}");
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/large"), vec![7; 3 << 20]).unwrap();
    fs::write(source.join("small"), "text").unwrap();
    run(&["cp", "-r", source.to_str().unwrap(), &format!("{url}:/tree")]);
    run(&["mkdir", url, "/new"]);
    assert_eq!(run(&["cat", &format!("{url}:/tree/small")]), "text");
    assert_eq!(run(&["ls", &format!("{url}:/")]), "new\ntree\n");
    run(&["check", url]);
    assert!(run(&["info", url]).contains("blocks=262144"));
    let back = folder.path().join("back");
    run(&["extract", url, "--to", back.to_str().unwrap()]);
    assert_eq!(fs::read(back.join("tree/sub/large")).unwrap(), vec![7; 3 << 20]);
    run(&["sync", source.to_str().unwrap(), &format!("{url}:/tree")]);
    let absent = stderr(xebec().args(["ls", &format!("{url}2")]));
    assert!(absent.contains("there is no volume"), "{absent}");
}

/// A writer that was killed leaves the volume open. What it had synced is there for the next one.
#[test]
fn a_killed_writer_is_taken_over_from() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/volume", folder.path().display());
    stdout(xebec().args(["mkfs", &url, "--size", "300m"]));
    stdout(xebec().args(["mkdir", &url, "/kept"]));
    let head = folder.path().join("volume/head");
    let closed = fs::read(&head).unwrap();
    // The same as a kill: the head of an open volume, made by a claim.
    let device = remote::RemoteUrl::new(url.as_ref()).unwrap();
    let options = remote::RemoteOptions { writable: true, ..Default::default() };
    let device = device.open(&options).unwrap().device;
    assert_ne!(fs::read(&head).unwrap(), closed);
    let refused = stderr(xebec().args(["mkdir", &url, "/new"]));
    assert!(refused.contains("open for writing by process") && refused.contains("--take-over"), "{refused}");
    let warned = xebec().args(["ls", &url]).output().unwrap();
    assert!(String::from_utf8_lossy(&warned.stderr).contains("has it open for changes"));
    stdout(xebec().args(["mkdir", "--take-over", &url, "/new"]));
    drop(device);
    assert_eq!(stdout(xebec().args(["ls", &url])), "kept\nnew\n");
    stdout(xebec().args(["check", &url]));
}

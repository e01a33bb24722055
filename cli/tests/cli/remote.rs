//! Volumes that URLs name, without the storage: what a URL may look like, and the reasons why it cannot be opened.
//! `proof/interop/tests/ceph.rs` uses a cluster.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use samples::Sample;

use crate::{Scene, stderr, xebec};

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
        (["create", url, "--from", "/etc/skel"].as_slice(), files_only),
        (&["clone", image, url], files_only),
        (&["clone", url, new], files_only),
        (&["extract", image, "--to", url], files_only),
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
        &["sync", "/etc", url, "--json"],
        &["ls", "rbd://pool/image?hidden"],
        &["ls", "rbd://pool/image?key=hidden%ff"],
    ] {
        let message = stderr(xebec().args(words).env_remove("CEPH_ARGS"));
        assert!(!message.is_empty() && !message.contains("hidden"), "{words:?}: {message}");
    }
}

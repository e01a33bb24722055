//! Volumes that URLs name, without the storage: what a URL may look like, and the reasons why it cannot be opened.
//! `proof/interop/tests/ceph.rs` uses a cluster.

use crate::{stderr, xebec};

/// A URL is not the name of a file, for no command.
#[test]
fn wrong_urls_are_refused_with_their_form() {
    for words in [
        ["ls", "rbd://image"].as_slice(),
        &["cat", "rbd://image:/file"],
        &["mkdir", "rbd://image", "/new"],
        &["cp", "rbd://image:/file", "copy"],
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

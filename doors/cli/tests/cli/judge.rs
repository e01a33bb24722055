//! check, log, dump.

use std::os::unix::fs::FileExt as _;

use samples::Sample;

use crate::{Scene, xebec};

#[test]
fn check_exits_as_fsck() {
    for sample in Sample::ALL {
        let scene = Scene::new(sample);
        let json = scene.json("check", &[]);
        assert_eq!(
            (json["summary"]["clean"].as_bool(), json["summary"]["errors"].as_u64()),
            (Some(true), Some(0))
        );
        assert!(scene.output("check", &[]).contains(": clean: 0 errors, "));
    }
    let scene = Scene::new(Sample::Clean);
    // The second sector is AG 0's AGF; its checksum does not fit any more.
    let image = std::fs::OpenOptions::new().write(true).open(scene.image()).unwrap();
    image.write_all_at(b"?", 512 + 100).unwrap();
    let damaged = scene.xebec("check", &[]).assert().code(4).get_output().stdout.clone();
    assert!(String::from_utf8(damaged).unwrap().starts_with("error: AG 0"));
    let json = scene.xebec("check", &["--json"]).assert().code(4).get_output().stdout.clone();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(
        (json["findings"][0]["severity"].as_str(), json["findings"][0]["ag"].as_u64()),
        (Some("error"), Some(0))
    );
    scene.xebec("check", &["--offset", "1s"]).assert().code(8);
    xebec().args(["check", "--no-such-option"]).assert().code(16);
    // A superblock that cannot be believed is a finding, not a failure to check.
    image.write_all_at(b"?", 200).unwrap();
    scene.xebec("check", &[]).assert().code(4);
}

#[test]
fn log_shows_transactions_and_their_items() {
    let scene = Scene::new(Sample::Clean);
    assert!(scene.output("log", &[]).starts_with("clean: head at "));
    let scene = Scene::new(Sample::Dirty);
    let text = scene.output("log", &[]);
    assert!(text.starts_with("dirty: tail at "), "{text}");
    assert!(
        text.contains("\ntransaction 0x")
            && text.contains("\n  inode ino ")
            && text.contains("\n  buf holds ")
    );
    let json = scene.json("log", &[]);
    assert_eq!((json["version"].as_u64(), json["state"].as_str()), (Some(1), Some("dirty")));
    let transactions = json["transactions"].as_array().unwrap();
    assert_eq!(Some(transactions.len() as u64), json["complete_transactions"].as_u64());
    assert!(json["unfinished_files"].as_array().unwrap().is_empty());
    let records = scene.json("log", &["--records"]);
    assert_eq!(Some(records["records"].as_array().unwrap().len() as u64), json["complete_records"].as_u64());
}

#[test]
fn dump_shows_structures_by_name() {
    let scene = Scene::new(Sample::Clean);
    assert!(scene.output("dump", &["agf", "1"]).contains("seqno = 1\n"));
    assert!(scene.output("dump", &["inode", "/etc/motd"]).contains("core.magic = "));
    assert_eq!(scene.json("dump", &["sb"])["type"], "sb");
    scene.xebec("dump", &["nonsense"]).assert().code(2);
    scene.xebec("dump", &["agf", "99"]).assert().code(1);
}

//! check, log, dump.

use std::os::unix::fs::FileExt as _;

use samples::Sample;

use crate::{Scene, xebec};

#[test]
fn check_has_the_exit_codes_of_fsck() {
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
    // The second sector is the AGF of AG 0: its checksum is wrong now.
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
    // A damaged superblock is a finding, not an operational error.
    image.write_all_at(b"?", 200).unwrap();
    scene.xebec("check", &[]).assert().code(4);
}

/// Regression: if items of the log could not be replayed, `check` only printed a warning. The JSON had no finding, and
/// the exit code was 0 if the rest was consistent.
#[test]
fn check_reports_a_log_that_cannot_be_replayed() {
    let findings = |scene: &Scene, more: &[&str]| -> Vec<String> {
        let mut check = scene.xebec("check", &["--json"]);
        let json = check.args(more).assert().code(4).get_output().stdout.clone();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let all = json["findings"].as_array().unwrap();
        let (counted, more) = all.iter().partition::<Vec<_>, _>(|finding| finding["more"].is_null());
        let more: u64 = more.iter().filter_map(|finding| finding["more"].as_u64()).sum();
        let errors = counted.iter().filter(|finding| finding["severity"] == "error").count() as u64 + more;
        assert_eq!(
            (json["summary"]["errors"].as_u64(), &json["summary"]["clean"]),
            (Some(errors), &false.into())
        );
        let of_log = all.iter().filter(|finding| finding["structure"] == "log");
        of_log.map(|finding| format!("{} {}", finding["field"], finding["found"])).collect()
    };
    let mut verified = 0;
    for (checksum, at) in inode_items(&std::fs::read(Scene::new(Sample::Dirty).image()).unwrap()) {
        let scene = Scene::new(Sample::Dirty);
        let image = std::fs::OpenOptions::new().read(true).write(true).open(scene.image()).unwrap();
        // A record without a checksum is accepted. The offset of the inode in its cluster is invalid.
        image.write_all_at(&[0; 4], checksum).unwrap();
        image.write_all_at(&0xffff_u32.to_le_bytes(), at + 52).unwrap();
        if scene.json("info", &[])["log"]["items_not_replayed"] == 0 {
            continue; // Another copy, or before the log's tail.
        }
        verified += 1;
        let found = findings(&scene, &[]);
        assert!(
            found.first().is_some_and(|one| one.contains("items") && one.contains("boffset")),
            "{found:?}"
        );
        // With --no-replay, the log is not checked.
        let without_replay = scene.xebec("check", &["--json", "--no-replay"]).output().unwrap().stdout;
        let without_replay: serde_json::Value = serde_json::from_slice(&without_replay).unwrap();
        let of_log = |finding: &serde_json::Value| finding["structure"] == "log";
        assert!(!without_replay["findings"].as_array().unwrap().iter().any(of_log));
    }
    assert!(verified > 0);
    // A log that was zeroed: nothing can be replayed.
    let scene = Scene::new(Sample::Dirty);
    let image = std::fs::OpenOptions::new().read(true).write(true).open(scene.image()).unwrap();
    let (start, blocks) = log_of(&std::fs::read(scene.image()).unwrap());
    image.write_all_at(&vec![0; blocks as usize], start).unwrap();
    let found = findings(&scene, &[]);
    assert!(
        matches!(found.as_slice(), [one] if one.contains("state") && one.contains("zeroed")),
        "{found:?}"
    );
}

/// Offset and length of the log in bytes.
fn log_of(image: &[u8]) -> (u64, u64) {
    let superblock = format::superblock::Superblock::parse(image).unwrap();
    let geometry = &superblock.geometry;
    let start = geometry.fs_block_offset(geometry.log_start.unwrap()).unwrap();
    (start, u64::from(superblock.raw.logblocks.get()) * u64::from(geometry.block_size))
}

/// Offsets of the inode items in the log of an image, each after the offset of the checksum of its record.
fn inode_items(image: &[u8]) -> Vec<(u64, u64)> {
    let (start, length) = log_of(image);
    let log = &image[start as usize..][..length as usize];
    let is_item = |at: &usize| log[*at..].starts_with(&[0x3b, 0x12]) && log[at + 2] < 5 && log[at + 3] == 0;
    // Not in the first word of a block, which is replaced by the cycle.
    let candidates = (0..log.len() - 56).step_by(4).filter(|at| at % 512 > 3 && at % 512 <= 512 - 56);
    let is_record = |block: &usize| log[block * 512..].starts_with(&0xfeed_babe_u32.to_be_bytes());
    let record = |at: usize| (0..=at / 512).rev().find(is_record).map(|block| (block * 512 + 32, at));
    let found = candidates.filter(is_item).filter_map(record);
    found.map(|(checksum, at)| (start + checksum as u64, start + at as u64)).collect()
}

#[test]
fn log_shows_transactions_and_items() {
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

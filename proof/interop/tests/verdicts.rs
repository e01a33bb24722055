//! The installed xfs_repair must give the recorded verdicts.

use interop::damage::{bases, judge};

/// One case in this number is judged again; all of them take a quarter of an hour.
const STEP: usize = 40;

#[test]
fn xfs_repair_gives_the_recorded_verdicts() {
    let Some(()) = needs::met(needs::newer_xfsprogs().and_then(|()| needs::tools(&["xfs_repair", "xz"])))
    else {
        return;
    };
    let bases = bases().unwrap();
    assert!(!bases.is_empty());
    for base in bases {
        let changed = judge::recheck(&base, STEP).unwrap();
        assert!(changed.is_empty(), "verdicts changed:\n{}", changed.join("\n"));
    }
}

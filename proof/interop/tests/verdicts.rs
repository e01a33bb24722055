//! The recorded verdicts of xfs_repair are those of the xfs_repair that is installed.

use interop::damage::{bases, judge};

/// One case in so many is asked again; the whole takes a quarter of an hour.
const STEP: usize = 40;

#[test]
fn xfs_repair_still_says_what_was_recorded() {
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

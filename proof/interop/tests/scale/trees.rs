//! Trees with extreme numbers of one thing.

use super::{is_full, judge};

/// `$1` is the case, `$2` the count, `$3` the maximum number of bytes read.
const TREE: &str = r#"
source_volume
"$interop" scale $1 mnt --count $2
mount -o remount,ro mnt
show source
"$xebec" create made --from mnt --json > summary
umount mnt
judge "a create"
# Holes are not read.
read=$(sed -n 's/^ *"bytes": \([0-9]*\),*$/\1/p' summary)
[ -z "$3" ] || [ "$read" -lt "$3" ] || fail "reading $read bytes"
life
"#;

/// Runs a case with the count `small`, or `full` with `XEBEC_SCALE=full`; at most `bytes` of the source may be read.
fn tree(test: &str, case: &str, small: u64, full: u64, bytes: &str) {
    let count = if is_full() { full } else { small };
    judge(test, &[], TREE, &[case, &count.to_string(), bytes]);
}

#[test]
fn many_files() {
    tree("many_files", "files", 6000, 1_000_000, "");
}

#[test]
fn many_links() {
    tree("many_links", "links", 4000, 400_000, "");
}

#[test]
fn names_of_every_byte() {
    tree("names_of_every_byte", "names", 300, 20_000, "");
}

#[test]
fn many_attributes() {
    tree("many_attributes", "attributes", 4000, 100_000, "");
}

#[test]
fn sparse_file_of_a_tebibyte() {
    tree("sparse_file_of_a_tebibyte", "sparse", 1 << 40, 1 << 40, "40000000");
}

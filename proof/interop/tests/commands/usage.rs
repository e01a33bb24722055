//! Compares `du` and `df` with those of GNU on a kernel mount of the same image: with hard links, sparse files,
//! preallocated files, and files that share blocks.

use crate::{Twins, script};

/// Creates the tree.
const MAKE: &str = r#"
mkdir -p a/b/c d/e "two words" many
head -c 300000 /dev/urandom > a/data; ln a/data a/b/hard; ln a/data d/hard
truncate -s 50M a/sparse; printf end | dd of=a/sparse bs=1 seek=30000000 conv=notrunc status=none
fallocate -l 3M d/reserved; head -c 1500000 /dev/urandom > a/source
command cp --reflink=always a/source d/clone; command cp --reflink=always a/source d/e/clone
dd if=/dev/urandom of=d/e/clone bs=4096 seek=10 count=4 conv=notrunc status=none
ln -s ../a/data d/link; mkfifo d/pipe; mknod d/null c 1 3; : > "two words/empty"; echo x > "two words/x"
for n in $(seq 500); do echo $n > many/some-file-with-a-long-name-$n; done
setfattr -n user.large -v "$(head -c 3000 /dev/zero | tr '\0' x)" a/b/c
"#;

/// Options for both.
const DU: &[&str] = &[
    "",
    "-a",
    "-s",
    "-c",
    "-ah",
    "-d1",
    "-d0",
    "--max-depth=2",
    "-S",
    "-Sa",
    "-l",
    "-al",
    "-k",
    "-m",
    "-B4096",
    "--inodes",
    "--inodes -a",
    "--inodes -l",
    "-hc",
    "--inodes -S",
];

/// Options for both, for files that are no directories: GNU du before 9.2 adds the sizes of directories.
const APPARENT: &[&str] = &["--apparent-size", "-b", "-bc", "-h --apparent-size"];

/// Several operands.
const OPERANDS: &[&str] =
    &["@a @d", "-c @a @d", "-c @d @a", "-a @a/data @d", "-c @d/e @d", "-ac @a/b/hard @a", "-l @a @a"];

/// Runs GNU du with each line of `lines` on the mount, and the program `$2` on the image, and prints the differences;
/// then the same with df.
const COMPARE: &str = r#"
cd "$1"
mount -t xfs -o loop,nouuid,noatime linux mnt
while read -r line; do
    (cd mnt/0; eval "du ${line//@/./}") | sed 's,\t\./,\t,' | sort > theirs
    eval "\"\$2\" du -q linux ${line//@//0/}" | sed 's,\t/0$,\t.,; s,\t/0/,\t,' | sort > ours
    cmp -s ours theirs || { echo "du $line"; diff theirs ours || true; }
done < lines
numbers() { tail -n +2 | sed 's/^[^ ]* *//; s/ *[^ ]*$//; s/  */ /g'; }
for options in -i -ih; do
    df $options mnt | numbers > theirs
    "$2" df -q $options linux | sed 's/$/ end/' | numbers > ours
    cmp -s ours theirs || { echo "df $options"; diff theirs ours || true; }
done
# The kernel keeps up to 8192 blocks in reserve.
read -r size used available percent < <(df -B1 mnt | numbers)
read -r our_size our_used our_available our_percent < <("$2" df -q -B1 linux | sed 's/$/ end/' | numbers)
[ $size = $our_size ] && [ $available -le $our_available ] && [ $our_available -le $((available + 8192 * 4096)) ] &&
    [ $((our_used + our_available)) = $our_size ] || echo "df: $our_size $our_available, not $size $available"
umount mnt
"#;

#[test]
fn du_and_df_show_what_those_of_gnu_show_on_a_mount() {
    let tools = ["mkfs.xfs", "du", "df", "diff"];
    let Some(twins) = needs::met(Twins::run(MAKE, &[&["touch @x-marks"]], &tools)) else { return };
    let folder = twins.folder.path();
    let mut lines = String::new();
    for options in DU {
        lines += &format!("{options} @\n");
    }
    for options in APPARENT {
        lines += &format!("{options} @a/data @a/sparse @d/link @d/pipe @d/null @d/reserved\n");
    }
    for operands in OPERANDS {
        lines += &format!("{operands}\n");
    }
    std::fs::write(folder.join("lines"), lines).unwrap();
    let differences = script(COMPARE, &[folder, &twins.xebec]);
    assert!(differences.is_empty(), "{differences}");
    // The blocks of the clones are counted once: 1,500,000 bytes are 367 blocks, of which 4 were replaced.
    let bytes = |options: &[&str]| -> u64 {
        let shown = twins.ours("du", &[options, &["-s", "-B1", "/0/a/source", "/0/d/clone", "-c"]].concat());
        shown.lines().last().unwrap().split('\t').next().unwrap().parse().unwrap()
    };
    assert_eq!(bytes(&[]), 2 * 367 * 4096);
    assert_eq!(bytes(&["--unique"]), 367 * 4096);
}

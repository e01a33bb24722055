//! Compares `find` with GNU find on a kernel mount of the same image: expressions must find the same paths.
//!
//! `find` had supported at most one test of each kind, all combined by "and": `-o`, `!`, parentheses, `-prune`, times
//! and permissions were missing.

use crate::{Twins, script};

/// Creates the tree; times are far from the limits of days and minutes.
const MAKE: &str = r#"
mkdir -p a/b/c d .hidden "with space"
echo x > a/one.txt; echo yy > a/b/two.TXT; : > a/b/c/empty; head -c 5000 /dev/zero > d/big.bin
head -c 1100000 /dev/zero > d/huge.bin; echo h > .hidden/file; echo s > "with space/f"
ln -s ../a/one.txt d/link; ln a/one.txt d/hard; mkfifo d/pipe; mknod d/null c 1 3; mkdir d/void
chmod 4755 a/one.txt; chmod 600 d/big.bin; chmod 1777 d/void; chmod 2750 a/b; chmod 000 a/b/c/empty
chown 7:8 d/big.bin; chown 4000000000:9 a/b/c/empty
touch -d '-30 minutes -20 seconds' a/b/two.TXT; touch -d '-90 minutes' d/huge.bin; touch -d '-36 hours' d/big.bin
touch -d '-60 hours' a/b/c/empty; touch -d '-400 days' .hidden/file; touch -d '+3 hours' "with space/f"
touch -h -d '-5 days' d/link; touch -a -d '-10 days' d/hard; touch -d '-12 hours' d/void
"#;

/// Expressions for both; the directory is `/0`.
const EXPRESSIONS: &[&str] = &[
    "",
    "-name '*.txt'",
    "-iname '*.txt'",
    "-name '*.txt' -o -name '*.bin'",
    "-type f -name '*.txt' -o -type d",
    r"\( -name '*.txt' -o -name '*.bin' \) -size +4k",
    "! -type f",
    "-not -type d -a -not -type l",
    r"! \( -type f -o -type d \)",
    r"! ! -type f",
    "-type f,l",
    "-path '*/a/b' -prune -o -print",
    "-name b -prune -o -type f -print",
    "-name b -prune",
    "-type d -name b -prune -false -o -type f",
    "-mtime 0",
    "-mtime 1",
    "-mtime -1",
    "-mtime +1",
    "-mtime 2",
    "-mtime +300",
    "-mtime -0.4",
    "-mtime +0.4",
    "-mmin -60",
    "-mmin +60",
    "-mmin 31",
    "-mmin 30",
    "-mmin 91",
    "-amin -60",
    "-atime +8",
    "-atime 10",
    "-cmin -600",
    "-ctime 0",
    "-newer @d/big.bin",
    "-newer @d/void -type f",
    "! -newer @d/big.bin",
    "-anewer @d/big.bin",
    "-cnewer @d/big.bin",
    "-newermt 2020-01-01",
    "-newermt '2 days ago'",
    "-newermt '1 hour ago' -type f",
    "-perm 644",
    "-perm -4000",
    "-perm /6000",
    "-perm -u=r",
    "-perm /u=x,g=x",
    "-perm u=rwx,go=rx",
    "-perm 0",
    "-perm /0",
    "-perm -0",
    "-perm -1000 -o -perm 600",
    "-size 0",
    "-size +1M",
    "-size -2",
    "-size 5000c",
    "-size +2499w",
    "-empty",
    "-empty -type d",
    "-links 2",
    "-links +1 -type f",
    "-uid 7",
    "-uid +6",
    "-gid -9",
    "-user 7",
    "-user 0 -type l",
    "-group 8 -o -group 9",
    "-maxdepth 1",
    "-mindepth 2 -maxdepth 2 -type f",
    "-mindepth 1 -name a -prune -o -print",
    "-true -name 'one*'",
    "-false -o -name 'one*'",
    "-name 'a' -print -o -name 'd' -print",
    "-name 'one.txt' -print -print",
    "-type f -print0",
    "-name x -o -name '*' -a ! -name '*.txt'",
];

/// Runs GNU find with each line of `theirs` on the mount, and the program `$2` with each line of `ours` on the image,
/// and prints the differences.
const COMPARE: &str = r#"
cd "$1"
mount -t xfs -o loop,nouuid,noatime linux mnt
while read -r line <&3; do
    read -r own <&4
    (cd mnt/0; eval "find . $line" 2> /dev/null) | tr '\0' '\n' | sort > theirs.found
    eval "\"\$2\" find -q linux /0 $own" | tr '\0' '\n' | sed 's,^/0,.,' | sort > ours.found
    cmp -s ours.found theirs.found || { echo "find $line"; diff theirs.found ours.found || true; }
done 3< theirs 4< ours
umount mnt
"#;

#[test]
fn expressions_match_gnu_find() {
    let tools = ["mkfs.xfs", "find", "diff"];
    let Some(twins) = needs::met(Twins::run(MAKE, &[&["touch @x-marks"]], &tools)) else { return };
    let folder = twins.folder.path();
    for (file, path) in [("theirs", "./"), ("ours", "/0/")] {
        let lines: String = EXPRESSIONS.iter().map(|line| format!("{}\n", line.replace('@', path))).collect();
        std::fs::write(folder.join(file), lines).unwrap();
    }
    let differ = script(COMPARE, &[folder, &twins.xebec]);
    assert!(differ.is_empty(), "{differ}");
}

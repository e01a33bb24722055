//! Test suites of file systems, compared with the kernel's XFS, and random operations.
//!
//! `XEBEC_FSX_SECONDS` is the duration of each random test, `XEBEC_FSX_SEED` its seed.

use crate::scripts::run;

/// Cases that fail on the mount and not on the kernel's XFS, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// pjdfstest on a mount of Xebec and on a kernel mount at the same time: a case may fail only if it fails on both.
const PJDFSTEST: &str = r#"
everybody
cat > settings << 'END'
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = true
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
# It remounts read-only by the system call, as no mount helper is installed here. The mount points have names of the
# same length, because the suite fails with paths of some lengths.
mkdir bin served kernel other
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" > bin/mount && chmod 755 bin/mount
mount -t tmpfs none other
"$xebec" mkfs -q image --size 512m
"$xebec" mount -o allow_other image served
mkfs.xfs -q -d file,name=theirs,size=512m && mount -t xfs -o loop theirs kernel
cases() {
    PATH=$PWD/bin:$PATH NO_COLOR=1 pjdfstest -c settings -s "$PWD/other" -p "$PWD/$1" > $1.output 2>&1 || true
    grep -q ^Summary $1.output || fail "pjdfstest ended early: $(tail $1.output)"
    awk 'NF == 2 && /(ok|FAILED|skipped)$/ { print $1, $2 }' $1.output | LC_ALL=C sort > $1.cases
}
cases served & here=$!
cases kernel & there=$!
wait $here && wait $there
[ "$(grep -c ' ok$' served.cases)" -ge 300 ] || fail "too few cases passed: $(cat served.output)"
# Renamed and missing cases count, too.
LC_ALL=C join -a 2 kernel.cases served.cases | awk '$2 == "ok" && $3 != "ok" { print $1 }' > worse
printf '%s' "$exceptions" | LC_ALL=C sort > excused
diff excused worse > output ||
    { cat served.output; fail "cases that fail only on the mount differ from the exceptions"; }
umount kernel
"$xebec" umount served
judge image "after pjdfstest"
"#;

#[test]
fn pjdfstest_matches_the_kernels_xfs() {
    let names: String = EXCEPTIONS.iter().map(|(name, _)| format!("{name}\n")).collect();
    let script = format!("exceptions='{names}'\n{PJDFSTEST}");
    run("pjdfstest_matches_the_kernels_xfs", &["pjdfstest"], &script);
}

/// Random operations on three files of a mount with the options `$how`: unaligned and small, larger than the writeback
/// limit, and block-aligned (where fsx allocates empty ranges, which are refused). Metadata is compared after the
/// filter `$filter`.
const FSX: &str = r#"
"$xebec" mkfs -q image --size 400m
"$xebec" mount $how image mnt
running=
while read -r name length most align allocate; do
    cat > $name.toml << END
flen = $length
[opsize]
max = $most
min = $align
align = $align
[weights]
close_open = 1
invalidate = 1
fsync = 0.5
fdatasync = 0.5
truncate = 3
posix_fallocate = $allocate
punch_hole = 5
sendfile = 3
posix_fadvise = 1
copy_file_range = 5
END
    timeout "${XEBEC_FSX_SECONDS:-5}" \
        fsx -f $name.toml -S "${XEBEC_FSX_SEED:-1}" -P . mnt/$name > $name.output 2>&1 < /dev/null &
    running="$running $!"
done << 'END'
unaligned 262144 65536 1 3
large 12582912 1048576 1 3
blocks 4194304 262144 4096 0
END
for process in $running; do
    code=0; wait $process || code=$?
    [ $code = 124 ] || { tail -n 40 *.output; fail "fsx ended with $code"; }
done
list_tree mnt | eval "$filter" > wanted
[ "$(grep -c ' f ' wanted)" = 3 ] || fail "not the three files: $(cat wanted)"
"$xebec" umount mnt
judge image "after fsx"
mkdir judged && mount -t xfs -o loop,nouuid,ro,noatime image judged
list_tree judged | eval "$filter" > found && diff wanted found > output || fail "the kernel shows a different tree"
umount judged
"$xebec" mount image mnt
list_tree mnt | eval "$filter" > found && diff wanted found > output || fail "different contents after a remount"
"$xebec" umount mnt
"#;

#[test]
fn fsx_reads_what_it_wrote() {
    run("fsx_reads_what_it_wrote", &["fsx"], &["how= filter=cat\n", FSX].concat());
}

/// Times are not compared: the kernel caches them, too, and late writes update them again.
#[test]
fn fsx_with_writeback_cache() {
    let begin = r#"
how='-o writeback_cache' filter="sed '/ [df] /s/ [0-9.]*$//'"
"#;
    run("fsx_with_writeback_cache", &["fsx"], &[begin, FSX].concat());
}

/// All file stressors of stress-ng with verification at once; and once more, killed, so that files remain.
#[test]
fn stress_ng_verifies() {
    let script = r#"
"$xebec" mkfs -q image --size 900m
"$xebec" mount image mnt
kinds='access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany fallocate fcntl filename flock fpunch fsize
    fstat getdent handle hdd inode-flags io link locka lockf lockofd mknod open rename symlink sync-file touch
    utime xattr'
arguments="--temp-path mnt --seed ${XEBEC_FSX_SEED:-1} --verify --hdd-bytes 16m --copy-file-bytes 128m"
for kind in $kinds; do arguments="$arguments --$kind 1"; done
seconds=${XEBEC_FSX_SECONDS:-5}
stress-ng $arguments --timeout $((seconds / 2 + 1)) > output 2>&1 || fail "stress-ng ended with $?"
# A stressor may end with a flag set, and then cannot remove the immutable file.
chattr -R -f -ia mnt || true
rm -rf mnt/tmp-stress-ng-chattr-* mnt/tmp-stress-ng-inode-flags-*
[ -z "$(ls mnt)" ] || fail "stress-ng left files: $(ls mnt)"
# All of its processes keep the pipe open, and may complete a change after they were killed.
mkfifo alive
cat alive > output & last=$!
unshare --pid --fork --kill-child stress-ng $arguments --timeout 1h > alive 2>&1 & busy=$!
sleep $((seconds / 3 + 1))
kill -9 $busy; wait $busy 2> /dev/null || true
wait $last
list_tree mnt > wanted
[ "$(wc -l < wanted)" -gt 100 ] || fail "too few files remain: $(wc -l < wanted) lines"
"$xebec" umount mnt
judge image "after stress-ng"
compare_with_kernel image wanted
"$xebec" mount image mnt
list_tree mnt > found && diff wanted found > output || fail "different files after a remount"
"$xebec" umount mnt
"#;
    run("stress_ng_verifies", &["stress-ng"], script);
}

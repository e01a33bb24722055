//! Public suites that judge file systems, and random work, beside the kernel's XFS.
//!
//! `XEBEC_FSX_SECONDS` is how long each random work lasts, `XEBEC_FSX_SEED` what it takes its choices from.

use crate::bed::run;

/// What fails on the mount and not on the kernel's XFS, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// The crate pjdfstest, on a mount of Xebec and on one of the kernel at the same time: what fails here fails there.
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
# It remounts read only: by the system call, as no helper is installed here. The mounts have names of one length, as the
# suite gives up on paths of some lengths.
mkdir bin served kernel other
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" > bin/mount && chmod 755 bin/mount
mount -t tmpfs none other
"$xebec" mkfs -q image --size 512m
"$xebec" mount -o allow_other image served
mkfs.xfs -q -d file,name=theirs,size=512m && mount -t xfs -o loop theirs kernel
cases() {
    PATH=$PWD/bin:$PATH NO_COLOR=1 pjdfstest -c settings -s "$PWD/other" -p "$PWD/$1" > $1.said 2>&1 || true
    grep -q ^Summary $1.said || fail "pjdfstest ended early: $(tail $1.said)"
    awk 'NF == 2 && /(ok|FAILED|skipped)$/ { print $1, $2 }' $1.said | LC_ALL=C sort > $1.cases
}
cases served & here=$!
cases kernel & there=$!
wait $here && wait $there
[ "$(grep -c ' ok$' served.cases)" -ge 300 ] || fail "too few cases passed: $(cat served.said)"
# A case has another name, or was left out: that counts, too.
LC_ALL=C join -a 2 kernel.cases served.cases | awk '$2 == "ok" && $3 != "ok" { print $1 }' > worse
printf '%s' "$exceptions" | LC_ALL=C sort > excused
diff excused worse > said ||
    { cat served.said; fail "other cases than are excused are worse than on the kernel's XFS"; }
umount kernel
"$xebec" umount served
judge image "after pjdfstest"
"#;

#[test]
fn pjdfstest_finds_what_it_finds_on_the_kernels_xfs() {
    let names: String = EXCEPTIONS.iter().map(|(name, _)| format!("{name}\n")).collect();
    let script = format!("exceptions='{names}'\n{PJDFSTEST}");
    run("pjdfstest_finds_what_it_finds_on_the_kernels_xfs", &["pjdfstest"], &script);
}

/// Random calls on three files of a mount with the options `$how`, of whose facts `$told` is compared, each compared
/// with what it must hold: small and crooked, larger than what is written back at once, and in whole blocks (where fsx
/// allocates ranges of no length, which is refused).
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
        fsx -f $name.toml -S "${XEBEC_FSX_SEED:-1}" -P . mnt/$name > $name.said 2>&1 < /dev/null & running="$running $!"
done << 'END'
crooked 262144 65536 1 3
large 12582912 1048576 1 3
blocks 4194304 262144 4096 0
END
for process in $running; do
    code=0; wait $process || code=$?
    [ $code = 124 ] || { tail -n 40 *.said; fail "fsx ended with $code"; }
done
facts mnt | eval "$told" > wanted
[ "$(grep -c ' f ' wanted)" = 3 ] || fail "not the three files: $(cat wanted)"
"$xebec" umount mnt
judge image "after fsx"
mkdir judged && mount -t xfs -o loop,nouuid,ro,noatime image judged
facts judged | eval "$told" > found && diff wanted found > said || fail "the kernel shows something else"
umount judged
"$xebec" mount image mnt
facts mnt | eval "$told" > found && diff wanted found > said || fail "other bytes in another mount"
"$xebec" umount mnt
"#;

#[test]
fn fsx_reads_what_it_wrote() {
    run("fsx_reads_what_it_wrote", &["fsx"], &["how= told=cat\n", FSX].concat());
}

/// But for times: the kernel keeps them, too, and what it writes late is stamped anew.
#[test]
fn fsx_reads_what_it_wrote_and_the_kernel_keeps() {
    let begin = r#"
how='-o writeback_cache' told="sed '/ [df] /s/ [0-9.]*$//'"
"#;
    run("fsx_reads_what_it_wrote_and_the_kernel_keeps", &["fsx"], &[begin, FSX].concat());
}

/// All work of stress-ng on files that it verifies, at once; and once more, killed, so that something is left.
#[test]
fn stress_ng_is_content() {
    let script = r#"
"$xebec" mkfs -q image --size 900m
"$xebec" mount image mnt
kinds='access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany fallocate fcntl filename flock fpunch fsize
    fstat getdent handle hdd inode-flags io link locka lockf lockofd mknod open rename symlink sync-file touch
    utime xattr'
arguments="--temp-path mnt --seed ${XEBEC_FSX_SEED:-1} --verify --hdd-bytes 16m --copy-file-bytes 128m"
for kind in $kinds; do arguments="$arguments --$kind 1"; done
seconds=${XEBEC_FSX_SECONDS:-5}
stress-ng $arguments --timeout $((seconds / 2 + 1)) > said 2>&1 || fail "stress-ng ended with $?"
# Some of it ends between setting a flag and taking it away, and then cannot remove what is immutable.
chattr -R -f -ia mnt || true
rm -rf mnt/tmp-stress-ng-chattr-* mnt/tmp-stress-ng-inode-flags-*
[ -z "$(ls mnt)" ] || fail "stress-ng left something behind: $(ls mnt)"
# Each of its processes holds that pipe, and may be in the middle of a change for a while after it was killed.
mkfifo alive
cat alive > said & last=$!
unshare --pid --fork --kill-child stress-ng $arguments --timeout 1h > alive 2>&1 & busy=$!
sleep $((seconds / 3 + 1))
kill -9 $busy; wait $busy 2> /dev/null || true
wait $last
facts mnt > wanted
[ "$(wc -l < wanted)" -gt 100 ] || fail "little was left: $(wc -l < wanted) lines"
"$xebec" umount mnt
judge image "after stress-ng"
shown image wanted
"$xebec" mount image mnt
facts mnt > found && diff wanted found > said || fail "other files in another mount"
"$xebec" umount mnt
"#;
    run("stress_ng_is_content", &["stress-ng"], script);
}

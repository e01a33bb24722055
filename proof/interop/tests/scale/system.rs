//! Debian, installed by debootstrap, whose programs run from the image.

use super::judge;

const SYSTEM: &str = r#"
source_volume
debootstrap --variant=minbase bookworm mnt > output 2>&1 || fail debootstrap
mount -o remount,ro mnt
show source
run create made --from mnt --free 20%
umount mnt
judge "a create"
life
run grow made +200m
mount -t xfs -o loop,nouuid made mnt
inside() { chroot mnt "$@" > output 2>&1 || fail "$*"; }
inside dpkg --audit
[ ! -s output ] || fail "dpkg --audit"
inside dpkg --verify
inside ls -l /usr/bin /etc
inside perl -e 'print "$_\n" foreach sort keys %ENV'
inside sh -c 'dpkg --purge --force-all tzdata && ! dpkg --status tzdata'
inside sh -c 'cp -r /usr/share/doc /doc && diff -r /usr/share/doc /doc && rm -r /doc'
umount mnt
sound "running programs"
"#;

#[test]
#[ignore = "downloads Debian: run with --include-ignored if debootstrap is installed"]
fn debian_runs_from_the_image() {
    judge("debian_runs_from_the_image", &["debootstrap", "chroot"], SYSTEM, &[]);
}

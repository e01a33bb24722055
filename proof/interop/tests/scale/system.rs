//! Debian, as its own installer makes it, which runs from the image.

use super::judge;

const SYSTEM: &str = r#"
source_volume
debootstrap --variant=minbase bookworm mnt > said 2>&1 || fail debootstrap
mount -o remount,ro mnt
show source
run create made --from mnt --free 20%
umount mnt
judge "a create"
life
run grow made +200m
mount -t xfs -o loop,nouuid made mnt
inside() { chroot mnt "$@" > said 2>&1 || fail "$*"; }
inside dpkg --audit
[ ! -s said ] || fail "dpkg --audit"
inside dpkg --verify
inside ls -l /usr/bin /etc
inside perl -e 'print "$_\n" foreach sort keys %ENV'
inside sh -c 'dpkg --purge --force-all tzdata && ! dpkg --status tzdata'
inside sh -c 'cp -r /usr/share/doc /doc && diff -r /usr/share/doc /doc && rm -r /doc'
umount mnt
sound "running programs"
"#;

#[test]
#[ignore = "it comes over the network: run it with --include-ignored where debootstrap is installed"]
fn a_system_runs() {
    judge("a_system_runs", &["debootstrap", "chroot"], SYSTEM, &[]);
}

//! A target for mount options, on the command line and in `/etc/fstab`.

use fuse::options::{MountOptions, validate};
use fuse::volume_operations::idmap::{IdMap, MapTo};

/// Seeds.
pub const SEEDS: [&str; 6] = [
    "ro,allow_other,nosuid,nodev,noexec,noatime,writeback_cache",
    "rw,suid,dev,exec,atime,logdev=/dev/sdb1,partition=1,offset=1m,threads=4,memory=0x100000",
    "idmap=0:1000",
    "idmap=0:100000:65536,idmap=u:100000:0:1000,suid",
    "idmap=user,idmap=g:5:7:2,fsname=a,x-systemd.automount",
    "metrics=9100,metrics=[::1]:9100,defaults,logbufs=8",
];

/// IDs that are mapped in addition to the boundaries of ranges.
const EDGES: [u32; 8] = [0, 1, 2, 999, 1000, 65_534, 1 << 31, u32::MAX - 1];

/// Parses options as mount(8) separates them. ID mappings are one to one.
pub fn mount_options(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let options: Vec<&str> = text.split(',').filter(|option| validate(option).is_ok()).collect();
    let Ok(all) = MountOptions::new(&options) else { return };
    for map in [&all.id_maps.users, &all.id_maps.groups] {
        expect_one_to_one(map);
    }
    assert!(all.id_maps.is_empty() || all.mount.no_suid || options.contains(&"suid"));
}

/// Checks that each ID maps to another one and back.
fn expect_one_to_one(map: &IdMap) {
    let mut numbers = EDGES.to_vec();
    for range in map.ranges() {
        for first in [range.volume, range.host] {
            let last = first + (range.count - 1);
            let around = [first.wrapping_sub(1), first, first + range.count / 2, last, last + 1];
            numbers.extend(around.into_iter().filter(|number| *number != u32::MAX));
        }
    }
    for number in numbers {
        for (to, back) in [(MapTo::Host, MapTo::Volume), (MapTo::Volume, MapTo::Host)] {
            let mapped = map.map(number, to);
            assert_eq!(map.map(mapped, back), number, "{number} is {mapped} on the other side");
            assert_ne!(mapped, u32::MAX, "{number} is mapped to no ID");
        }
    }
}

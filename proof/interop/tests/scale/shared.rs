//! Files that share blocks.

use super::judge;

/// Files that use 15 MB, or 65 MB without sharing.
const SHARED: &str = r#"
source_volume
cd mnt
head -c 9000001 /dev/urandom > whole
cp --reflink=always whole copy
mkdir later; cp --reflink=always whole later/another
# Starts, ends and parts of other files, holes between them, and overwritten ranges.
xfs_io -f -c 'reflink whole 4096 0 40960' -c 'reflink whole 1048576 1048576 2998272' later/pieces > /dev/null
truncate -s 9M later/pieces
cp --reflink=always whole changed
for at in 0 4096 70000 5000000 8999000; do xfs_io -c "pwrite -q -S 7 $at 1000" changed; done
xfs_io -f -c 'reflink whole 0 0 8388608' -c 'reflink whole 0 8388608 8388608' twice > /dev/null
mkdir small
for n in $(seq 300); do head -c $((n * 100)) /dev/urandom > small/$n; cp --reflink=always small/$n small/$n.copy; done
xfs_io -c 'falloc -k 0 20m' -c 'reflink whole 0 1048576 1048576' -f allocated > /dev/null
cd ..
sync
used() { df --output=used -B1 $1 | tail -n 1; }
mount -o remount,ro mnt
show source
mkdir from
mount --move mnt from
for options in "" "-b size=1024" "-m reflink=0" "-b size=16384" "--reproducible"; do
    rm -f made
    run create made --from from $options
    # Access times of the source are not in a reproducible image.
    [ "$options" != --reproducible ] || without='s/"atime":"[^"]*"/"atime":""/'
    sed -i "$without" source.manifest
    judge "a create $options"
    mount -t xfs -o loop,ro,nouuid made mnt
    made=$(used mnt)
    umount mnt
    echo "$options: $made" > output
    case $options in
    "" | *1024) [ "$made" -lt 20000000 ] || fail "sharing as the source does" ;;
    *16384) ;;
    *) [ "$made" -gt 60000000 ] || fail "copying" ;;
    esac
done
"#;

#[test]
fn shared_blocks_are_shared_in_the_image() {
    judge("shared_blocks_are_shared_in_the_image", &["xfs_io", "df"], SHARED, &[]);
}

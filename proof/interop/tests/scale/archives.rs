//! Archives with contents that no directory can have, and layers of archives.

use super::{is_full, judge};

/// A file with `$1` attributes. The kernel can read each of them, but lists at most 64 KiB of names.
const ATTRIBUTES: &str = r#"
cat > attributes.py <<'END'
import errno, io, os, sys, tarfile
doing, count = sys.argv[1], int(sys.argv[2])
values = {f"user.{n:x}": f"value {n}" * (n % 20) for n in range(count)}
if doing == "make":
    with tarfile.open("source.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        one = tarfile.TarInfo("one")
        one.size, one.pax_headers = 3, {f"SCHILY.xattr.{name}": value for name, value in values.items()}
        archive.addfile(one, io.BytesIO(b"one"))
elif doing == "verify":
    for name, value in values.items():
        assert os.getxattr("mnt/one", name) == value.encode(), name
    try:
        assert sorted(os.listxattr("mnt/one")) == sorted(values)
    except OSError as error:
        assert error.errno == errno.E2BIG and count > 7000, error
END
verify() {
    sound "$1"
    mount -t xfs -o loop,ro,noatime,nouuid made mnt
    python3 attributes.py verify $2 > output 2>&1 || fail "$1: the kernel returns different attributes"
    umount mnt
}
python3 attributes.py make $1
"$xebec" create made --from source.tar > output 2>&1 || fail "create"
verify "a create" $1
run grow made +64m
verify growing $1
run minimize made
verify minimizing $1
"#;

/// An OCI image of three layers, for two architectures and with an attestation. The expected tree is created with tar
/// and rm, layer by layer.
const IMAGE: &str = r#"
layer() { # $1 its folder, $2 what compresses it, $3 its type: prints its descriptor
    tar -C $1 --sort=name -cf $1.tar .
    $2 < $1.tar > blob
    descriptor "application/vnd.oci.image.layer.v1.tar$3"
}
descriptor() { # of the file "blob", of the type $1, with more of it in $2
    local sum=$(sha256sum < blob | cut -d ' ' -f 1) size=$(stat -c %s blob)
    mv blob layout/blobs/sha256/$sum
    echo "{\"mediaType\":\"$1\",\"digest\":\"sha256:$sum\",\"size\":$size${2:-}}"
}
manifest() { # $1 its layers, $2 more of its descriptor
    echo '{"architecture":"any","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}' > blob
    local config=$(descriptor application/vnd.oci.image.config.v1+json)
    echo "{\"schemaVersion\":2,\"config\":$config,\"layers\":[$1]}" > blob
    descriptor application/vnd.oci.image.manifest.v1+json "$2"
}
index() { echo "{\"schemaVersion\":2,\"manifests\":[$1]}"; }
platform() { echo ",\"platform\":{\"os\":\"$1\",\"architecture\":\"$2\"}"; }

mkdir -p layout/blobs/sha256 last/{usr,new} change/{etc,usr/share/doc,var,opt}
mkdir -p base/{etc/conf.d,usr/share/{doc,man},var,opt/old}
for name in base/{etc,etc/conf.d,usr,usr/share/doc,usr/share/man,opt/old}/{one,two,three}; do echo $name > $name; done
ln base/etc/one base/etc/linked
ln -s one base/etc/pointing
chmod 4711 base/usr/one; chown 7:8 base/usr/two; chmod 1777 base/var
# Removed, replaced by another type in both directions, emptied, and whiteouts of missing files.
touch change/etc/.wh.two change/usr/share/.wh.man change/.wh.nothing change/opt/.wh.old
echo new > change/etc/one
echo "no directory any more" > change/etc/conf.d
mkdir change/var/deeper; echo deep > change/var/deeper/file
touch change/usr/share/doc/.wh..wh..opq; echo only > change/usr/share/doc/only
mkdir change/opt/again; mkfifo change/opt/again/fifo
# Removed and recreated in one layer, a link to a file of a lower layer, a name with `wh.` that is not a whiteout.
mkdir last/usr/three last/etc; touch last/usr/.wh.three last/.wh.opt; echo inside > last/usr/three/inside
mkdir last/opt; echo back > last/opt/back; echo wh > last/new/wh.one
echo linked > last/etc/a; ln last/etc/a last/new/b
touch -d 2001-02-03 last/new change/etc base/usr

gz=$(layer base "gzip -9" +gzip); zst=$(layer change "zstd -q" +zstd); plain=$(layer last cat "")
case $(uname -m) in x86_64) here=amd64 other=arm64 ;; aarch64) here=arm64 other=amd64 ;; esac
all=$(manifest "$gz,$zst,$plain" "$(platform linux $here)")
images=$(manifest "$plain" "$(platform linux $other)")
images+=,$(manifest "$gz,$zst,$plain" "$(platform linux $here)")
images+=,$(manifest "" "$(platform unknown unknown)")
index "$images" > blob
named() { echo ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"$1\"}"; }
nested=$(descriptor application/vnd.oci.image.index.v1+json "$(named all)")
index "$(manifest "$gz" "$(named base)"),$nested" > layout/index.json
echo '{"imageLayoutVersion":"1.0.0"}' > layout/oci-layout

source_volume
lay() { tar -C mnt --same-owner --exclude='.wh.*' -xpf $1.tar; }
lay base
rm -r mnt/etc/{two,conf.d} mnt/usr/share/{man,doc/*} mnt/opt/old
lay change
rm -r mnt/usr/three mnt/opt
lay last
mount -o remount,ro mnt
# Layers have no access times.
without='s/"atime":"[^"]*"/"atime":""/'
show source
umount mnt
run create made --from oci:layout:all
judge "a create"
life
"#;

#[test]
fn more_attributes_than_the_kernel_lists() {
    let count = if is_full() { "100000" } else { "30000" };
    judge("more_attributes_than_the_kernel_lists", &["python3"], ATTRIBUTES, &[count]);
}

#[test]
fn oci_layers() {
    judge("oci_layers", &["tar", "gzip", "zstd"], IMAGE, &[]);
}

//! From a path to a device: partitions, offsets and containers, and errors about other contents.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tempfile::TempDir;
use xebec_block::{ContentClass, Device, MemoryDevice, OpenError, OpenImageOptions, open_image, probe};

const MIB: usize = 1 << 20;

/// A disk with an MBR and three partitions at 1, 2 and 3 MiB that begin with the given bytes.
fn disk(contents: [&[u8]; 3]) -> Vec<u8> {
    let mut bytes = vec![0; 4 * MIB];
    for (index, content) in contents.into_iter().enumerate() {
        let start = (index + 1) * MIB;
        let entry = 446 + 16 * index;
        bytes[entry + 4] = 0x83;
        bytes[entry + 8..entry + 12].copy_from_slice(&u32::try_from(start / 512).unwrap().to_le_bytes());
        bytes[entry + 12..entry + 16].copy_from_slice(&u32::try_from(MIB / 512).unwrap().to_le_bytes());
        bytes[start..start + content.len()].copy_from_slice(content);
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

fn file(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn start_of(device: &dyn Device) -> [u8; 8] {
    let mut start = [0; 8];
    device.read_at(0, &mut start).unwrap();
    start
}

#[test]
fn the_only_partition_with_xfs_is_found() {
    let dir = TempDir::new().unwrap();
    let path = file(&dir, "disk", &disk([b"LUKS\xba\xbe", b"XFSBhere", b""]));
    let device = open_image(&path, &OpenImageOptions::default()).unwrap();
    assert_eq!((&start_of(&*device), device.size()), (b"XFSBhere", MIB as u64));
    assert!(device.describe().ends_with("disk, partition 2"), "{}", device.describe());
}

#[test]
fn partitions_are_listed_if_one_must_be_chosen() {
    let dir = TempDir::new().unwrap();
    let path = file(&dir, "disk", &disk([b"XFSBone.", b"XFSBtwo.", b"hsqs"]));
    let message = open_image(&path, &OpenImageOptions::default()).unwrap_err().to_string();
    let lines: Vec<_> = message.lines().collect();
    assert!(lines[0].contains("2 partitions contain XFS (choose one with --partition N)"), "{message}");
    assert!(lines[1].contains("1: 1048576 bytes at 1048576, Linux: an XFS file system"), "{message}");
    assert!(lines[3].contains("a squashfs file system"), "{message}");

    let choose = |partition| {
        open_image(&path, &OpenImageOptions { partition: Some(partition), ..OpenImageOptions::default() })
    };
    assert_eq!(&start_of(&*choose(1).unwrap()), b"XFSBone.");
    assert_eq!(&start_of(&*choose(2).unwrap()), b"XFSBtwo.");
    let error = choose(4).unwrap_err();
    assert!(error.to_string().contains("there is no partition 4; the partitions are:"), "{error}");
    let none = file(&dir, "none", &disk([b"", b"", b""]));
    let error = open_image(&none, &OpenImageOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no partition contains XFS"), "{error}");
}

#[test]
fn offsets_are_relative_to_the_partition_or_the_disk() {
    let dir = TempDir::new().unwrap();
    let path = file(&dir, "disk", &disk([b"XFSBone.", b"12345678XFSBtwo.", b""]));
    let open = |partition, offset| {
        open_image(&path, &OpenImageOptions { partition, offset, ..OpenImageOptions::default() })
    };
    assert_eq!(&start_of(&*open(None, Some(MIB as u64)).unwrap()), b"XFSBone.");
    let inner = open(Some(2), Some(8)).unwrap();
    assert_eq!((&start_of(&*inner), inner.size()), (b"XFSBtwo.", MIB as u64 - 8));
    assert!(inner.describe().ends_with("partition 2, offset 8"));
    assert!(open(None, Some(5 * MIB as u64)).is_err());
}

#[test]
fn a_truncated_disk_is_reported_with_its_end() {
    let dir = TempDir::new().unwrap();
    let path = file(&dir, "disk", &disk([b"", b"", b"XFSB"])[..3 * MIB + 5000]);
    let choose = OpenImageOptions { partition: Some(3), ..OpenImageOptions::default() };
    let error = open_image(&path, &choose).unwrap_err().to_string();
    assert!(error.contains("the device ends at 3150728"), "{error}");
    let error = open_image(&path, &OpenImageOptions::default()).unwrap_err().to_string();
    assert!(error.contains("outside the disk"), "{error}");
}

#[test]
fn containers_that_cannot_be_read_are_named() {
    let dir = TempDir::new().unwrap();
    let path = file(&dir, "disk.vhdx", b"vhdxfile and more");
    let error = open_image(&path, &OpenImageOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Unsupported { .. }));
    assert!(error.to_string().contains("a VHDX image: convert it with `qemu-img convert -O raw`"), "{error}");
}

/// A device with `magic` at `offset` and zeros elsewhere.
fn with_magic(offset: usize, magic: &[u8]) -> MemoryDevice {
    let mut bytes = vec![0; MIB];
    bytes[offset..offset + magic.len()].copy_from_slice(magic);
    MemoryDevice::from_bytes(&bytes)
}

#[test]
fn foreign_contents_are_named() {
    let cases: [(usize, &[u8], &str); 12] = [
        (0, b"XFSB", "an XFS file system"),
        (0, &[0xfe, 0xed, 0xba, 0xbe], "the external log of an XFS file system"),
        (1080, &[0x53, 0xef], "an ext2 file system"),
        (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
        (3, b"NTFS    ", "an NTFS file system"),
        (0x8001, b"CD001", "an ISO 9660 file system"),
        (0x2_0400, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], "a ZFS pool member"),
        (512, b"LABELONE", "an LVM physical volume"),
        (4086, b"SWAPSPACE2", "swap space"),
        (MIB - 8192, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux RAID (md 1.0)"),
        (MIB - 65536, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux RAID (md 0.90)"),
        (MIB - 512, b"conectix", "a VHD image of fixed size"),
    ];
    for (offset, magic, name) in cases {
        assert_eq!(probe(&with_magic(offset, magic)).unwrap().to_string(), name);
    }
    assert_eq!(probe(&MemoryDevice::new(0)).unwrap().class, ContentClass::Empty);
    assert_eq!(probe(&MemoryDevice::new(5)).unwrap().class, ContentClass::Zeros);
    assert_eq!(probe(&with_magic(700, b"text")).unwrap().class, ContentClass::Unknown);
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(42), ..ProptestConfig::default() })]

    #[test]
    fn probing_never_fails_on_contents(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        probe(&MemoryDevice::from_bytes(&bytes)).unwrap();
    }
}

/// Runs `qemu-img`; returns `false` if it is not installed, to skip the test.
fn qemu_img(args: &[&str]) -> bool {
    let Some(()) = needs::met(needs::tools(&["qemu-img"])) else { return false };
    let output = needs::command("qemu-img").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A disk with random data, constant data and holes.
fn disk_with_data() -> Vec<u8> {
    let mut bytes = disk([b"", b"XFSBhere", b""]);
    for (i, byte) in bytes[2 * MIB + 4096..][..300_000].iter_mut().enumerate() {
        *byte = ((i as u32).wrapping_mul(2_654_435_761) >> 24) as u8;
    }
    bytes[2 * MIB + 400_000..][..200_000].fill(7);
    bytes
}

#[test]
fn qcow2_reads_the_disk() {
    let dir = TempDir::new().unwrap();
    let bytes = disk_with_data();
    let raw = file(&dir, "raw", &bytes);
    let variants: [(&str, &[&str]); 5] = [
        ("v3", &[]),
        ("v2", &["-o", "compat=0.10"]),
        ("compressed", &["-c"]),
        ("small-clusters", &["-o", "cluster_size=512"]),
        ("extended-l2", &["-o", "extended_l2=on,cluster_size=128k"]),
    ];
    for (name, options) in variants {
        let image = dir.path().join(name);
        let args = [&["convert", "-O", "qcow2"], options, &[text(&raw), text(&image)]].concat();
        if !qemu_img(&args) {
            return;
        }
        let device = match open_image(&image, &OpenImageOptions::default()) {
            Err(error @ OpenError::Container { .. }) if name == "extended-l2" => {
                assert!(error.to_string().contains("cannot be read as qcow2"), "{error}");
                continue;
            }
            other => other.unwrap(),
        };
        assert!(
            device.describe().ends_with(&format!("{name} (qcow2), partition 2")),
            "{}",
            device.describe()
        );
        assert!(device.is_read_only());
        let mut got = vec![0; device.size() as usize];
        device.read_at(0, &mut got).unwrap();
        assert!(got == bytes[2 * MIB..3 * MIB], "{name}");
        let mut odd = vec![0; 70_001];
        device.read_at(12_345, &mut odd).unwrap();
        assert!(odd == bytes[2 * MIB + 12_345..][..70_001], "{name}");
    }
}

#[test]
fn qcow2_opens_other_files_only_when_allowed() {
    let dir = TempDir::new().unwrap();
    file(&dir, "raw", &disk_with_data());
    let top = dir.path().join("top");
    if !qemu_img(&["create", "-q", "-f", "qcow2", "-b", "raw", "-F", "raw", text(&top)]) {
        return;
    }
    let error = open_image(&top, &OpenImageOptions::default()).unwrap_err().to_string();
    assert!(error.contains("only if you allow it") && error.contains("raw"), "{error}");
    let device =
        open_image(&top, &OpenImageOptions { backing: true, ..OpenImageOptions::default() }).unwrap();
    assert_eq!(&start_of(&*device), b"XFSBhere");
    assert!(device.describe().contains("(qcow2 over "), "{}", device.describe());

    // An image that is its own backing file.
    let cycle = dir.path().join("cycle");
    qemu_img(&["create", "-q", "-u", "-f", "qcow2", "-b", "cycle", "-F", "qcow2", text(&cycle), "1M"]);
    let error = open_image(&cycle, &OpenImageOptions { backing: true, ..OpenImageOptions::default() })
        .unwrap_err()
        .to_string();
    assert!(error.contains("is it a cycle?"), "{error}");
}

#[test]
fn a_truncated_qcow2_is_an_error() {
    let dir = TempDir::new().unwrap();
    let raw = file(&dir, "raw", &disk_with_data());
    let image = dir.path().join("image");
    if !qemu_img(&["convert", "-O", "qcow2", text(&raw), text(&image)]) {
        return;
    }
    let length = std::fs::metadata(&image).unwrap().len();
    std::fs::File::options().write(true).open(&image).unwrap().set_len(length - 200_000).unwrap();
    let result = open_image(&image, &OpenImageOptions::default())
        .map_err(|error| error.to_string())
        .and_then(|device| {
            device.read_at(0, &mut vec![0; device.size() as usize]).map_err(|error| error.to_string())
        });
    let error = result.unwrap_err();
    assert!(error.contains("beyond the end of the file"), "{error}");
}

/// Random changes of the metadata: reads return data or an error.
#[test]
fn damaged_qcow2_never_panics() {
    let dir = TempDir::new().unwrap();
    let raw = file(&dir, "raw", &disk_with_data());
    let image = dir.path().join("image");
    if !qemu_img(&["convert", "-c", "-O", "qcow2", text(&raw), text(&image)]) {
        return;
    }
    let whole = std::fs::read(&image).unwrap();
    let mut state = 42u64;
    let mut random = move |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for case in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..=random(3) {
            // The header, or the tables, which are in the first clusters.
            let at = if case % 2 == 0 { random(112) } else { random(whole.len().min(6 << 16)) };
            bytes[at] = random(256) as u8;
        }
        let path = file(&dir, "damaged", &bytes);
        if let Ok(device) =
            open_image(&path, &OpenImageOptions { offset: Some(0), ..OpenImageOptions::default() })
        {
            let mut buf = vec![0; 1 << 16];
            for at in (0..device.size().min(8 << 20)).step_by(1 << 16) {
                let length = (device.size() - at).min(1 << 16) as usize;
                let _ = device.read_at(at, &mut buf[..length]);
            }
        }
    }
}

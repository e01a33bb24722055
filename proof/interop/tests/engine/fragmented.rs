//! Files with more extents than a map in memory has: made by Xebec and read by the kernel, and the other way round.

use std::fs;
use std::sync::Arc;

use base::random::mix;
use crashsim::{Image, ImageDevice};
use interop::memory::budget;
use xebec::{File, OpenOptions, Options, Volume};

use crate::kernel::{self, Files};
use crate::volumes;

const BLOCK: u64 = 1024;
/// Extents of each file: three times those of the largest map that is in memory as a whole.
const EXTENTS: u64 = 12_000;

/// Compares `ours` with the file `$1`. Then makes `theirs` by the commands in `$2`, and prints the number of its
/// extents.
const TURN: &str = r#"
cmp "$mount/ours" "$1" && xfs_io -f "$mount/theirs" < "$2" > /dev/null && sync && xfs_io -r -c stat "$mount/theirs" \
    | grep nextents
status=$?
umount "$mount" || status=1
exit $status
"#;

/// Compares `ours` and `theirs` with `$1` and `$2`.
const COMPARE: &str = r#"
cmp "$mount/ours" "$1" && cmp "$mount/theirs" "$2"
status=$?
umount "$mount" || status=1
exit $status
"#;

fn options() -> Options {
    Options { memory: budget(), ..Options::default() }
}

fn block(n: u64) -> [u8; BLOCK as usize] {
    [(n % 251) as u8 + 1; BLOCK as usize]
}

/// The file that both make: every other block.
fn scattered() -> Vec<u8> {
    (0..EXTENTS).flat_map(|n| [block(n), [0; BLOCK as usize]]).flatten().collect()
}

fn open<'v>(volume: &'v Volume, name: &str) -> File<'v> {
    OpenOptions::new().read(true).write(true).create(true).open(volume, name).unwrap()
}

/// Writes, punches and truncates at places all over the file, and does the same to `expected`.
fn change(file: &File<'_>, expected: &mut Vec<u8>, seed: u64) {
    let range = |at: u64, blocks: u64| (at * BLOCK) as usize..((at + blocks) * BLOCK) as usize;
    for n in 0..600 {
        let (at, blocks) = (mix(seed + n) % (2 * EXTENTS - 40), mix(seed * n) % 30 + 1);
        let bytes = expected.get_mut(range(at, blocks)).unwrap();
        match n % 3 {
            0 => {
                bytes.copy_from_slice(&block(n).repeat(blocks as usize));
                file.write_at(bytes, at * BLOCK).unwrap();
            }
            1 => {
                bytes.fill(0);
                file.punch_hole(at * BLOCK, blocks * BLOCK).unwrap();
            }
            _ => {
                bytes.fill(0);
                file.zero_range(at * BLOCK, blocks * BLOCK, false).unwrap();
            }
        }
        if n % 100 == 99 {
            file.sync_all().unwrap();
        }
    }
    expected.truncate(range(0, 2 * EXTENTS / 4 * 3).end);
    file.set_len(expected.len() as u64).unwrap();
}

fn read(file: &File<'_>) -> Vec<u8> {
    let mut bytes = vec![0; file.len() as usize];
    for (n, piece) in bytes.chunks_mut(48 << 10).enumerate() {
        file.read_at(piece, n as u64 * (48 << 10)).unwrap();
    }
    bytes
}

/// Data and holes alternate.
fn expect_alternating(file: &File<'_>, blocks: u64) {
    for at in (0..blocks).step_by(202) {
        assert_eq!(file.seek_data(at * BLOCK + BLOCK).unwrap(), Some((at + 2) * BLOCK));
        assert_eq!(file.seek_hole(at * BLOCK).unwrap(), Some((at + 1) * BLOCK));
    }
}

#[test]
fn fragmented_files_pass_between_xebec_and_the_kernel() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let folder = kernel::scratch();
    let files = Files::new(folder.path(), "image");
    volumes::make(&files.image, 128 << 20, "-b size=1024");
    let device = || Arc::new(ImageDevice::new(kernel::read(&files.image).unwrap()));
    let save = |device: Arc<ImageDevice>| -> Image {
        let image = device.image();
        image.save(&files.image).unwrap();
        files.repair().unwrap();
        image
    };
    let paths = ["ours", "theirs", "commands"].map(|name| folder.path().join(name));
    let [ours_path, theirs_path, commands] = paths.each_ref();
    let write_at = |n: u64| format!("pwrite -q -S {} {} {BLOCK}\n", n % 251 + 1, 2 * n * BLOCK);
    let last = format!("truncate {}\n", 2 * EXTENTS * BLOCK);
    fs::write(commands, (0..EXTENTS).map(write_at).chain([last]).collect::<String>()).unwrap();

    let (mut ours, mut theirs) = (scattered(), scattered());
    let first = device();
    let volume = Volume::open(first.clone(), options()).unwrap();
    let file = open(&volume, "/ours");
    for n in 0..EXTENTS {
        file.write_at(&block(n), 2 * n * BLOCK).unwrap();
    }
    file.set_len(ours.len() as u64).unwrap();
    file.sync_all().unwrap();
    expect_alternating(&file, 2 * EXTENTS - 202);
    change(&file, &mut ours, 1);
    assert!(read(&file) == ours);
    drop(file);
    volume.unmount().unwrap();
    save(first);
    fs::write(ours_path, &ours).unwrap();
    let output = files.mounted(TURN, &[ours_path, commands]).unwrap();
    let extents: u64 = output.rsplit('=').next().unwrap().trim().parse().unwrap();
    assert!(extents >= EXTENTS, "{output}");

    let second = device();
    let volume = Volume::open(second.clone(), options()).unwrap();
    let file = open(&volume, "/theirs");
    assert!(read(&file) == theirs);
    expect_alternating(&file, 2 * EXTENTS - 202);
    change(&file, &mut theirs, 2);
    assert!(read(&file) == theirs && read(&open(&volume, "/ours")) == ours);
    drop(file);
    volume.unmount().unwrap();
    save(second);
    fs::write(theirs_path, &theirs).unwrap();
    files.mounted(COMPARE, &[ours_path, theirs_path]).unwrap();

    let third = device();
    let volume = Volume::open(third.clone(), options()).unwrap();
    let root = xebec::Dir::root(&volume).unwrap();
    root.remove_file("ours").unwrap();
    root.remove_file("theirs").unwrap();
    drop(root);
    volume.unmount().unwrap();
    save(third);
}

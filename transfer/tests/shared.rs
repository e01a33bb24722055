//! Contents that are said to be those of another file share its blocks if they are, and are written if they are not.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;

use block::MemoryDevice;
use volume::{OpenOptions, Options, Volume};
use xebec_transfer::{
    Data, Entry, EntryKind, EntryMetadata, Item, Overrides, Receiver as _, SharedRange, Writer,
};

#[path = "../../volume/tests/common/mod.rs"]
mod common;

/// Bytes of a piece.
const PIECE: usize = 64 << 10;

fn piece(byte: u8, length: usize) -> Vec<u8> {
    vec![byte; length]
}

/// Bytes of a file, and in which file they may be, from which byte on.
type Part<'a> = (Option<(&'a str, u64)>, Vec<u8>);

/// What a source gives of a file whose pieces these are, each with what it is said to be alike.
fn file(path: &str, pieces: &[Part<'_>]) -> Vec<Item> {
    let size = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let data = Data { more: true, ..Data::default() };
    let metadata = EntryMetadata { permissions: 0o644, ..EntryMetadata::default() };
    let mut items =
        vec![Item::Entry(Entry { path: path.into(), kind: EntryKind::File { size, data }, metadata })];
    let mut offset = 0;
    for (alike, bytes) in pieces {
        if let Some((path, offset)) = alike {
            items.push(Item::Shared(SharedRange { path: path.as_bytes().into(), offset: *offset }));
        }
        items.push(Item::Data(Data { offset, bytes: bytes.clone(), more: true }));
        offset += bytes.len() as u64;
    }
    items.push(Item::Data(Data { offset, ..Data::default() }));
    items
}

fn device(reflink: bool) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options { reflink, ..mkfs::Options::default() }).unwrap();
    device
}

/// Makes the files; returns how many blocks that takes.
fn make(device: &Arc<MemoryDevice>, rounds: bool) -> u64 {
    let volume = Volume::open(device.clone(), Options { background: !rounds, ..Options::default() }).unwrap();
    let mut writer = Writer::new(&volume, volume.root(), Overrides::default());
    if rounds {
        writer = writer.in_rounds();
    }
    let (a, b, end) = (piece(1, PIECE), piece(2, PIECE), piece(3, 1000));
    let same = |at: usize| Some(("first", at as u64));
    let mut items = file("first", &[(None, a.clone()), (None, b.clone()), (None, end.clone())]);
    items.extend(file(
        "copy",
        &[(same(0), a.clone()), (same(PIECE), b.clone()), (same(2 * PIECE), end.clone())],
    ));
    items.extend(file("turned", &[(same(PIECE), b.clone()), (same(0), a.clone())]));
    // Another piece than it says, one that reaches behind the end, and one that is not aligned.
    items.extend(file("lies", &[(same(0), b.clone()), (same(2 * PIECE), a.clone()), (same(2 * PIECE), end)]));
    items.extend(file("odd", &[(None, piece(9, 100)), (same(0), a)]));
    let before = volume.statistics().blocks_free;
    items.into_iter().for_each(|item| writer.take(item).unwrap());
    writer.finish().unwrap();
    volume.write_back_all().unwrap();
    let taken = before - volume.statistics().blocks_free;
    volume.unmount().unwrap();
    taken
}

fn expect_files(device: &Arc<MemoryDevice>) {
    common::judge(device);
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let read = |path: &str| {
        let file = OpenOptions::new().read(true).open(&volume, path.as_bytes()).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len()).unwrap()];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    };
    let (a, b, end) = (piece(1, PIECE), piece(2, PIECE), piece(3, 1000));
    let joined =
        |pieces: &[&Vec<u8>]| pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<_>>();
    assert!(read("/first") == joined(&[&a, &b, &end]) && read("/copy") == read("/first"));
    assert!(read("/turned") == joined(&[&b, &a]));
    assert!(read("/lies") == joined(&[&b, &a, &end]));
    assert!(read("/odd") == joined(&[&piece(9, 100), &a]));
    volume.unmount().unwrap();
}

#[test]
fn what_is_said_to_be_alike_is_compared() {
    for rounds in [false, true] {
        let (sharing, copying) = (device(true), device(false));
        let blocks = PIECE as u64 / 4096;
        let (few, many) = (make(&sharing, rounds), make(&copying, rounds));
        expect_files(&sharing);
        expect_files(&copying);
        // All of `copy`, both pieces of `turned`, and the end of `lies`.
        let saved = 4 * blocks + 2;
        assert!((saved - 2..=saved).contains(&(many - few)), "{few} and {many} blocks, rounds: {rounds}");
    }
}

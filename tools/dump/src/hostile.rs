//! Dumps of random bytes end, and print something.

use std::sync::Arc;

use block::{Device, Durability, MemoryDevice};
use format::checksum;
use proptest::prelude::*;
use read::Volume;

use crate::request::Request;
use crate::testing;
use crate::types;
use crate::value::Value;

/// A volume whose blocks are zero, except its superblock.
fn empty() -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(testing::BLOCKS * 4096));
    device.write_at(0, &testing::superblock(), Durability::Buffered).unwrap();
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>).unwrap();
    (device, volume)
}

fn show(volume: &Volume, words: &str) -> Option<(String, String)> {
    let words: Vec<_> = words.split(' ').collect();
    let dumped = crate::dump(volume, &Request::parse(&words).unwrap()).ok()?;
    Some((dumped.to_text(), dumped.to_json().to_string()))
}

/// Requests for all types of structures; block 16 contains random bytes.
const REQUESTS: &[&str] = &[
    "sb 0",
    "agf 0",
    "agi 0",
    "agfl 0",
    "bnobt 0",
    "cntbt 0 1",
    "inobt 0 1 1",
    "finobt 0",
    "rmapbt 0 1",
    "freespace",
    "refcountbt 0 2",
    "bnobt 0 block 16",
    "inode 128",
    "bmbt 128",
    "bmbt 128 1",
    "bmbt 128 attr 1",
    "extents 128",
    "extents 128 attr",
    "dir 128",
    "dir 128 0",
    "dir 128 8388608",
    "attr 128",
    "attr 128 0",
    "symlink 128",
    "inode /a",
    "log",
    "log 7",
    "dquot user 3",
    "block 0:16",
    "daddr 128",
    "fsb 16",
];

/// Random bytes with the magic number of a structure, in some cases with a correct checksum.
fn structure() -> impl Strategy<Value = Vec<u8>> {
    let kinds = 0..types::ALL.len();
    (kinds, any::<prop::sample::Index>(), any::<u64>(), 0..4u8).prop_map(|(kind, magic, seed, shape)| {
        let mut random = seed | 1;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        // From random to mostly zero: small numbers pass more checks.
        let mut bytes: Vec<u8> = (0..4096)
            .map(|_| {
                let byte = next() as u8;
                if shape > 0 && next() % (u64::from(shape) * 4) != 0 { 0 } else { byte }
            })
            .collect();
        let magics = types::ALL[kind].magics;
        if !magics.is_empty() {
            let (at, magic) = magics[magic.index(magics.len())];
            bytes[at..at + magic.len()].copy_from_slice(magic);
        }
        for (length, at) in
            [(512, 216), (512, 312), (512, 32), (4096, 52), (4096, 64), (512, 100), (4096, 4), (4096, 12)]
        {
            if next() % 4 == 0 {
                checksum::store(&mut bytes[..length], at);
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_can_be_dumped_as_any_type(bytes in structure()) {
        let (device, volume) = empty();
        device.write_at(16 * 4096, &bytes, Durability::Buffered).unwrap();
        for kind in types::ALL {
            for address in ["block 0:16", "fsb 16", "daddr 128", "daddr 129"] {
                let words = format!("{address} as {}", kind.name);
                prop_assert!(show(&volume, &words).is_some(), "{words}");
            }
        }
    }

    #[test]
    fn all_requests_end_with_any_headers_and_blocks(blocks in prop::collection::vec(structure(), 6)) {
        let (device, volume) = empty();
        // The headers of the AG, the block of the root inode, a block of the log, and blocks that pointers may hit.
        for (at, bytes) in [0u64, 4096, 16 * 4096, 100 * 4096, 17 * 4096, 2 * 4096].into_iter().zip(&blocks) {
            let skip = if at == 0 { 512 } else { 0 };
            device.write_at(at + skip as u64, &bytes[skip..], Durability::Buffered).unwrap();
        }
        for words in REQUESTS {
            show(&volume, words);
        }
    }
}

#[test]
fn a_damaged_superblock_is_dumped() {
    let (device, _) = empty();
    let dump = |words: &[&str]| {
        crate::dump_device(Arc::clone(&device) as Arc<dyn Device>, &Request::parse(words).unwrap())
    };
    // With another label the volume can be opened, but the checksum is wrong.
    device.write_at(108, b"x", Durability::Buffered).unwrap();
    let text = dump(&["sb"]).unwrap().to_text();
    assert!(text.starts_with("# damaged: AG 0, sector 0x0: superblock: crc is"), "{text}");
    assert!(text.contains("\nfname = \"x\"\n"));
    assert!(dump(&["agf", "0"]).is_ok());
    // With an invalid block size the volume cannot be opened, but the superblock and sectors can be dumped.
    device.write_at(4, &[0xff; 4], Durability::Buffered).unwrap();
    let structure = dump(&["sb"]).unwrap().structure;
    assert_eq!(structure.fields.get("blocksize"), Some(&Value::Uint(0xffff_ffff)));
    assert!(!structure.objections.is_empty());
    assert!(dump(&["daddr", "1"]).is_ok());
    assert!(dump(&["agf", "0"]).unwrap_err().to_string().contains("blocksize"));
}

#[test]
fn errors_say_what_does_not_exist() {
    let (_, volume) = empty();
    for (words, part) in [
        ("agf 7", "the volume has AGs 0 to 0"),
        ("block 0:4096", "the AG has 4096 blocks"),
        ("fsb 99999999", "outside of the volume"),
        ("daddr 99999999", "the volume has 32768 sectors"),
        ("inode 99999999999", "no such number"),
        ("log 8000", "the log has 8000"),
        ("dquot group 1", "no group quota"),
        ("bmbt 128", "not btree"),
    ] {
        let split: Vec<_> = words.split(' ').collect();
        let error = crate::dump(&volume, &Request::parse(&split).unwrap()).unwrap_err().to_string();
        assert!(error.contains(part), "{words}: {error}");
    }
}

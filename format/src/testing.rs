//! Shared by the tests of this crate: a geometry, and blocks written by the kernel.

use base::{Daddr, FileBlock, FsBlock, Ino};

use crate::ForkBlock;
use crate::checksum;
use crate::features::{Features, incompat, ro_compat};
use crate::geometry::Geometry;

const FIXTURES: &str = include_str!("../fixtures/names.txt");

/// Geometry of the volume from which the fixtures were taken.
pub(crate) fn geometry() -> Geometry {
    Geometry {
        block_size: 1024,
        block_log: 10,
        sector_size: 512,
        inode_size: 512,
        inode_log: 9,
        inodes_per_block_log: 1,
        dir_block_size: 4096,
        dir_block_log: 2,
        size: 307_200.into(),
        foreseen: 307_200,
        ag_blocks: 76_800,
        ag_block_log: 17,
        inode_align: 4,
        sparse_inode_align: 4,
        log_start: Some(FsBlock(2 << 17 | 9)),
        log_blocks: 16384,
        log_stripe_unit: 0,
        root: Ino(64),
        metadata_root: None,
        uuid: [
            0x0c, 0x0f, 0xfe, 0xe0, 0x11, 0x11, 0x42, 0x22, 0x83, 0x33, 0x44, 0x44, 0x55, 0x55, 0x66, 0x66,
        ],
        features: Features {
            version: 0xb4b5,
            features2: 0x18a,
            compat: 0,
            ro_compat: ro_compat::FINOBT | ro_compat::RMAPBT | ro_compat::REFLINK | ro_compat::INOBTCOUNT,
            incompat: incompat::FTYPE
                | incompat::SPARSE_INODES
                | incompat::BIGTIME
                | incompat::NREXT64
                | incompat::EXCHANGE
                | incompat::PARENT,
            log_incompat: 0,
        },
    }
}

/// A fixture: its identity and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    pub at: ForkBlock,
    pub bytes: Vec<u8>,
}

impl Fixture {
    /// Modifies the bytes and updates the checksum.
    pub fn patched(&self, crc_offset: usize, patch: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        patch(&mut bytes);
        assert!(checksum::store(&mut bytes, crc_offset));
        bytes
    }
}

/// Loads a fixture.
pub(crate) fn fixture(name: &str) -> Fixture {
    let start = FIXTURES.find(&format!("[{name} ")).expect("a fixture of that name");
    let (head, rest) = FIXTURES[start + 1..].split_once("]\n").expect("a head line");
    let numbers: Vec<u64> = head.split(' ').skip(1).map(|n| n.parse().expect("a number")).collect();
    let body = rest.split("\n[").next().expect("a body");
    let mut bytes = Vec::new();
    for token in body.split_whitespace() {
        let (hex, times) = token.split_once('*').unwrap_or((token, "1"));
        let run: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|n| u8::from_str_radix(&hex[n..n + 2], 16).expect("hexadecimal digits"))
            .collect();
        bytes.extend(run.repeat(times.parse().expect("a count")));
    }
    let at = ForkBlock { ino: Ino(numbers[0]), file_block: FileBlock(numbers[1]), daddr: Daddr(numbers[2]) };
    Fixture { at, bytes }
}

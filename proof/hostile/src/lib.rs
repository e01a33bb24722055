//! Bodies of the fuzz targets.
//!
//! | module | targets |
//! |---|---|
//! | [`structures`] | every structure of one block or less: headers of AGs, B+tree blocks, inodes |
//! | [`names`] | directories, attributes, their hash trees, symlinks, quota records |
//! | [`journal`] | log records, operations and items |
//! | [`volume`] | whole damaged volumes: read, checked, dumped; their log |
//! | [`finish`] | whole volumes with arbitrary intents in their log |
//! | [`archives`] | tar archives |
//! | [`options`] | mount options |
//! | [`images`], [`damage`] | small valid volumes, and how an input damages them |
//! | [`seeds`] | the seed corpus, from those volumes |
//! | [`shape`], [`stamp`], [`input`] | how an input becomes a geometry, and a block with valid identity and checksum |
//!
//! The bodies are here and not in `proof/fuzz`, so that `cargo test` replays past findings and runs every target with
//! seeded noise on machines without cargo-fuzz.
//!
//! # Invariants
//! A target may accept or refuse its input. It fails by a panic, a timeout, or excessive memory. Targets for structures
//! repair identity and checksum first, as random bytes would never pass them.
#![forbid(unsafe_code)]

pub mod archives;
pub mod damage;
pub mod finish;
pub mod images;
pub mod input;
pub mod journal;
pub mod names;
pub mod options;
pub mod seeds;
pub mod shape;
pub mod stamp;
pub mod structures;
pub mod volume;

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target, of its program in `proof/fuzz/fuzz_targets`, and of its directories of inputs.
    pub name: &'static str,
    /// The body.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "superblock", run: structures::superblock },
    Target { name: "agf", run: structures::agf },
    Target { name: "agi", run: structures::agi },
    Target { name: "agfl", run: structures::agfl },
    Target { name: "btree", run: structures::btree },
    Target { name: "inode", run: structures::inode },
    Target { name: "dir_block", run: names::dir_block },
    Target { name: "dir_shortform", run: names::dir_shortform },
    Target { name: "attr_block", run: names::attr_block },
    Target { name: "attr_shortform", run: names::attr_shortform },
    Target { name: "payloads", run: names::payloads },
    Target { name: "log_record", run: journal::log_record },
    Target { name: "log_item", run: journal::log_item },
    Target { name: "volume_read", run: volume::volume_read },
    Target { name: "volume_log", run: volume::volume_log },
    Target { name: "volume_finish", run: finish::volume_finish },
    Target { name: "volume_check", run: volume::volume_check },
    Target { name: "volume_dump", run: volume::volume_dump },
    Target { name: "import_archive", run: archives::import_archive },
    Target { name: "mount_options", run: options::mount_options },
];

/// Runs a target; returns `false` if it does not exist.
pub fn run(name: &str, data: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.name == name);
    if let Some(target) = target {
        (target.run)(data);
    }
    target.is_some()
}

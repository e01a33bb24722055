//! Hostile bytes: what each fuzz target does with its input.
//!
//! | part | targets |
//! |---|---|
//! | [`structures`] | every structure of one block or less: headers of AGs, B+tree blocks, inodes |
//! | [`names`] | directories, attributes, their index, symlinks, quota records |
//! | [`journal`] | log records, operations and items |
//! | [`volume`] | whole volumes, damaged at some places: read, checked, dumped, and their journal |
//! | [`finish`] | whole volumes whose log asks for what cannot be |
//! | [`archives`] | archives that come from anybody |
//! | [`options`] | what follows `-o` on the command line of a mount |
//! | [`images`], [`damage`] | small healthy volumes, and how an input damages them |
//! | [`seeds`] | first inputs for all of them, from those volumes |
//! | [`shape`], [`stamp`], [`input`] | how an input becomes a volume's shape and a block that passes for real |
//!
//! The bodies live here and not in `proof/fuzz`, so that an ordinary `cargo test` replays what fuzzing once found, and
//! sweeps every target with a little seeded noise, on machines without cargo-fuzz.
//!
//! # Invariants
//! A target never fails by its result: damage that is refused is as good as bytes that are accepted. It fails by a
//! panic, by time, or by memory. Every target of structures repairs identity and checksum first,
//! or nothing would ever get past them.
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
    /// Its name, also that of the program in `proof/fuzz/fuzz_targets` and of the folders of cases.
    pub name: &'static str,
    /// Its body.
    pub run: fn(&[u8]),
}

/// Every target.
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

/// Runs the target of that name; `false` where there is none.
pub fn run(name: &str, data: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.name == name);
    if let Some(target) = target {
        (target.run)(data);
    }
    target.is_some()
}

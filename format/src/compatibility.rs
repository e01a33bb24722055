//! Compatibility: the versions of Linux and GRUB that support each feature.
//!
//! One table, [`FEATURES`], answers two questions: which features a new volume may have for a reader
//! ([`Reader::usual`]), and which readers support a volume ([`oldest`]).
//!
//! Sources: xfs_admin(8) and mkfs.xfs(8) of xfsprogs 6.13 name Linux 3.16, 5.10 and 5.19; for other features, the first
//! release whose `xfs_format.h` lists the bit as supported. The defaults of `mkfs.xfs` at the time of each long-term
//! release are in its configuration files (`lts_4.19.conf` to `lts_6.12.conf`). For GRUB, the first release whose
//! `grub-core/fs/xfs.c` accepts the bit. Distributions may backport features to older versions.

use std::fmt;
use std::str::FromStr;

use crate::features::{self, Features, incompat, ro_compat};

/// A program that reads volumes without Xebec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The kernel.
    Linux,
    /// The boot loader, which only reads and checks only incompatible features.
    Grub,
}

/// Major and minor number of a release.
pub type Version = (u16, u16);

/// A version of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reader {
    /// The program.
    pub program: Program,
    /// The version.
    pub version: Version,
}

/// The versions that support a feature.
#[derive(Clone, Copy, Debug)]
pub struct FeatureSupport {
    /// Feature bit.
    pub bit: u32,
    /// Whether the bit is in `features_incompat`; otherwise it is in `features_ro_compat`.
    pub is_incompatible: bool,
    /// The first Linux that supports it.
    pub linux: Version,
    /// The first long-term Linux release for which `mkfs.xfs` enabled it by default.
    pub usual: Option<Version>,
    /// The first GRUB that reads volumes with it.
    pub grub: Version,
}

const fn readable(bit: u32, linux: Version, usual: Option<Version>) -> FeatureSupport {
    FeatureSupport { bit, is_incompatible: false, linux, usual, grub: OLDEST_GRUB }
}

const fn incompatible(bit: u32, linux: Version, usual: Option<Version>, grub: Version) -> FeatureSupport {
    FeatureSupport { bit, is_incompatible: true, linux, usual, grub }
}

/// The first Linux in which version 5 of the format is not experimental.
const OLDEST_LINUX: Version = (3, 16);
/// The first GRUB that reads version 5 of the format.
const OLDEST_GRUB: Version = (2, 2);
/// The first Linux that mounts volumes with blocks larger than a 4 KiB page.
const LARGE_BLOCKS: Version = (6, 12);
/// Page size in bytes of most architectures.
const PAGE: u32 = 4096;

/// All features that a new volume can have.
pub const FEATURES: &[FeatureSupport] = &[
    readable(ro_compat::FINOBT, (3, 16), Some((4, 19))),
    readable(ro_compat::RMAPBT, (4, 8), Some((6, 6))),
    readable(ro_compat::REFLINK, (4, 9), Some((5, 4))),
    readable(ro_compat::INOBTCOUNT, (5, 10), Some((5, 15))),
    incompatible(incompat::FTYPE, OLDEST_LINUX, Some(OLDEST_LINUX), OLDEST_GRUB),
    incompatible(incompat::SPARSE_INODES, (4, 2), Some((4, 19)), (2, 4)),
    incompatible(incompat::META_UUID, (4, 3), None, OLDEST_GRUB),
    incompatible(incompat::BIGTIME, (5, 10), Some((5, 15)), (2, 6)),
    // GRUB 2.12 accepts the bit but miscounts the extents of directories; fixed in 2.14.
    incompatible(incompat::NREXT64, (5, 19), Some((6, 6)), (2, 14)),
    incompatible(incompat::EXCHANGE, (6, 10), None, (2, 14)),
    incompatible(incompat::PARENT, (6, 10), None, (2, 14)),
    incompatible(incompat::METADIR, (6, 13), None, (2, 14)),
];

impl FeatureSupport {
    /// Name in `mkfs.xfs`.
    pub fn name(&self) -> String {
        let known = if self.is_incompatible { incompat::ALL } else { ro_compat::ALL };
        features::names(self.bit, known)
    }

    fn is_in(&self, features: &Features) -> bool {
        let word = if self.is_incompatible { features.incompat } else { features.ro_compat };
        word & self.bit != 0
    }

    fn since(&self, program: Program) -> Version {
        match program {
            Program::Linux => self.linux,
            Program::Grub => self.grub,
        }
    }
}

impl Reader {
    /// Whether to enable a feature on a new volume for this reader. For Linux, only features that were enabled by
    /// default at its time: newer ones may not have been stable.
    pub fn usual(&self, feature: &FeatureSupport) -> bool {
        match self.program {
            Program::Linux => feature.usual.is_some_and(|usual| usual <= self.version),
            // GRUB is not the only reader of the volume.
            Program::Grub => feature.usual.is_some() && feature.grub <= self.version,
        }
    }

    /// The features that prevent this version from reading the volume, or from writing it if the program can write.
    pub fn obstacles(&self, features: &Features, block_size: u32) -> Vec<String> {
        let oldest = oldest(self.program, features, block_size);
        let Some(writing) = oldest.writing.or(oldest.reading) else {
            return vec!["features that are not known here".into()];
        };
        if writing.version <= self.version {
            return Vec::new();
        }
        let mut obstacles: Vec<String> = FEATURES
            .iter()
            .filter(|feature| feature.is_in(features) && feature.since(self.program) > self.version)
            .map(FeatureSupport::name)
            .collect();
        if needs_large_blocks(self.program, block_size) && self.version < LARGE_BLOCKS {
            obstacles.push(format!("blocks of {block_size} bytes"));
        }
        obstacles
    }
}

/// The oldest versions of a program that support a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldestVersions {
    /// The oldest version that can read it; `None` if the volume has unknown incompatible features.
    pub reading: Option<MinimumVersion>,
    /// The oldest version that can write it; `None` also for a program that never writes.
    pub writing: Option<MinimumVersion>,
}

/// A version, and the features that require it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimumVersion {
    /// The version.
    pub version: Version,
    /// Features of the volume that require this version.
    pub because: Vec<String>,
}

/// The oldest versions of `program` that can read, and write, a volume with these features.
pub fn oldest(program: Program, features: &Features, block_size: u32) -> OldestVersions {
    let first = match program {
        Program::Linux => OLDEST_LINUX,
        Program::Grub => OLDEST_GRUB,
    };
    let known = |word: bool| {
        let of_word = FEATURES.iter().filter(move |feature| feature.is_incompatible == word);
        of_word.fold(0, |bits, feature| bits | feature.bit)
    };
    if features.incompat & !known(true) != 0 {
        return OldestVersions::default();
    }
    let needed = |feature: &&FeatureSupport| feature.is_in(features);
    let mut reading = MinimumVersion { version: first, because: Vec::new() };
    FEATURES.iter().filter(|feature| feature.is_incompatible).filter(needed).for_each(|feature| {
        reading.needs(feature.since(program), feature.name());
    });
    if needs_large_blocks(program, block_size) {
        reading.needs(LARGE_BLOCKS, format!("blocks of {block_size} bytes"));
    }
    if program == Program::Grub {
        return OldestVersions { reading: Some(reading), writing: None };
    }
    let mut writing = reading.clone();
    FEATURES.iter().filter(|feature| !feature.is_incompatible).filter(needed).for_each(|feature| {
        writing.needs(feature.since(program), feature.name());
    });
    let writing = (features.ro_compat & !known(false) == 0).then_some(writing);
    OldestVersions { reading: Some(reading), writing }
}

fn needs_large_blocks(program: Program, block_size: u32) -> bool {
    program == Program::Linux && block_size > PAGE
}

impl MinimumVersion {
    fn needs(&mut self, version: Version, why: String) {
        if version > self.version {
            *self = Self { version, because: vec![why] };
        } else if version == self.version && !self.because.is_empty() {
            // Features of the first version are not a reason.
            self.because.push(why);
        }
    }
}

impl Program {
    /// Name in prose.
    pub fn title(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::Grub => "GRUB",
        }
    }

    /// Name in options and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Grub => "grub",
        }
    }

    /// A version in the program's own notation.
    pub fn version_text(self, (major, minor): Version) -> String {
        match self {
            Self::Linux => format!("{major}.{minor}"),
            Self::Grub => format!("{major}.{minor:02}"),
        }
    }
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.program.name(), self.program.version_text(self.version))
    }
}

impl FromStr for Reader {
    type Err = String;

    /// Parses `linux-5.15` or `grub-2.06`; `grub` alone means 2.06, the oldest that distributions still support.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no reader: it is linux-VERSION, as in linux-5.15, grub-VERSION, or grub");
        if text == Program::Grub.name() {
            return Ok(Self { program: Program::Grub, version: (2, 6) });
        }
        let (name, version) = text.split_once('-').ok_or_else(wrong)?;
        let (major, minor) = version.split_once('.').ok_or_else(wrong)?;
        let version = (major.parse().map_err(|_| wrong())?, minor.parse().map_err(|_| wrong())?);
        let (program, oldest) = match name {
            "linux" => (Program::Linux, OLDEST_LINUX),
            "grub" => (Program::Grub, OLDEST_GRUB),
            _ => return Err(wrong()),
        };
        if version < oldest {
            let oldest = program.version_text(oldest);
            return Err(format!("`{text}`: {} reads version 5 of XFS since {oldest}", program.title()));
        }
        Ok(Self { program, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(ro_compat: u32, incompat: u32) -> Features {
        Features { ro_compat, incompat, ..Features::default() }
    }

    fn version(since: &Option<MinimumVersion>) -> Option<Version> {
        since.as_ref().map(|since| since.version)
    }

    #[test]
    fn readers_parse_and_print_equally() {
        for text in ["linux-5.15", "linux-6.6", "grub-2.06", "grub-2.14"] {
            assert_eq!(text.parse::<Reader>().unwrap().to_string(), text);
        }
        assert_eq!("grub".parse::<Reader>().unwrap().to_string(), "grub-2.06");
        for text in ["", "linux", "linux-", "linux-5", "linux-3.2", "grub-1.99", "mac-1.2", "linux-5.15.1"] {
            assert!(text.parse::<Reader>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_newest_feature_determines_the_version() {
        let plain = features(ro_compat::FINOBT, incompat::FTYPE | incompat::SPARSE_INODES);
        let linux = oldest(Program::Linux, &plain, 4096);
        assert_eq!((version(&linux.reading), version(&linux.writing)), (Some((4, 2)), Some((4, 2))));
        assert_eq!(linux.writing.unwrap().because, ["sparse"]);
        let counted = features(ro_compat::INOBTCOUNT, plain.incompat);
        let linux = oldest(Program::Linux, &counted, 4096);
        assert_eq!((version(&linux.reading), version(&linux.writing)), (Some((4, 2)), Some((5, 10))));
        let new = features(0, plain.incompat | incompat::EXCHANGE | incompat::PARENT);
        let grub = oldest(Program::Grub, &new, 65536);
        assert_eq!(
            grub.reading.unwrap(),
            MinimumVersion { version: (2, 14), because: vec!["exchange".into(), "parent".into()] }
        );
        assert_eq!(grub.writing, None);
        let large = oldest(Program::Linux, &plain, 16384);
        assert_eq!(large.reading.unwrap().because, ["blocks of 16384 bytes"]);
    }

    #[test]
    fn the_document_lists_every_feature() {
        let told = include_str!("../../docs/mkfs.md");
        let text = |(major, minor): Version| format!("{major}.{minor}");
        for feature in FEATURES {
            let usual = feature.usual.map_or("-".into(), text);
            let grub =
                if feature.is_incompatible { Program::Grub.version_text(feature.grub) } else { "any".into() };
            let row = format!("| `{}` | {} | {usual} | {grub} |", feature.name(), text(feature.linux));
            assert!(told.contains(&row), "docs/mkfs.md does not have: {row}");
        }
    }

    #[test]
    fn unknown_features_have_no_version() {
        assert_eq!(oldest(Program::Linux, &features(0, 1 << 30), 4096), OldestVersions::default());
        let linux = oldest(Program::Linux, &features(1 << 30, 0), 4096);
        assert_eq!((version(&linux.reading), linux.writing), (Some(OLDEST_LINUX), None));
    }

    #[test]
    fn default_features_have_no_obstacles() {
        let linux = (3..8).flat_map(|major| (0..22).map(move |minor| (Program::Linux, (major, minor))));
        let grub = (2..15).map(|minor| (Program::Grub, (2, minor)));
        for (program, version) in linux.filter(|(_, version)| *version >= OLDEST_LINUX).chain(grub) {
            let reader = Reader { program, version };
            let mut made = Features::default();
            for feature in FEATURES.iter().filter(|feature| reader.usual(feature)) {
                let word = if feature.is_incompatible { &mut made.incompat } else { &mut made.ro_compat };
                *word |= feature.bit;
            }
            assert!(reader.obstacles(&made, 4096).is_empty(), "{reader}");
        }
    }
}

//! Selection of the structures of a volume, each with a `dump` request and the `xfs_db` commands for it.

use std::collections::BTreeMap;

use dump::Request;
use dump::value::{Struct, Value};
use read::Volume;

/// Maximum number of inodes of each class in an image; see [`class_of`].
const INODES_MAX: usize = 8;
/// Maximum number of blocks of each tree and fork.
const BLOCKS_MAX: usize = 8;
/// Maximum number of AGs.
const AGS_MAX: u32 = 6;

/// A structure to compare.
pub struct Structure {
    /// Arguments of `dump`.
    pub words: String,
    /// The parsed arguments.
    pub request: Request,
    /// Commands of `xfs_db` that print it.
    pub commands: Vec<String>,
    /// They print mappings, not a structure.
    pub is_mapping: bool,
}

/// Selects the structures of a volume.
pub fn plan(volume: &Volume) -> Vec<Structure> {
    let mut tour = Tour { volume, structures: Vec::new() };
    let count = volume.geometry().ag_count();
    let mut inodes = Vec::new();
    for ag in (0..count).take(AGS_MAX as usize - 1).chain((count > AGS_MAX).then_some(count - 1)) {
        for header in ["sb", "agf", "agi", "agfl"] {
            tour.add(format!("{header} {ag}"), vec![format!("{header} {ag}")]);
        }
        tour.trees(ag);
        inodes.extend(chunks(volume, ag));
    }
    let mut classes: BTreeMap<Vec<u64>, Vec<u64>> = BTreeMap::new();
    for ino in inodes {
        classes.entry(class_of(volume, ino)).or_default().push(ino);
    }
    for inodes in classes.values() {
        for ino in inodes.iter().step_by(inodes.len().div_ceil(INODES_MAX)) {
            tour.inode(*ino);
        }
    }
    tour.structures
}

/// Returns the properties that determine how an inode is printed: its type, formats of forks, magnitude of extent
/// counts.
fn class_of(volume: &Volume, ino: u64) -> Vec<u64> {
    let fields = show(volume, &format!("inode {ino}"));
    let Some(Value::Struct(core)) = fields.get("core") else { panic!("inode {ino} has no core") };
    let number = |name: &str| core.get(name).and_then(Value::number).unwrap_or(0);
    let magnitude = |name| number(name).checked_ilog2().map_or(0, |log| u64::from(log) + 1);
    let mut class = vec![number("mode") >> 12, number("format"), number("forkoff").min(1), number("aformat")];
    // For directories, these determine the kinds of blocks; for files, the fork formats suffice.
    if number("mode") >> 12 == 4 {
        class.push(magnitude("nextents").max(magnitude("nblocks")));
    }
    class.push(magnitude("naextents"));
    class
}

struct Tour<'v> {
    volume: &'v Volume,
    structures: Vec<Structure>,
}

impl Tour<'_> {
    fn add(&mut self, words: String, mut commands: Vec<String>) {
        let split: Vec<_> = words.split(' ').collect();
        let request = Request::parse(&split).unwrap();
        let is_mapping = words.starts_with("extents");
        if !is_mapping {
            commands.push("print".into());
        }
        self.structures.push(Structure { words, request, commands, is_mapping });
    }

    fn trees(&mut self, ag: u32) {
        let features = self.volume.geometry().features;
        for (tree, header, root, present) in [
            ("bnobt", "agf", "bnoroot", true),
            ("cntbt", "agf", "cntroot", true),
            ("rmapbt", "agf", "rmaproot", features.rmapbt()),
            ("refcountbt", "agf", "refcntroot", features.reflink()),
            ("inobt", "agi", "root", true),
            ("finobt", "agi", "free_root", features.finobt()),
        ] {
            if present {
                let commands = vec![format!("{header} {ag}"), format!("addr {root}")];
                self.tree(format!("{tree} {ag}"), commands, "ptrs");
            }
        }
    }

    /// Adds a block of a tree, and some of those below.
    fn tree(&mut self, words: String, commands: Vec<String>, pointers: &str) {
        let fields = show(self.volume, &words);
        let children = match fields.get("ptrs") {
            Some(Value::Array(array)) => array.items.len(),
            _ => 0,
        };
        self.add(words.clone(), commands.clone());
        for child in (1..=children).step_by(children.div_ceil(BLOCKS_MAX).max(1)) {
            let below = [commands.clone(), vec![format!("addr {pointers}[{child}]")]].concat();
            self.tree(format!("{words} {child}"), below, "ptrs");
        }
    }

    /// Adds an inode, and some blocks of its forks.
    fn inode(&mut self, ino: u64) {
        let at = format!("inode {ino}");
        self.add(at.clone(), vec![at.clone()]);
        let fields = show(self.volume, &at);
        let Some(Value::Struct(core)) = fields.get("core") else { panic!("{at} has no core") };
        let number = |name: &str| core.get(name).and_then(Value::number).unwrap();
        if number("mode") == 0 {
            return;
        }
        let is_tree = |format: &str| number(format) == 3;
        if is_tree("format") {
            self.bmbt(format!("bmbt {ino}"), &at, "u3");
        }
        if number("forkoff") != 0 && is_tree("aformat") {
            self.bmbt(format!("bmbt {ino} attr"), &at, "a");
        }
        self.add(format!("extents {ino}"), vec![at.clone(), "bmap -d".into()]);
        if number("forkoff") != 0 {
            self.add(format!("extents {ino} attr"), vec![at.clone(), "bmap -a".into()]);
        }
        match number("mode") >> 12 {
            4 => self.fork(ino, "dir", "dblock"),
            10 if number("format") == 2 => {
                self.add(format!("symlink {ino}"), vec![at.clone(), "dblock 0".into()]);
            }
            _ => {}
        }
        if number("forkoff") != 0 {
            self.fork(ino, "attr", "ablock");
        }
    }

    /// Adds blocks below the root of a fork, which is printed with the inode.
    fn bmbt(&mut self, words: String, at: &str, fork: &str) {
        let first = format!("{words} 1");
        self.tree(first, vec![at.into(), format!("addr {fork}.bmbt.ptrs[1]")], "ptrs");
    }

    fn fork(&mut self, ino: u64, verb: &str, command: &str) {
        let fields = show(self.volume, &format!("{verb} {ino}"));
        let Some(Value::Listing(listing)) = fields.get("blocks") else { return };
        let blocks: Vec<u64> =
            listing.rows.iter().filter_map(|row| row.get("file_block").and_then(Value::number)).collect();
        let sample = blocks.iter().step_by(blocks.len().div_ceil(BLOCKS_MAX).max(1));
        // The last block may be of another kind: a free index block, a remote value.
        for block in sample.chain(blocks.last()) {
            let commands = vec![format!("inode {ino}"), format!("{command} {block}")];
            self.add(format!("{verb} {ino} {block}"), commands);
        }
    }
}

/// Returns all inodes of an AG, including free ones, except those of sparse chunks.
fn chunks(volume: &Volume, ag: u32) -> Vec<u64> {
    let mut inodes = Vec::new();
    let mut paths = vec![format!("inobt {ag}")];
    while let Some(path) = paths.pop() {
        let fields = show(volume, &path);
        if let Some(Value::Array(pointers)) = fields.get("ptrs") {
            paths.extend((1..=pointers.items.len()).map(|child| format!("{path} {child}")));
        }
        let Some(Value::Table(records)) = fields.get("recs") else { continue };
        let column = |name| records.columns.iter().position(|column| *column == name);
        let holes = column("holemask");
        for row in &records.rows {
            let start = row[0].number().unwrap();
            let whole = holes.is_none_or(|holes| row[holes].number() == Some(0));
            let count = if whole { 64 } else { 0 };
            let within = (start..start + count).map(|within| base::AgIno(within as u32));
            inodes.extend(within.map(|within| volume.geometry().ino(base::AgNumber(ag), within).get()));
        }
    }
    inodes
}

/// Returns the fields of a structure; none if it cannot be found, which the comparison reports.
fn show(volume: &Volume, words: &str) -> Struct {
    let split: Vec<_> = words.split(' ').collect();
    dump::dump(volume, &Request::parse(&split).unwrap())
        .map(|dumped| dumped.structure.fields)
        .unwrap_or_default()
}

//! Attributes of files of its own. A call that is refused changes none of them.

use std::collections::BTreeMap;

use base::Ino;
use model::Rng;
use volume::{SetAttribute, Volume};

use super::{Stage, Went, rest};

/// Files of one actor.
pub const FILES: usize = 6;

/// A file, and the attributes that it must have.
pub type WantedOf = (Ino, BTreeMap<Vec<u8>, Vec<u8>>);
/// The same of several files.
pub type Wanted = Vec<WantedOf>;

/// Works on some files.
///
/// # Errors
/// In words.
pub fn work(stage: &Stage, files: &[Ino], mut rng: Rng, steps: usize) -> Result<Wanted, String> {
    let mut wanted: Wanted = files.iter().map(|ino| (*ino, BTreeMap::new())).collect();
    for step in 0..steps {
        if stage.is_over() {
            break;
        }
        let n = rng.index(wanted.len());
        let (ino, all) = &mut wanted[n];
        let name = format!("user.{}", rng.below(12)).into_bytes();
        let went = if rng.one_in(12) {
            // Its attributes lie in the inode again, and have to leave it again.
            remove_all(stage, *ino, all)?
        } else if rng.one_in(4) {
            let removed = stage.volume().remove_attribute(*ino, &name);
            let went = stage.judge("removexattr", removed)?.0;
            if went == Went::Well {
                all.remove(&name);
            }
            went
        } else {
            let longest = [20, 300, 4000, 60_000][rng.index(4)];
            let length = 1 + rng.index(longest);
            let value = rng.bytes(length);
            let set = stage.volume().set_attribute(*ino, &name, &value, SetAttribute::Any);
            let went = stage.judge("setxattr", set)?.0;
            if went == Went::Well {
                all.insert(name, value);
            }
            went
        };
        match went {
            Went::Failed => return Ok(Vec::new()),
            Went::Refused | Went::Well if went == Went::Refused || rng.one_in(10) => {
                let same = compare(stage.volume(), &wanted[n..=n]);
                same.or_else(|what| if stage.fails { Ok(()) } else { Err(format!("step {step}: {what}")) })?;
            }
            Went::Refused | Went::Well => {}
        }
        rest(&mut rng);
    }
    Ok(if stage.fails { Vec::new() } else { wanted })
}

/// Removes all attributes of a file, as long as that goes well.
fn remove_all(stage: &Stage, ino: Ino, all: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Went, String> {
    while let Some((name, _)) = all.first_key_value() {
        let went = stage.judge("removexattr", stage.volume().remove_attribute(ino, name))?.0;
        if went != Went::Well {
            return Ok(went);
        }
        all.pop_first();
    }
    Ok(Went::Well)
}

/// Compares all attributes of files.
///
/// # Errors
/// The first difference, in words.
pub fn compare(volume: &Volume, wanted: &[WantedOf]) -> Result<(), String> {
    for (ino, all) in wanted {
        let words = |error: volume::Error| format!("attributes of inode {ino}: {error}");
        let mut names = volume.list_attributes(*ino).map_err(words)?;
        names.sort();
        if names != all.keys().cloned().collect::<Vec<_>>() {
            return Err(format!("inode {ino} has {} attributes, and should have {}", names.len(), all.len()));
        }
        for (name, value) in all {
            if volume.get_attribute(*ino, name).map_err(words)? != *value {
                return Err(format!("inode {ino}: attribute {} has another value", name.escape_ascii()));
            }
        }
    }
    Ok(())
}

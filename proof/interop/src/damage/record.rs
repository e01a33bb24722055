//! Creates the cases with xfs_db, and runs both versions of xfs_repair on each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use super::locations::{Location, locations};
use super::{Case, Verdict, Volume, check, store};
use model::Rng;

/// The changes that xfs_db's `fuzz` can make.
const VERBS: [&str; 8] = ["zeroes", "ones", "firstbit", "middlebit", "lastbit", "add", "sub", "random"];
/// Number of first elements of an array that are damaged, besides the last one.
const ELEMENTS: usize = 2;

/// Options of `damage record`.
#[derive(clap::Args)]
pub struct Options {
    /// Base volumes; all if none is given.
    pub bases: Vec<String>,
    /// Seed of the choice of changes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of changes per field.
    #[arg(long, default_value_t = 1)]
    pub verbs: usize,
    /// Maximum number of fields per structure.
    #[arg(long, default_value_t = 10)]
    pub fields: usize,
}

/// One version of xfsprogs.
pub struct Judge {
    /// Version printed by `xfs_repair -V`.
    pub version: String,
    /// Path of `xfs_repair`.
    pub repair: PathBuf,
}

/// Returns both versions, Debian's first.
///
/// # Errors
/// One of them is not installed.
pub fn judges() -> Result<Vec<Judge>> {
    [needs::path("xfs_repair"), needs::judges().join("xfs_repair")]
        .into_iter()
        .map(|repair| {
            let output =
                needs::own(&repair).arg("-V").output().with_context(|| repair.display().to_string())?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text.split_whitespace().last().context("xfs_repair -V prints nothing")?.to_owned();
            Ok(Judge { version, repair })
        })
        .collect()
}

/// Recreates and records all cases.
///
/// # Errors
/// A base volume is not clean, or a tool fails.
pub fn run(options: &Options) -> Result<()> {
    let bases = if options.bases.is_empty() { super::bases()? } else { options.bases.clone() };
    for base in &bases {
        let work = tempfile::tempdir()?;
        let volume = Volume::unpack(base, work.path())?;
        let judges = usable(judges()?, &volume)?;
        let cases = make_cases(&volume, options)?;
        let cases = judge_all(base, cases, &judges)?;
        let found = cases.iter().filter(|c| c.repair.values().any(|v| v.exit != 0)).count();
        println!("{base}: {} cases, xfs_repair finds damage in {found}", cases.len());
        store(base, &cases)?;
    }
    Ok(())
}

/// Returns the judges that accept the healthy volume; an older one may not know its features.
fn usable(judges: Vec<Judge>, volume: &Volume) -> Result<Vec<Judge>> {
    let mut usable = Vec::new();
    for judge in judges {
        let verdict = run_repair(&judge.repair, &volume.path)?;
        if verdict.exit == 0 {
            usable.push(judge);
        } else {
            println!("xfs_repair {} is not used: {}", judge.version, verdict.says);
        }
    }
    if usable.is_empty() {
        bail!("no xfs_repair finds the healthy volume clean");
    }
    Ok(usable)
}

/// Creates the damage, without verdicts.
fn make_cases(volume: &Volume, options: &Options) -> Result<Vec<Case>> {
    let mut rng = Rng::new(options.seed);
    let block = number(volume, "blocksize")?;
    let dir_block = block << number(volume, "dirblklog")?;
    let mut cases = Vec::new();
    for location in locations(block, dir_block) {
        let fields = fields(&volume.path, &location)?;
        if fields.is_empty() {
            continue;
        }
        let mut commands = Vec::new();
        for field in choose(fields, options.fields, &mut rng) {
            for _ in 0..options.verbs {
                let verb = VERBS[rng.below(8) as usize];
                // `-d` updates the checksum after the change of another field.
                let flag = if field.ends_with("crc") { "-c" } else { "-d" };
                commands.push(format!("fuzz {flag} {field} {verb}"));
            }
        }
        // Up to 64 bits of the whole block: cleared, set, flipped, or random, with a wrong checksum.
        commands.push(format!("blocktrash -z -s {} -{} -x 1 -y 64", rng.below(1 << 20), rng.below(4)));
        commands.sort();
        commands.dedup();
        for how in commands {
            cases.extend(make_case(volume, &location, how)?);
        }
    }
    Ok(cases)
}

/// Runs one command and records its changes; `None` if it changed nothing.
fn make_case(volume: &Volume, location: &Location, how: String) -> Result<Option<Case>> {
    db(&volume.path, "-x", location.at.iter().chain([&how]))?;
    let patch = volume.difference()?;
    let case = Case {
        structure: location.structure.into(),
        at: location.at.clone(),
        how,
        patch,
        repair: BTreeMap::new(),
    };
    volume.restore(&case)?;
    Ok((!case.patch.is_empty()).then_some(case))
}

/// Runs every judge on every case, in parallel on copies of the volume.
fn judge_all(base: &str, cases: Vec<Case>, judges: &[Judge]) -> Result<Vec<Case>> {
    let queue = Mutex::new(cases.into_iter().enumerate());
    let done = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || -> Result<()> {
        let dir = tempfile::tempdir()?;
        let volume = Volume::unpack(base, dir.path())?;
        loop {
            let next = queue.lock().map_err(|_| anyhow::anyhow!("another worker died"))?.next();
            let Some((index, mut case)) = next else { return Ok(()) };
            volume.damage(&case)?;
            for judge in judges {
                case.repair.insert(judge.version.clone(), run_repair(&judge.repair, &volume.path)?);
            }
            volume.restore(&case)?;
            done.lock().map_err(|_| anyhow::anyhow!("another worker died"))?.push((index, case));
        }
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        handles.into_iter().try_for_each(|h| h.join().map_err(|_| anyhow::anyhow!("a worker died"))?)
    })?;
    let mut done = done.into_inner().map_err(|_| anyhow::anyhow!("a worker died"))?;
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, case)| case).collect())
}

/// Runs one `xfs_repair -n`.
///
/// # Errors
/// It cannot be started.
pub fn run_repair(repair: &Path, image: &Path) -> Result<Verdict> {
    let (exit, text) = check(repair, &["-n", "-f"], image)?;
    let chatter = |line: &&str| !line.trim().is_empty() && !is_chatter(line);
    let says = if exit == 0 { "" } else { text.lines().find(chatter).unwrap_or("") };
    Ok(Verdict { exit, says: without_addresses(says).chars().take(120).collect() })
}

/// Returns true for a line that `xfs_repair` prints for every volume.
pub fn is_chatter(line: &str) -> bool {
    let chatter =
        ["- ", "Phase", "No modify", "Cannot get host", "Repair may fail", "the image and the host"];
    chatter.iter().any(|start| line.trim_start().starts_with(start))
}

/// Removes the address of code from a message, which differs between runs.
fn without_addresses(says: &str) -> String {
    let Some((before, after)) = says.split_once(" at 0x") else { return says.to_owned() };
    match after.split_once(", ") {
        Some((_, what)) => format!("{before}: {what}"),
        None => says.to_owned(),
    }
}

/// Returns the names of the fields of a structure from the output of `print`.
fn fields(image: &Path, location: &Location) -> Result<Vec<String>> {
    let mut commands = Vec::new();
    for command in &location.at {
        // Print pointers before following them.
        commands.extend(command.strip_prefix("addr ").map(|pointer| format!("print {pointer}")));
        commands.push(command.clone());
    }
    let shown = db(image, "-r", commands.iter())?;
    // The tree has fewer levels, or the volume does not have this file or tree.
    let absent = ["No such file", "no such", "not found", "no current type", "is invalid"];
    if absent.iter().any(|e| shown.contains(e))
        || shown.lines().any(|l| l.ends_with(" = 0") || l.ends_with("null"))
    {
        return Ok(Vec::new());
    }
    let print = "print".to_owned();
    let text = db(image, "-r", location.at.iter().chain([&print]))?;
    Ok(text.lines().flat_map(field_names).collect())
}

/// Returns the fields in one line of `print`.
///
/// `crc = 0x1 (correct)` has one field; `keys[1-11] = [startblock,blockcount] ` has two for each of eleven elements, of
/// which the first ones and the last are used; `1:[5919,1]` and other lines that begin with a number have none.
fn field_names(line: &str) -> Vec<String> {
    let Some((name, value)) = line.split_once(" = ") else { return Vec::new() };
    if name.starts_with(|c: char| !c.is_ascii_alphabetic())
        || name.contains(' ')
        || value.starts_with("(empty)")
    {
        return Vec::new();
    }
    let Some((array, range)) = name.strip_suffix(']').and_then(|n| n.rsplit_once('[')) else {
        return if element(name).is_some_and(|i| i > ELEMENTS) { Vec::new() } else { vec![name.to_owned()] };
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { return Vec::new() };
    let parts: Vec<&str> = match value.trim().strip_prefix('[').and_then(|v| v.strip_suffix(']')) {
        Some(names) if !names.contains(|c: char| c.is_ascii_digit() || c == ' ') => {
            names.split(',').collect()
        }
        _ => vec![""],
    };
    let elements = (first..=last).filter(|i| i - first < ELEMENTS || *i == last);
    let join = |i: usize, part: &str| {
        if part.is_empty() { format!("{array}[{i}]") } else { format!("{array}[{i}].{part}") }
    };
    elements.flat_map(|i| parts.iter().map(move |part| join(i, part))).collect()
}

/// Returns the largest array index in a field's name.
fn element(name: &str) -> Option<usize> {
    name.split('[').skip(1).filter_map(|rest| rest.split(']').next()?.parse().ok()).max()
}

/// Selects at most `count` fields at random. Padding and fields that no checker verifies are left out.
fn choose(mut fields: Vec<String>, count: usize, rng: &mut Rng) -> Vec<String> {
    const UNCHECKED: [&str; 12] = [
        "nsec",
        "core.dm",
        "core.gen",
        "core.uid",
        "core.gid",
        "fname",
        "change_count",
        "core.newrtbm",
        "core.projid",
        "prealloc",
        "core.nodump",
        "core.noatime",
    ];
    fields.retain(|f| !UNCHECKED.iter().any(|name| f.contains(name)));
    while fields.len() > count {
        fields.remove(rng.below(fields.len() as u64) as usize);
    }
    fields
}

/// Returns a number from the superblock.
fn number(volume: &Volume, field: &str) -> Result<u64> {
    let commands = ["sb 0".to_owned(), format!("print {field}")];
    let text = db(&volume.path, "-r", commands.iter())?;
    let value = text.rsplit(" = ").next().context("no value")?.trim();
    Ok(value.parse()?)
}

/// Runs xfs_db and returns its output. Failures are ignored: only the changed bytes count.
fn db<'a>(image: &Path, mode: &str, commands: impl Iterator<Item = &'a String>) -> Result<String> {
    let mut args = vec![mode];
    commands.for_each(|c| args.extend(["-c", c]));
    args.push("-f");
    Ok(check(&needs::judges().join("xfs_db"), &args, image)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_print() {
        assert_eq!(field_names("crc = 0x1dcf2190 (correct)"), ["crc"]);
        assert_eq!(field_names("du[1].namelen = 2"), ["du[1].namelen"]);
        assert_eq!(field_names("du[9].namelen = 2"), [""; 0]);
        assert_eq!(
            field_names("keys[1-11] = [startblock,blockcount] "),
            [
                "keys[1].startblock",
                "keys[1].blockcount",
                "keys[2].startblock",
                "keys[2].blockcount",
                "keys[11].startblock",
                "keys[11].blockcount"
            ]
        );
        assert_eq!(field_names("fbests[0-6] = 6:0xe20"), ["fbests[0]", "fbests[1]", "fbests[6]"]);
        assert_eq!(field_names("1:[5919,1] "), [""; 0]);
        assert_eq!(field_names("u3 = (empty)"), [""; 0]);
    }
}

//! Makes the cases with xfs_db, and asks both generations of xfs_repair about each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use super::places::{Place, places};
use super::{Case, Verdict, Volume, check, store};
use model::Rng;

/// The changes that xfs_db knows.
const VERBS: [&str; 8] = ["zeroes", "ones", "firstbit", "middlebit", "lastbit", "add", "sub", "random"];
/// Elements of an array that are damaged: the first few, and the last.
const ELEMENTS: usize = 2;

/// How lines of xfs_repair begin that are no complaints.
const CHATTER: [&str; 6] =
    ["- ", "Phase", "No modify", "Cannot get host", "Repair may fail", "the image and the host"];

/// What to record.
#[derive(clap::Args)]
pub struct Options {
    /// The base volumes; all, without any.
    pub bases: Vec<String>,
    /// The seed of the choice of changes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many changes of each field.
    #[arg(long, default_value_t = 1)]
    pub verbs: usize,
    /// How many fields of one place.
    #[arg(long, default_value_t = 10)]
    pub fields: usize,
}

/// One generation of xfsprogs.
pub struct Judge {
    /// Its version, as `xfs_repair -V` says it.
    pub version: String,
    /// Its `xfs_repair`.
    pub repair: PathBuf,
}

/// Both generations, Debian's first.
///
/// # Errors
/// When one is not installed.
pub fn judges() -> Result<Vec<Judge>> {
    [needs::path("xfs_repair"), needs::judges().join("xfs_repair")]
        .into_iter()
        .map(|repair| {
            let output =
                needs::own(&repair).arg("-V").output().with_context(|| repair.display().to_string())?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text.split_whitespace().last().context("xfs_repair -V says nothing")?.to_owned();
            Ok(Judge { version, repair })
        })
        .collect()
}

/// Records the cases anew.
///
/// # Errors
/// A base volume that is not clean to begin with, and whatever stops the tools.
pub fn run(options: &Options) -> Result<()> {
    let bases = if options.bases.is_empty() { super::bases()? } else { options.bases.clone() };
    for base in &bases {
        let work = tempfile::tempdir()?;
        let volume = Volume::unpack(base, work.path())?;
        let judges = willing(judges()?, &volume)?;
        let cases = make_cases(&volume, options)?;
        let cases = ask_all(base, cases, &judges)?;
        let complaints = cases.iter().filter(|c| c.repair.values().any(|v| v.exit != 0)).count();
        println!("{base}: {} cases, xfs_repair complains of {complaints}", cases.len());
        store(base, &cases)?;
    }
    Ok(())
}

/// Those judges that find nothing wrong with the healthy volume; an older one may not know its features.
fn willing(judges: Vec<Judge>, volume: &Volume) -> Result<Vec<Judge>> {
    let mut willing = Vec::new();
    for judge in judges {
        let verdict = ask(&judge.repair, &volume.path)?;
        if verdict.exit == 0 {
            willing.push(judge);
        } else {
            println!("xfs_repair {} does not judge it: {}", judge.version, verdict.says);
        }
    }
    if willing.is_empty() {
        bail!("no xfs_repair finds the healthy volume clean");
    }
    Ok(willing)
}

/// Makes the damage, without verdicts.
fn make_cases(volume: &Volume, options: &Options) -> Result<Vec<Case>> {
    let mut rng = Rng::new(options.seed);
    let block = number(volume, "blocksize")?;
    let dir_block = block << number(volume, "dirblklog")?;
    let mut cases = Vec::new();
    for place in places(block, dir_block) {
        let fields = fields(&volume.path, &place)?;
        if fields.is_empty() {
            continue;
        }
        let mut commands = Vec::new();
        for field in choose(fields, options.fields, &mut rng) {
            for _ in 0..options.verbs {
                let verb = VERBS[rng.below(8) as usize];
                // Of a checksum only a wrong one is damage; other fields are damaged under a right one.
                let flag = if field.ends_with("crc") { "-c" } else { "-d" };
                commands.push(format!("fuzz {flag} {field} {verb}"));
            }
        }
        // Up to 64 bits of the whole block: cleared, set, flipped, or by chance; the checksum is wrong then.
        commands.push(format!("blocktrash -z -s {} -{} -x 1 -y 64", rng.below(1 << 20), rng.below(4)));
        commands.sort();
        commands.dedup();
        for how in commands {
            cases.extend(make_case(volume, &place, how)?);
        }
    }
    Ok(cases)
}

/// Does one piece of damage and takes it down; nothing, if it changed nothing.
fn make_case(volume: &Volume, place: &Place, how: String) -> Result<Option<Case>> {
    db(&volume.path, "-x", place.at.iter().chain([&how]))?;
    let patch = volume.difference()?;
    let case =
        Case { structure: place.structure.into(), at: place.at.clone(), how, patch, repair: BTreeMap::new() };
    volume.heal(&case)?;
    Ok((!case.patch.is_empty()).then_some(case))
}

/// Asks every judge about every case, on as many copies of the volume as there are processors.
fn ask_all(base: &str, cases: Vec<Case>, judges: &[Judge]) -> Result<Vec<Case>> {
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
                case.repair.insert(judge.version.clone(), ask(&judge.repair, &volume.path)?);
            }
            volume.heal(&case)?;
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

/// Asks one xfs_repair, which changes nothing.
///
/// # Errors
/// When it cannot be started.
pub fn ask(repair: &Path, image: &Path) -> Result<Verdict> {
    let (exit, text) = check(repair, &["-n", "-f"], image)?;
    let chatter = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty() && !CHATTER.iter().any(|start| line.starts_with(start))
    };
    let says = if exit == 0 { "" } else { text.lines().find(chatter).unwrap_or("") };
    Ok(Verdict { exit, says: without_addresses(says).chars().take(120).collect() })
}

/// A complaint without the address of the code that makes it, which differs from run to run.
fn without_addresses(says: &str) -> String {
    let Some((before, after)) = says.split_once(" at 0x") else { return says.to_owned() };
    match after.split_once(", ") {
        Some((_, what)) => format!("{before}: {what}"),
        None => says.to_owned(),
    }
}

/// The names of the fields at a place, as `print` shows them.
fn fields(image: &Path, place: &Place) -> Result<Vec<String>> {
    let mut commands = Vec::new();
    for command in &place.at {
        // Pointers are shown before they are followed.
        commands.extend(command.strip_prefix("addr ").map(|pointer| format!("print {pointer}")));
        commands.push(command.clone());
    }
    let shown = db(image, "-r", commands.iter())?;
    // A tree without the level that the place asks for, or a file or a tree that this volume does not have.
    let absent = ["No such file", "no such", "not found", "no current type", "is invalid"];
    if absent.iter().any(|e| shown.contains(e))
        || shown.lines().any(|l| l.ends_with(" = 0") || l.ends_with("null"))
    {
        return Ok(Vec::new());
    }
    let print = "print".to_owned();
    let text = db(image, "-r", place.at.iter().chain([&print]))?;
    Ok(text.lines().flat_map(field_names).collect())
}

/// The fields that one line of `print` names.
///
/// `crc = 0x1 (correct)` names one; `keys[1-11] = [startblock,blockcount] ` names two of each of eleven elements, of
/// which the first few and the last are taken; `1:[5919,1]` and what else begins with a number names none.
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

/// The largest array index in a field's name.
fn element(name: &str) -> Option<usize> {
    name.split('[').skip(1).filter_map(|rest| rest.split(']').next()?.parse().ok()).max()
}

/// At most `count` fields. Padding and what nobody checks is left out; if there are too many, chance decides.
fn choose(mut fields: Vec<String>, count: usize, rng: &mut Rng) -> Vec<String> {
    const DULL: [&str; 12] = [
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
    fields.retain(|f| !DULL.iter().any(|dull| f.contains(dull)));
    while fields.len() > count {
        fields.remove(rng.below(fields.len() as u64) as usize);
    }
    fields
}

/// A number of the superblock.
fn number(volume: &Volume, field: &str) -> Result<u64> {
    let commands = ["sb 0".to_owned(), format!("print {field}")];
    let text = db(&volume.path, "-r", commands.iter())?;
    let value = text.rsplit(" = ").next().context("no value")?.trim();
    Ok(value.parse()?)
}

/// Runs xfs_db, and gives all that it says. It often fails half-way, which is no error here: the bytes tell.
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

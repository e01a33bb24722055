//! Commands of Xebec, their peers and targets.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use report::record::Target;

use crate::bench_volume::Mount;
use crate::child;
use crate::images;
use crate::measure::{MeasuredCommand, Usage};
use crate::peers;
use crate::recorder::{Recorder, Row};
use crate::scale::{Scale, Size};

/// A command of Xebec, and its peer.
struct Pair<'t> {
    task: &'t str,
    /// Highest accepted ratio of median wall times (Xebec / peer).
    wall_target: Option<f64>,
    /// Highest accepted ratio of peak memory.
    memory_target: Option<f64>,
}

/// Checking a volume of a million inodes.
pub fn check(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = images::many(scale)?;
    let repair = newest_repair();
    let ours = MeasuredCommand::new([scale.xebec.as_os_str(), "check".as_ref(), image.as_os_str()]);
    let words = [repair.as_os_str(), "-n".as_ref(), "-f".as_ref(), image.as_os_str()];
    let pair = Pair { task: "check a volume", wall_target: Some(0.25), memory_target: Some(0.2) };
    let mut peer = |_| Ok(MeasuredCommand::new(words));
    let has_peer = recorder.has_peer("xfs_repair", scale.alone, peers::installed(&[&repair]));
    pair.alternate(scale, &ours, recorder, has_peer.then_some(&mut peer))
}

/// Listing a volume of a million inodes.
pub fn ls(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = images::many(scale)?;
    let ours =
        MeasuredCommand::new([scale.xebec.as_os_str(), "ls".as_ref(), "-lR".as_ref(), image.as_os_str()]);
    let task = "list every file (peer: find on the kernel's mount, its caches warm)";
    let pair = Pair { task, wall_target: Some(0.15), memory_target: None };
    let ready = peers::installed(&["find"]).and_then(|()| scale.kernel.clone());
    if !recorder.has_peer("find on a mount", scale.alone, ready) {
        return pair.alternate(scale, &ours, recorder, None);
    }
    let mount = Mount::read_only(&image)?;
    let peer = MeasuredCommand::new(["find", ".", "-ls"]).within(mount.folder());
    same_count(&ours, &peer)?;
    pair.alternate(scale, &ours, recorder, Some(&mut |_| Ok(peer.clone())))
}

/// Extracting a tree of 65,000 files.
pub fn extract(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = images::tree(scale)?;
    let ours =
        [scale.xebec.as_os_str(), "extract".as_ref(), image.as_os_str(), "--to".as_ref(), "-".as_ref()];
    let ours = MeasuredCommand::new(ours).piped();
    let peer = |mount: &Mount| MeasuredCommand::new(["tar", "cf", "-", "."]).within(mount.folder()).piped();
    let task = "extract all to a tar stream (peer: tar on a fresh kernel mount)";
    let fresh = Pair { task, wall_target: Some(0.6), memory_target: None };
    let ready = peers::installed(&["tar"]).and_then(|()| scale.kernel.clone());
    if !recorder.has_peer("tar on a mount", scale.alone, ready) {
        return fresh.alternate(scale, &ours, recorder, None);
    }
    same_names(&ours, &peer(&Mount::read_only(&image)?))?;

    // A fresh mount for each run: both sides find the image in the page cache, and nothing else.
    let mut mount = None;
    let mut on_fresh = |_| {
        mount = None;
        Ok(peer(mount.insert(Mount::read_only(&image)?)))
    };
    fresh.alternate(scale, &ours, recorder, Some(&mut on_fresh))?;
    drop(mount);

    let task = "extract all to a tar stream (peer: tar on a kernel mount whose own caches are warm)";
    let warm = Pair { task, wall_target: None, memory_target: None };
    let mount = Mount::read_only(&image)?;
    warm.alternate(scale, &ours, recorder, Some(&mut |_| Ok(peer(&mount))))
}

/// Prepares a run of a peer.
type Prepare<'p> = &'p mut dyn FnMut(u32) -> anyhow::Result<MeasuredCommand>;

/// A quantity of a run: what is added to the name of the task, its unit, its value, and the highest accepted ratio to
/// the peer.
type Quantity = (&'static str, &'static str, fn(&Usage) -> f64, Option<f64>);

impl Pair<'_> {
    /// Runs Xebec and the peer, if there is one, in turns. `peer` prepares each of its runs. A full measurement does
    /// not count the first run of each.
    fn alternate(
        &self,
        scale: &Scale,
        ours: &MeasuredCommand,
        recorder: &mut Recorder<'_>,
        mut peer: Option<Prepare<'_>>,
    ) -> anyhow::Result<()> {
        let (mut xebec, mut other, mut peer_command) = (Vec::new(), Vec::new(), String::from("none"));
        let warm_ups = u32::from(scale.size == Size::Full);
        for round in 0..scale.rounds + warm_ups {
            recorder.go_on()?;
            let used = ours.measure()?;
            let peer = peer.as_mut().map(|prepare| prepare(round)).transpose()?;
            let peer_used = peer.as_ref().map(MeasuredCommand::measure).transpose()?;
            if round >= warm_ups {
                xebec.push(used);
                other.extend(peer_used);
            }
            peer_command = peer.map_or(peer_command, |peer| peer.describe());
        }
        let quantities: [Quantity; 3] = [
            ("", "s", |usage| usage.wall_s, self.wall_target),
            (": CPU time", "s", |usage| usage.user_s + usage.system_s, None),
            (
                ": peak memory",
                "MiB",
                |usage| usage.rss_peak_bytes as f64 / f64::from(1 << 20),
                self.memory_target,
            ),
        ];
        for (suffix, unit, of, target) in quantities {
            recorder.add(Row {
                task: format!("{}{suffix}", self.task),
                unit,
                ours_is: "xebec",
                other_is: "its peer",
                ours: xebec.iter().map(of).collect(),
                other: other.iter().map(of).collect(),
                target: target.filter(|_| !other.is_empty()).map(Target::RatioAtMost),
            });
        }
        recorder.note(format!("{}: {}; its peer: {peer_command}", self.task, ours.describe()));
        Ok(())
    }
}

/// The newer `xfs_repair` that CI installs, or else Debian's.
pub fn newest_repair() -> PathBuf {
    let judges = std::env::var_os("XEBEC_JUDGES").unwrap_or("/opt/xebec-judges".into());
    let newer = Path::new(&judges).join("bin/xfs_repair");
    if newer.exists() { newer } else { "xfs_repair".into() }
}

/// Checks that both listings have the same number of files. `find` prints one line for each; `ls -lR` prints headings
/// and totals as well.
fn same_count(ours: &MeasuredCommand, peer: &MeasuredCommand) -> anyhow::Result<()> {
    let entry = |line: &&[u8]| line.first().is_some_and(|c| b"-dlbcps".contains(c)) && line.contains(&b' ');
    let listed = ours.output()?.split(|byte| *byte == b'\n').filter(entry).count();
    // `find` also lists its start directory.
    let found = peer.output()?.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() - 1;
    if listed != found {
        bail!("xebec lists {listed} files, find {found}: the results cannot be compared");
    }
    Ok(())
}

/// Checks that both archives have the same names.
fn same_names(ours: &MeasuredCommand, peer: &MeasuredCommand) -> anyhow::Result<()> {
    let (ours, theirs) = (names(&ours.output()?)?, names(&peer.output()?)?);
    if let Some(name) = ours.symmetric_difference(&theirs).next() {
        let (has, lacks) = if ours.contains(name) { ("xebec's", "tar's") } else { ("tar's", "xebec's") };
        bail!("`{name}` is in {has} archive but not in {lacks}: the results cannot be compared");
    }
    Ok(())
}

/// Names in an archive, from `tar t`, without a leading `./` and a trailing `/`.
fn names(archive: &[u8]) -> anyhow::Result<BTreeSet<String>> {
    use std::io::Write;
    use std::process::Stdio;
    let mut tar = child::command("tar")
        .args(["tf", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run tar (apt install tar)")?;
    let mut input = tar.stdin.take().context("tar's input")?;
    let list = std::thread::scope(|scope| {
        // tar stops at the end marker and may leave padding unread.
        scope.spawn(move || input.write_all(archive).ok());
        tar.wait_with_output()
    })?;
    if !list.status.success() {
        bail!("tar cannot read an archive: {}", list.status);
    }
    let tidy = |line: &str| line.trim_start_matches("./").trim_end_matches('/').to_string();
    let names = String::from_utf8_lossy(&list.stdout).lines().map(tidy).collect::<BTreeSet<_>>();
    Ok(names.into_iter().filter(|name| !name.is_empty() && name != ".").collect())
}

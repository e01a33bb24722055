//! Commands of Xebec, their peers and targets.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

use crate::images::Images;
use crate::measure::{MeasuredCommand, Usage};
use crate::mount::Mount;

/// Settings of all benchmarks.
pub struct Setup {
    /// Path of `xebec`.
    pub xebec: PathBuf,
    /// Images of the benchmarks.
    pub images: Images,
    /// Measured runs of each side.
    pub rounds: u32,
}

/// Results of one comparison.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Description of the task.
    pub task: String,
    /// Path of the image.
    pub image: PathBuf,
    /// Xebec's command.
    pub xebec_command: String,
    /// The peer's command.
    pub peer_command: String,
    /// Highest accepted ratio of median wall times (Xebec / peer).
    pub wall_target: Option<f64>,
    /// Highest accepted ratio of peak memory.
    pub rss_target: Option<f64>,
    /// Xebec's runs, in order.
    pub xebec: Vec<Usage>,
    /// The peer's runs, each after Xebec's run of the same index.
    pub peer: Vec<Usage>,
}

/// Checking a volume of a million inodes.
pub fn check(setup: &Setup) -> anyhow::Result<Vec<Comparison>> {
    let image = setup.images.million()?;
    let repair = newest_repair();
    let ours = MeasuredCommand::new([setup.xebec.as_os_str(), "check".as_ref(), image.as_os_str()]);
    let words = [repair.as_os_str(), "-n".as_ref(), "-f".as_ref(), image.as_os_str()];
    let mut comparison = Comparison::new("check the volume", &image, Some(0.25), Some(0.2));
    comparison.alternate(setup.rounds, &ours, |_| Ok(MeasuredCommand::new(words)))?;
    Ok(vec![comparison])
}

/// Listing a volume of a million inodes.
pub fn ls(setup: &Setup) -> anyhow::Result<Vec<Comparison>> {
    let image = setup.images.million()?;
    let ours =
        MeasuredCommand::new([setup.xebec.as_os_str(), "ls".as_ref(), "-lR".as_ref(), image.as_os_str()]);
    let mount = Mount::new(&image)?;
    let peer = MeasuredCommand::new(["find", ".", "-ls"]).within(mount.folder());
    same_count(&ours, &peer)?;
    let task = "list every file (peer: find on the kernel's mount, its caches warm)";
    let mut comparison = Comparison::new(task, &image, Some(0.15), None);
    comparison.alternate(setup.rounds, &ours, |_| Ok(peer.clone()))?;
    Ok(vec![comparison])
}

/// Extracting a tree of 65,000 files.
pub fn extract(setup: &Setup) -> anyhow::Result<Vec<Comparison>> {
    let image = setup.images.tree()?;
    let ours =
        [setup.xebec.as_os_str(), "extract".as_ref(), image.as_os_str(), "--to".as_ref(), "-".as_ref()];
    let ours = MeasuredCommand::new(ours).piped();
    let peer = |mount: &Mount| MeasuredCommand::new(["tar", "cf", "-", "."]).within(mount.folder()).piped();
    same_names(&ours, &peer(&Mount::new(&image)?))?;

    // A fresh mount for each run: both sides find the image in the page cache, and nothing else.
    let task = "extract all to a tar stream (peer: tar on a fresh kernel mount)";
    let mut fresh = Comparison::new(task, &image, Some(0.6), None);
    let mut mount = None;
    fresh.alternate(setup.rounds, &ours, |_| {
        mount = None;
        Ok(peer(mount.insert(Mount::new(&image)?)))
    })?;
    drop(mount);

    let task = "extract all to a tar stream (peer: tar on a kernel mount whose own caches are warm)";
    let mut warm = Comparison::new(task, &image, None, None);
    let mount = Mount::new(&image)?;
    warm.alternate(setup.rounds, &ours, |_| Ok(peer(&mount)))?;
    Ok(vec![fresh, warm])
}

impl Comparison {
    fn new(task: &str, image: &Path, wall_target: Option<f64>, rss_target: Option<f64>) -> Self {
        Self {
            task: task.into(),
            image: image.into(),
            xebec_command: String::new(),
            peer_command: String::new(),
            wall_target,
            rss_target,
            xebec: Vec::new(),
            peer: Vec::new(),
        }
    }

    /// Runs Xebec and the peer alternately; the first run of each is not counted. `peer` prepares each of the peer's
    /// runs.
    fn alternate(
        &mut self,
        rounds: u32,
        ours: &MeasuredCommand,
        mut peer: impl FnMut(u32) -> anyhow::Result<MeasuredCommand>,
    ) -> anyhow::Result<()> {
        for round in 0..=rounds {
            let xebec = ours.measure()?;
            let peer = peer(round)?;
            let used = peer.measure()?;
            if round > 0 {
                self.xebec.push(xebec);
                self.peer.push(used);
            }
            self.peer_command = peer.describe();
        }
        self.xebec_command = ours.describe();
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
    use std::process::{Command, Stdio};
    let mut tar = Command::new("tar")
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

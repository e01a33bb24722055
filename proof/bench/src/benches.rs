//! What is compared with what, and the ratio to reach.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

use crate::images::Images;
use crate::measure::{Run, Usage};
use crate::mount::Mount;

/// What every bench needs.
pub struct Setup {
    /// The program to measure.
    pub xebec: PathBuf,
    /// The images.
    pub images: Images,
    /// Measured turns of each side.
    pub rounds: u32,
}

/// The runs of one comparison.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// What both sides do, in words.
    pub task: String,
    /// The image.
    pub image: PathBuf,
    /// Our command.
    pub xebec_command: String,
    /// The peer's command.
    pub peer_command: String,
    /// The ratio of median wall times to reach, ours through the peer's; `None` where the row only informs.
    pub wall_target: Option<f64>,
    /// The same of peak memory.
    pub rss_target: Option<f64>,
    /// Our runs, in the order in which they were made.
    pub xebec: Vec<Usage>,
    /// The peer's, each right after ours of the same place.
    pub peer: Vec<Usage>,
}

/// Checking a volume of a million inodes.
pub fn check(setup: &Setup) -> anyhow::Result<Vec<Comparison>> {
    let image = setup.images.million()?;
    let repair = newest_repair();
    let ours = Run::new([setup.xebec.as_os_str(), "check".as_ref(), image.as_os_str()]);
    let words = [repair.as_os_str(), "-n".as_ref(), "-f".as_ref(), image.as_os_str()];
    let mut comparison = Comparison::new("check the volume", &image, Some(0.25), Some(0.2));
    comparison.alternate(setup.rounds, &ours, |_| Ok(Run::new(words)))?;
    Ok(vec![comparison])
}

/// Listing a volume of a million inodes.
pub fn ls(setup: &Setup) -> anyhow::Result<Vec<Comparison>> {
    let image = setup.images.million()?;
    let ours = Run::new([setup.xebec.as_os_str(), "ls".as_ref(), "-lR".as_ref(), image.as_os_str()]);
    let mount = Mount::new(&image)?;
    let peer = Run::new(["find", ".", "-ls"]).within(mount.folder());
    same_count(&ours, &peer)?;
    let task = "list every file (peer: find on the kernel's mount, its caches warm)";
    let mut comparison = Comparison::new(task, &image, Some(0.15), None);
    comparison.alternate(setup.rounds, &ours, |_| Ok(peer.clone()))?;
    Ok(vec![comparison])
}

/// Taking out a tree of 65,000 files.
pub fn extract(setup: &Setup) -> anyhow::Result<Vec<Comparison>> {
    let image = setup.images.tree()?;
    let ours =
        [setup.xebec.as_os_str(), "extract".as_ref(), image.as_os_str(), "--to".as_ref(), "-".as_ref()];
    let ours = Run::new(ours).piped();
    let peer = |mount: &Mount| Run::new(["tar", "cf", "-", "."]).within(mount.folder()).piped();
    same_names(&ours, &peer(&Mount::new(&image)?))?;

    // A fresh mount for each run: the image's pages are cached for both sides, and nothing else is for either.
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

    /// Ours, the peer's, ours, the peer's; the first of each is not kept. `peer` prepares each of the peer's runs.
    fn alternate(
        &mut self,
        rounds: u32,
        ours: &Run,
        mut peer: impl FnMut(u32) -> anyhow::Result<Run>,
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

/// The newest xfs_repair of this machine: the one that CI installs apart, else Debian's.
pub fn newest_repair() -> PathBuf {
    let judges = std::env::var_os("XEBEC_JUDGES").unwrap_or("/opt/xebec-judges".into());
    let apart = Path::new(&judges).join("bin/xfs_repair");
    if apart.exists() { apart } else { "xfs_repair".into() }
}

/// Both listings must speak of equally many files: `find` has one line for each, ours also headings and totals.
fn same_count(ours: &Run, peer: &Run) -> anyhow::Result<()> {
    let entry = |line: &&[u8]| line.first().is_some_and(|c| b"-dlbcps".contains(c)) && line.contains(&b' ');
    let listed = ours.output()?.split(|byte| *byte == b'\n').filter(entry).count();
    // `find` lists the directory it was given, too.
    let found = peer.output()?.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() - 1;
    if listed != found {
        bail!("xebec lists {listed} files and find {found}: there is nothing to compare");
    }
    Ok(())
}

/// Both archives must hold the same names.
fn same_names(ours: &Run, peer: &Run) -> anyhow::Result<()> {
    let (ours, theirs) = (names(&ours.output()?)?, names(&peer.output()?)?);
    if let Some(name) = ours.symmetric_difference(&theirs).next() {
        let (has, lacks) = if ours.contains(name) { ("xebec's", "tar's") } else { ("tar's", "xebec's") };
        bail!("`{name}` is in {has} archive and not in {lacks}: there is nothing to compare");
    }
    Ok(())
}

/// The names of an archive, as `tar t` prints them, without a leading `./` and a final `/`.
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

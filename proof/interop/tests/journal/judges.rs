//! A volume that `mkfs.xfs` made, and the programs that judge it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The volume, in a folder that vanishes.
pub struct Volume {
    folder: tempfile::TempDir,
    pub image: PathBuf,
    pub log: Option<PathBuf>,
}

/// Runs a program and gives what it said; panics where it fails.
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {said}");
    said
}

fn create(path: &Path, bytes: u64) {
    std::fs::File::create_new(path).unwrap().set_len(bytes).unwrap();
}

impl Volume {
    /// A new one of 600 MiB.
    pub fn make(options: &[&str], own_log_device: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        create(&image, 600 << 20);
        let log = own_log_device.then(|| folder.path().join("log"));
        let mut mkfs = needs::newer("mkfs.xfs");
        // It makes logs below 64 MB only for its own test suite.
        mkfs.envs([("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1")]);
        mkfs.arg("-q").args(options);
        if let Some(log) = &log {
            create(log, 64 << 20);
            mkfs.arg("-l").arg(format!("logdev={},size=60m", log.display()));
        }
        run(mkfs.arg(&image));
        Self { folder, image, log }
    }

    fn with_log<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Some(log) = &self.log {
            command.arg("-l").arg(log);
        }
        command
    }

    /// What both versions of `xfs_logprint` say that the log holds, by transactions. A version that cannot read such a
    /// log says nothing.
    pub fn logprints(&self) -> Vec<String> {
        let print = |mut command: Command| {
            let output = self.with_log(command.arg("-t")).arg(&self.image).output().unwrap();
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            // A record whose header goes around the end of the ring: both versions then compute a negative length of
            // what is left before the end. The kernel does not.
            let lost = said.contains("Invalid block length (0xffffff");
            assert!(output.status.success() || lost, "{command:?}: {said}");
            (!lost).then_some(said)
        };
        [needs::command("xfs_logprint"), needs::newer("xfs_logprint")].into_iter().filter_map(print).collect()
    }

    /// Lets the kernel have it: it recovers what is to be recovered.
    pub fn mount_and_unmount(&self) {
        let target = self.folder.path().join("mnt");
        std::fs::create_dir(&target).unwrap();
        // The loop device of the log is set up and given back here, as mount does it for the image alone.
        let script = r#"
            if [ -n "$3" ]; then
                log=$(losetup -f --show "$3"); trap 'losetup -d "$log"' EXIT
                options=logdev=$log,
            fi
            mount -o "${options:-}loop,nouuid" "$1" "$2"
            umount "$2""#;
        let log = self.log.as_deref().unwrap_or(Path::new(""));
        run(needs::script("-e", script, "judge").arg(&self.image).arg(&target).arg(log));
    }

    /// The label.
    pub fn label(&self) -> String {
        let mut command = needs::command("xfs_db");
        let printed =
            run(self.with_log(command.arg("-r")).args(["-c", "sb 0", "-c", "p fname"]).arg(&self.image));
        printed.split('"').nth(1).unwrap_or(&printed).trim().to_owned()
    }

    /// What `xfs_repair -n` complains of.
    pub fn repair(&self) -> String {
        let mut command = needs::newer("xfs_repair");
        let said = run(self.with_log(command.args(["-n", "-o", "force_geometry"])).arg(&self.image));
        let ordinary =
            ["Phase", "        - ", "No modify", "Cannot get host", "Repair may fail", "the image and"];
        said.lines()
            .filter(|line| !ordinary.iter().any(|start| line.starts_with(start)))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

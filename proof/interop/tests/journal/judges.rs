//! A volume formatted by `mkfs.xfs`, and the programs that judge it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use interop::damage::record::is_chatter;

/// A volume in a temporary folder.
pub struct Volume {
    folder: tempfile::TempDir,
    pub image: PathBuf,
    pub log: Option<PathBuf>,
}

/// Runs a program and returns its output; panics if it fails.
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {text}");
    text
}

fn create(path: &Path, bytes: u64) {
    std::fs::File::create_new(path).unwrap().set_len(bytes).unwrap();
}

impl Volume {
    /// Formats a volume of 600 MiB.
    pub fn make(options: &[&str], external_log: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        create(&image, 600 << 20);
        let log = external_log.then(|| folder.path().join("log"));
        let mut mkfs = needs::newer("mkfs.xfs");
        // mkfs.xfs refuses logs below 64 MB outside of its test suite.
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

    /// Returns the output of both versions of `xfs_logprint -t`, except of one that cannot read such a log.
    pub fn logprints(&self) -> Vec<String> {
        let print = |mut command: Command| {
            let output = self.with_log(command.arg("-t")).arg(&self.image).output().unwrap();
            let text = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            // If a record header wraps around the end of the log, both versions compute a negative length; the kernel
            // does not.
            let lost = text.contains("Invalid block length (0xffffff");
            assert!(output.status.success() || lost, "{command:?}: {text}");
            (!lost).then_some(text)
        };
        [needs::command("xfs_logprint"), needs::newer("xfs_logprint")].into_iter().filter_map(print).collect()
    }

    /// Mounts and unmounts the volume with the kernel, which recovers the log.
    pub fn mount_and_unmount(&self) {
        let target = self.folder.path().join("mnt");
        std::fs::create_dir(&target).unwrap();
        // mount sets up a loop device only for the image, not for the log.
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

    /// Returns the label.
    pub fn label(&self) -> String {
        let mut command = needs::command("xfs_db");
        let printed =
            run(self.with_log(command.arg("-r")).args(["-c", "sb 0", "-c", "p fname"]).arg(&self.image));
        printed.split('"').nth(1).unwrap_or(&printed).trim().to_owned()
    }

    /// Returns the findings of `xfs_repair -n`.
    pub fn repair(&self) -> String {
        let mut command = needs::newer("xfs_repair");
        let text = run(self.with_log(command.args(["-n", "-o", "force_geometry"])).arg(&self.image));
        text.lines().filter(|line| !is_chatter(line)).collect::<Vec<_>>().join("\n")
    }
}

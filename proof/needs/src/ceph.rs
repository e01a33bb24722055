//! A Ceph cluster, which lives as long as the test program.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use crate::programs::{command, tools, with_environment};

/// A cluster of one monitor and one OSD, with a pool `rbd` and the users `client.admin` and `client.reader`.
#[derive(Debug)]
pub struct Ceph {
    configuration: PathBuf,
    /// The cluster ends when this is closed, as at the end of this process.
    _alive: ChildStdin,
}

impl Ceph {
    /// Starts a cluster, or returns the one that a test of this program has started.
    ///
    /// # Errors
    /// What is missing, and the command that installs it.
    ///
    /// # Panics
    /// Panics if the programs are installed and the cluster does not start.
    pub fn shared() -> Result<&'static Self, String> {
        static SHARED: OnceLock<Ceph> = OnceLock::new();
        Self::installed()?;
        Ok(SHARED.get_or_init(Self::start))
    }

    /// Checks that the programs are installed.
    ///
    /// # Errors
    /// What is missing, and the command that installs it.
    pub fn installed() -> Result<(), String> {
        tools(&["ceph-mon", "ceph-osd", "rbd", "ceph", "ceph-authtool", "monmaptool", "python3"])
    }

    /// Starts a cluster of its own for a test, which ends when this is dropped.
    ///
    /// # Panics
    /// Panics if the cluster does not start.
    #[expect(clippy::panic, reason = "a cluster that does not start fails the test")]
    pub fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ceph");
        let mut server = with_environment(&script);
        server.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap_or_else(|error| panic!("{}: {error}", script.display()));
        let (Some(alive), Some(output)) = (server.stdin.take(), server.stdout.take()) else {
            unreachable!("both are pipes")
        };
        let mut line = String::new();
        match BufReader::new(output).read_line(&mut line) {
            Ok(length) if length > 1 => {}
            ended => panic!("{} did not start a cluster: {ended:?}, {:?}", script.display(), server.wait()),
        }
        Self { configuration: line.trim_end().into(), _alive: alive }
    }

    /// The configuration file.
    pub fn configuration(&self) -> &Path {
        &self.configuration
    }

    /// The URL of an image, or a snapshot, in the pool `rbd`.
    pub fn url(&self, image: &str) -> String {
        format!("rbd://rbd/{image}?conf={}", self.configuration.display())
    }

    /// Process ID of the OSD.
    ///
    /// # Panics
    /// Panics if it does not run.
    #[expect(clippy::expect_used, reason = "a cluster without its server fails the test")]
    pub fn osd(&self) -> u32 {
        let file = self.configuration.with_file_name("osd.0.pid");
        let text = std::fs::read_to_string(file).expect("the OSD runs");
        text.trim().parse().expect("a process ID")
    }

    /// Starts a program of Ceph.
    ///
    /// # Panics
    /// Panics if it is not installed.
    pub fn command(&self, name: &str) -> Command {
        let mut command = command(name);
        command.env("CEPH_CONF", &self.configuration).env_remove("CEPH_ARGS");
        command
    }
}

//! The server in the background: a child process running this program, which writes to its standard output when the
//! volume is mounted.

use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};

use crate::output::exit_code;

/// Environment variable of the background process.
const VARIABLE: &str = "XEBEC_MOUNT_IN_BACKGROUND";

/// Message to the parent when the volume is mounted.
const MOUNTED: &[u8] = b"mounted\n";

/// Whether this is the process in the background.
pub fn is_background() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Starts the background process, and waits until it has mounted or failed. It reports errors on standard error.
pub fn start() -> anyhow::Result<u8> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut arguments = std::env::args_os();
    // Fails on older kernels: then inherited descriptors stay open.
    let _ = base::process::close_descriptors_on_exec();
    // With the same name: it selects between `xebec` and the mount helper.
    let name = arguments.next().unwrap_or_else(|| program.clone().into());
    let mut command = Command::new(program);
    let mut child = command
        .arg0(name)
        .args(arguments)
        .env(VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the server")?;
    let mut message = Vec::new();
    if let Some(output) = &mut child.stdout {
        output.read_to_end(&mut message).context("cannot read from the server")?;
    }
    if message == MOUNTED {
        return Ok(exit_code::OK);
    }
    let status = child.wait().context("cannot wait for the server")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .filter(|code| *code != 0)
        .unwrap_or(exit_code::FAILED))
}

/// Notifies the waiting parent that the volume is mounted. In the background, also detaches from the caller's session
/// and files.
pub fn notify_mounted() -> anyhow::Result<()> {
    notify_manager();
    if !is_background() {
        return Ok(());
    }
    // Fails for a group leader, which does not need a new session.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/").context("cannot leave the directory")?;
    rustix::io::write(rustix::stdio::stdout(), MOUNTED).context("cannot notify the parent")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).context("/dev/null")?;
    rustix::stdio::dup2_stdout(&null).context("/dev/null")?;
    rustix::stdio::dup2_stderr(&null).context("/dev/null")?;
    Ok(())
}

/// Notifies systemd as `sd_notify(3)` does, for services of `Type=notify`.
fn notify_manager() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let _ = socket.send_to(b"READY=1\nSTATUS=mounted\n", path);
}

//! A process of its own, once it is mounted: this program once more, which says on its standard output when it is
//! ready.

use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};

use crate::output::exit_code;

/// Tells a process that it is the one in the background.
const MARK: &str = "XEBEC_MOUNT_IN_BACKGROUND";

/// What it says.
const READY: &[u8] = b"ready\n";

/// Whether this is the process in the background.
pub fn is_it() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts it, and waits until it has mounted or failed. What it has to say it says on standard error.
pub fn start() -> anyhow::Result<u8> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let mut arguments = std::env::args_os();
    // A kernel that does not know how leaves them: they do no harm but to who waits for their end.
    let _ = base::process::close_descriptors_on_exec();
    // By the name by which this was called, as arguments mean something else under another.
    let name = arguments.next().unwrap_or_else(|| program.clone().into());
    let mut child = Command::new(program)
        .arg0(name)
        .args(arguments)
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the process that serves the mount")?;
    let mut said = Vec::new();
    if let Some(output) = &mut child.stdout {
        output.read_to_end(&mut said).context("cannot listen to the process that serves the mount")?;
    }
    if said == READY {
        return Ok(exit_code::OK);
    }
    let ended = child.wait().context("cannot wait for the process that serves the mount")?;
    Ok(ended
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .filter(|code| *code != 0)
        .unwrap_or(exit_code::FAILED))
}

/// The mount is there: tells who waits for it. In the background, nothing of the caller's is used from now on.
pub fn ready() -> anyhow::Result<()> {
    notify_manager();
    if !is_it() {
        return Ok(());
    }
    // A leader of its group has no new session to begin, and needs none.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/").context("cannot leave the directory")?;
    rustix::io::write(rustix::stdio::stdout(), READY).context("nobody waits for the mount")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).context("/dev/null")?;
    rustix::stdio::dup2_stdout(&null).context("/dev/null")?;
    rustix::stdio::dup2_stderr(&null).context("/dev/null")?;
    Ok(())
}

/// As `sd_notify(3)`: a service of `Type=notify` has started. Without a manager there is nobody to tell.
fn notify_manager() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let _ = socket.send_to(b"READY=1\nSTATUS=mounted\n", path);
}

//! Mounting by `fusermount3`, a program that may do what an ordinary user may not, and allows what it should. It sends
//! the device over a socket whose number it finds in its environment (`fusermount3(1)`).

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::{SUBTYPE, Wanted};

/// Where the helper looks for the socket's number.
const SOCKET: &str = "_FUSE_COMMFD";

/// See [`mount`](super::mount).
pub fn mount(wanted: &Wanted) -> io::Result<OwnedFd> {
    let family = (AddressFamily::UNIX, SocketType::STREAM);
    let (ours, its) = rustix::net::socketpair(family.0, family.1, SocketFlags::CLOEXEC, None)?;
    // The helper inherits its end.
    rustix::io::fcntl_setfd(&its, FdFlags::empty())?;
    let helper = Command::new("fusermount3")
        .arg("-o")
        .arg(options(wanted))
        .arg("--")
        .arg(&wanted.directory)
        .env(SOCKET, its.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| missing(&error))?;
    drop(its);
    let device = receive(&ours);
    let said = helper.wait_with_output()?;
    match device? {
        Some(device) if said.status.success() => Ok(device),
        _ => {
            let said = String::from_utf8_lossy(&said.stderr);
            Err(io::Error::other(format!("fusermount3 refused: {}", said.trim())))
        }
    }
}

/// Unmounts; `lazily`, even what is in use.
pub fn unmount(directory: &Path, lazily: bool) -> io::Result<()> {
    let said = Command::new("fusermount3")
        .arg(if lazily { "-uz" } else { "-u" })
        .arg("--")
        .arg(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| missing(&error))?;
    if said.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("fusermount3 refused: {}", String::from_utf8_lossy(&said.stderr).trim())))
}

fn missing(error: &io::Error) -> io::Error {
    let help = "an ordinary user mounts by fusermount3: install the package fuse3, or mount as root";
    io::Error::new(error.kind(), format!("fusermount3: {error} ({help})"))
}

fn options(wanted: &Wanted) -> String {
    let given = [
        (true, "default_permissions"),
        (wanted.allow_other, "allow_other"),
        (wanted.read_only, "ro"),
        (wanted.no_suid, "nosuid"),
        (wanted.no_dev, "nodev"),
        (wanted.no_exec, "noexec"),
        (wanted.no_atime, "noatime"),
    ];
    let source = escaped(&wanted.source);
    let mut options = format!("fsname={source},subtype={SUBTYPE}");
    for (_, option) in given.iter().filter(|(given, _)| *given) {
        options.push(',');
        options.push_str(option);
    }
    options
}

/// A comma would end the name.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace(',', "\\,")
}

/// The device that the helper sends; `None` where it ends without.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let sent = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sent) => sent.next(),
        _ => None,
    });
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_option() {
        let wanted = Wanted { source: "a,dev\\b".into(), no_suid: true, ..Wanted::default() };
        assert_eq!(options(&wanted), "fsname=a\\,dev\\\\b,subtype=xebec,default_permissions,nosuid");
    }
}

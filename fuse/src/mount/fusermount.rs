//! Mounting through `fusermount3`, a set-user-ID program. It sends the FUSE device over a socket whose descriptor is in
//! its environment (`fusermount3(1)`).

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::{MountConfig, SUBTYPE};

/// Environment variable with the descriptor of the socket.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// See [`mount`](super::mount).
pub fn mount(config: &MountConfig) -> io::Result<OwnedFd> {
    let (socket, helper_socket) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The helper inherits it.
    rustix::io::fcntl_setfd(&helper_socket, FdFlags::empty())?;
    let helper = Command::new("fusermount3")
        .arg("-o")
        .arg(options(config))
        .arg("--")
        .arg(&config.directory)
        .env(SOCKET_VARIABLE, helper_socket.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| missing(&error))?;
    drop(helper_socket);
    let device = receive(&socket);
    let output = helper.wait_with_output()?;
    match device? {
        Some(device) if output.status.success() => Ok(device),
        _ => Err(failed(&output)),
    }
}

/// Unmounts; with `lazily` even if the mount is in use.
pub fn unmount(directory: &Path, lazily: bool) -> io::Result<()> {
    let output = Command::new("fusermount3")
        .arg(if lazily { "-uz" } else { "-u" })
        .arg("--")
        .arg(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| missing(&error))?;
    if output.status.success() { Ok(()) } else { Err(failed(&output)) }
}

fn failed(output: &Output) -> io::Error {
    io::Error::other(format!("fusermount3 failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn missing(error: &io::Error) -> io::Error {
    let help = "unprivileged users need fusermount3: install the package fuse3, or mount as root";
    io::Error::new(error.kind(), format!("fusermount3: {error} ({help})"))
}

fn options(config: &MountConfig) -> String {
    let flags = [
        (true, "default_permissions"),
        (config.allow_other, "allow_other"),
        (config.read_only, "ro"),
        (config.no_suid, "nosuid"),
        (config.no_dev, "nodev"),
        (config.no_exec, "noexec"),
        (config.no_atime, "noatime"),
    ];
    let source = escape(&config.source);
    let mut options = format!("fsname={source},subtype={SUBTYPE}");
    for (_, option) in flags.iter().filter(|(is_set, _)| *is_set) {
        options.push(',');
        options.push_str(option);
    }
    options
}

/// Escapes commas, which separate options.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace(',', "\\,")
}

/// Receives the FUSE device from the helper; `None` if it exits without sending one.
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
    let device = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_escaped() {
        let config = MountConfig { source: "a,dev\\b".into(), no_suid: true, ..MountConfig::default() };
        assert_eq!(options(&config), "fsname=a\\,dev\\\\b,subtype=xebec,default_permissions,nosuid");
    }
}

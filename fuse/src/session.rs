//! Threads that take requests from the kernel and send replies.
//!
//! # Invariants
//! A thread has memory for one request and one reply, and takes the next request when the last is answered and it is
//! its turn (`crew`). All threads end when the mount does, or when the kernel's side of it is aborted.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use base::errno;
use fuse_abi::linux::{FUSE_MIN_READ_BUFFER, fuse_opcode};
use rustix::io::Errno as Os;

use crate::counts::{Counts, Thread};
use crate::crew::{Crew, Member};
use crate::operations::Operations;
use crate::wire::dispatch::{Answer, answer};
use crate::wire::init::{self, Agreed, MOST};
use crate::wire::reply::{OVERHEAD, Reply};
use crate::wire::request::Request;
use crate::wire::stale::{notice, stale};

/// The kernel's device of one mount, with what was agreed upon.
#[derive(Debug)]
pub struct Session {
    device: OwnedFd,
}

impl Session {
    /// Agrees with the kernel on how to talk. Requests may follow from then on. With `writeback` the kernel keeps what
    /// is written for a while: small writes are faster then, but that there is no space for them is told only to who
    /// syncs or closes the file.
    ///
    /// # Errors
    /// `EPROTO` for a kernel that is too old; what the device reports.
    pub fn begin(device: OwnedFd, writeback: bool) -> io::Result<Self> {
        let session = Self { device };
        let mut bytes = request_memory();
        let mut reply = Reply::new(0);
        loop {
            let Some(length) = session.receive(&mut bytes)? else {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "unmounted before it began"));
            };
            let request = bytes.get(..length).and_then(Request::parse);
            let Some(request) = request.filter(|request| request.opcode() == Some(fuse_opcode::FUSE_INIT))
            else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the kernel's first request is no INIT",
                ));
            };
            reply.clear();
            match init::agree(&request, writeback, &mut reply) {
                Ok(agreed) => {
                    session.send(reply.done(request.unique()))?;
                    if agreed == Agreed::Yes {
                        return Ok(session);
                    }
                }
                Err(error) => {
                    session.send(reply.error(request.unique(), error))?;
                    return Err(io::Error::from_raw_os_error(error.0));
                }
            }
        }
    }

    /// Serves with as many threads as are counted, until the mount ends; with fewer where the system refuses to start
    /// more.
    ///
    /// # Errors
    /// What the device reports beside its end; `EAGAIN` where no thread can be started at all.
    pub fn serve<O: Operations>(&self, operations: &O, counts: &Counts) -> io::Result<()> {
        let crew = &Crew::default();
        std::thread::scope(|scope| {
            let workers = start(counts.threads().iter().enumerate().map(|(number, counts)| {
                let name = format!("xebec-fuse-{number}");
                let work = move || self.work(operations, counts, crew);
                std::thread::Builder::new().name(name).spawn_scoped(scope, work)
            }))?;
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the mount panicked")))
            })
        })
    }

    fn work<O: Operations>(&self, operations: &O, counts: &Thread, crew: &Crew) -> io::Result<()> {
        let mut bytes = request_memory();
        let mut reply = Reply::new(MOST as usize);
        let (mut member, mut answered_at) = (crew.join(), Instant::now());
        while let Some((length, begun)) = self.next(&mut bytes, &mut member, answered_at)? {
            let Some(request) = bytes.get(..length).and_then(Request::parse) else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel sent no request"));
            };
            if request.opcode().is_some_and(takes_long) {
                crew.call();
            }
            reply.clear();
            let unanswered = Unanswered { session: self, unique: request.unique() };
            let answered = answer(operations, &request, &mut reply);
            // From here on it is answered below.
            std::mem::forget(unanswered);
            let failed = answered.is_err();
            match answered {
                Ok(answer @ (Answer::Reply | Answer::Outdating)) => {
                    let more = (answer == Answer::Outdating).then(|| request.node());
                    let mut old = stale(&request).into_iter().chain([more]).flatten();
                    old.try_for_each(|node| self.send(&notice(node)))?;
                    self.send(reply.done(request.unique()))?;
                }
                Ok(Answer::None) => {}
                Ok(Answer::End) => break,
                Err(error) => self.send(reply.error(request.unique(), error))?,
            }
            answered_at = Instant::now();
            counts.add(request.opcode_number(), answered_at - begun, failed);
        }
        member.end();
        Ok(())
    }

    /// The next request, when it is this thread's turn: its length, and when it came. `None` where the mount has ended.
    fn next(
        &self,
        bytes: &mut [u8],
        member: &mut Member<'_>,
        since: Instant,
    ) -> io::Result<Option<(usize, Instant)>> {
        if !member.turn() {
            return Ok(None);
        }
        let received = self.receive(bytes);
        let begun = Instant::now();
        member.took(begun - since, received.as_ref().map_or(0, |length| length.unwrap_or(0)));
        Ok(received?.map(|length| (length, begun)))
    }

    /// Waits for a request; `None` where the mount has ended.
    fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(self.device.as_fd(), &mut *bytes) {
                Ok(length) => return Ok(Some(length)),
                // A request that was interrupted before it was taken; a signal.
                Err(Os::NOENT | Os::INTR | Os::AGAIN) => {}
                // Unmounted; aborted.
                Err(Os::NODEV | Os::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a reply. That nobody waits for it any more is no error.
    fn send(&self, reply: &[u8]) -> io::Result<()> {
        match rustix::io::write(self.device.as_fd(), reply) {
            Ok(_) | Err(Os::NOENT | Os::NODEV | Os::CONNABORTED) => Ok(()),
            // The kernel does not take the reply for one: whoever asked shall not wait forever.
            Err(Os::INVAL) => {
                let unique =
                    reply.get(8..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
                let mut refusal = Reply::new(0);
                let refused = refusal.error(unique, crate::Errno(errno::EIO));
                rustix::io::write(self.device.as_fd(), refused).map(drop).or(Ok(()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The threads that can be started. Those that run already take requests: one that is refused must not end them.
fn start<T>(threads: impl Iterator<Item = io::Result<T>>) -> io::Result<Vec<T>> {
    let (mut started, mut refused) = (Vec::new(), None);
    for thread in threads {
        match thread {
            Ok(thread) => started.push(thread),
            // The next would be refused, too.
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    refused.filter(|_| started.is_empty()).map_or(Ok(started), Err)
}

/// A request that is being worked on: where that panics, whoever asked is told `EIO` and does not wait forever.
struct Unanswered<'s> {
    session: &'s Session,
    unique: u64,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        // A request that wants no answer is none that the kernel finds.
        let _ = self.session.send(Reply::new(0).error(self.unique, crate::Errno(errno::EIO)));
    }
}

/// Whether a request waits for a disk, or may work on a long range.
fn takes_long(opcode: fuse_opcode) -> bool {
    use fuse_opcode as op;
    matches!(
        opcode,
        op::FUSE_FSYNC
            | op::FUSE_FSYNCDIR
            | op::FUSE_SYNCFS
            | op::FUSE_FALLOCATE
            | op::FUSE_COPY_FILE_RANGE
            | op::FUSE_IOCTL
    )
}

/// Memory for the longest request: a write, with its header.
fn request_memory() -> Box<[u8]> {
    vec![0; (FUSE_MIN_READ_BUFFER as usize).max(MOST as usize + OVERHEAD)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> io::Result<u32> {
        Err(Os::AGAIN.into())
    }

    /// A thread that could not be started ended the call: the mount was served by those that ran already, until it
    /// was unmounted, and then it was told to have failed.
    #[test]
    fn a_thread_that_is_refused_ends_no_mount() {
        assert_eq!(start([Ok(1), Ok(2), refused(), Ok(3)].into_iter()).unwrap(), [1, 2]);
        assert_eq!(
            start([refused(), Ok(3)].into_iter()).unwrap_err().raw_os_error(),
            Some(Os::AGAIN.raw_os_error())
        );
        assert_eq!(start(std::iter::empty::<io::Result<u32>>()).unwrap(), []);
    }
}

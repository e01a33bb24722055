//! A FUSE connection and the threads that serve it.
//!
//! # Invariants
//! A worker has memory for one request and one reply. It reads the next request when it has answered the last and the
//! pool lets it (`worker_pool`). All workers end when the volume is unmounted or the connection is aborted.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use base::errno;
use fuse_abi::linux::{FUSE_MIN_READ_BUFFER, fuse_opcode};
use rustix::io::Errno as Os;

use crate::operations::Operations;
use crate::statistics::{RequestStatistics, ThreadStatistics};
use crate::wire::dispatch::{Outcome, dispatch};
use crate::wire::init::{self, MAX_WRITE, Negotiation};
use crate::wire::invalidate::{inval_inode, invalidated_nodes};
use crate::wire::reply::{OVERHEAD, Reply};
use crate::wire::request::Request;
use crate::worker_pool::{Worker, WorkerPool};

/// An open connection to the kernel (`/dev/fuse`) after `FUSE_INIT`.
#[derive(Debug)]
pub struct Session {
    device: OwnedFd,
}

impl Session {
    /// Negotiates the protocol (`FUSE_INIT`); requests may follow from then on. With `writeback` the kernel caches
    /// writes (`writeback_cache`): small writes are faster, but `ENOSPC` is reported only by `fsync` and `close`.
    ///
    /// # Errors
    /// `EPROTO` if the kernel is too old; errors of the device.
    pub fn begin(device: OwnedFd, writeback: bool) -> io::Result<Self> {
        let session = Self { device };
        let mut bytes = request_memory();
        let mut reply = Reply::new(0);
        loop {
            let Some(length) = session.receive(&mut bytes)? else {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    "unmounted before the connection was initialized",
                ));
            };
            let request = bytes.get(..length).and_then(Request::parse);
            let Some(request) = request.filter(|request| request.opcode() == Some(fuse_opcode::FUSE_INIT))
            else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the first request of the kernel is not FUSE_INIT",
                ));
            };
            reply.clear();
            match init::negotiate(&request, writeback, &mut reply) {
                Ok(negotiation) => {
                    session.send(reply.finish(request.unique()))?;
                    if negotiation == Negotiation::Done {
                        return Ok(session);
                    }
                }
                Err(error) => {
                    session.send(reply.error(request.unique(), error))?;
                    return Err(io::Error::from_raw_os_error(error.0.get()));
                }
            }
        }
    }

    /// Serves requests until the mount ends, with one thread for each entry of `statistics`, or with fewer if the
    /// system refuses to start more.
    ///
    /// # Errors
    /// Errors of the device; `EAGAIN` if no thread can be started.
    pub fn serve<O: Operations>(&self, operations: &O, statistics: &RequestStatistics) -> io::Result<()> {
        let pool = &WorkerPool::default();
        std::thread::scope(|scope| {
            let workers = start(statistics.threads().iter().enumerate().map(|(number, statistics)| {
                let name = format!("xebec-fuse-{number}");
                let work = move || self.work(operations, statistics, pool);
                std::thread::Builder::new().name(name).spawn_scoped(scope, work)
            }))?;
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the mount panicked")))
            })
        })
    }

    fn work<O: Operations>(
        &self,
        operations: &O,
        statistics: &ThreadStatistics,
        pool: &WorkerPool,
    ) -> io::Result<()> {
        let mut bytes = request_memory();
        let mut reply = Reply::new(MAX_WRITE as usize);
        let (mut worker, mut answered_at) = (pool.join(), Instant::now());
        while let Some((length, arrival)) = self.next(&mut bytes, &mut worker, answered_at)? {
            let Some(request) = bytes.get(..length).and_then(Request::parse) else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the kernel sent a malformed request",
                ));
            };
            if request.opcode().is_some_and(takes_long) {
                pool.wake_reader();
            }
            reply.clear();
            let unanswered = Unanswered { session: self, unique: request.unique() };
            let outcome = dispatch(operations, &request, &mut reply);
            // The request is answered below.
            std::mem::forget(unanswered);
            let failed = matches!(outcome, Err(_) | Ok(Outcome::ErrorAndInvalidate(_)));
            match outcome {
                Ok(outcome @ (Outcome::Reply | Outcome::ReplyAndInvalidate)) => {
                    let own = (outcome == Outcome::ReplyAndInvalidate).then(|| request.node());
                    let mut stale = invalidated_nodes(&request).into_iter().chain([own]).flatten();
                    stale.try_for_each(|node| self.send(&inval_inode(node)))?;
                    self.send(reply.finish(request.unique()))?;
                }
                Ok(Outcome::ErrorAndInvalidate(error)) => {
                    self.send(&inval_inode(request.node()))?;
                    self.send(reply.error(request.unique(), error))?;
                }
                Ok(Outcome::NoReply) => {}
                Ok(Outcome::Destroy) => break,
                Err(error) => self.send(reply.error(request.unique(), error))?,
            }
            answered_at = Instant::now();
            statistics.add(request.opcode_number(), answered_at - arrival, failed);
        }
        worker.end();
        Ok(())
    }

    /// Reads the next request once the pool lets this worker read: its length and the time of its arrival. `None` if
    /// the mount has ended.
    fn next(
        &self,
        bytes: &mut [u8],
        worker: &mut Worker<'_>,
        answered_at: Instant,
    ) -> io::Result<Option<(usize, Instant)>> {
        if !worker.wait_to_read() {
            return Ok(None);
        }
        let received = self.receive(bytes);
        let arrival = Instant::now();
        worker.has_read(arrival - answered_at, received.as_ref().map_or(0, |length| length.unwrap_or(0)));
        Ok(received?.map(|length| (length, arrival)))
    }

    /// Reads one request; `None` if the mount has ended.
    fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(self.device.as_fd(), &mut *bytes) {
                Ok(length) => return Ok(Some(length)),
                // The request was interrupted before it was read; a signal.
                Err(Os::NOENT | Os::INTR | Os::AGAIN) => {}
                // Unmounted; aborted.
                Err(Os::NODEV | Os::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a reply. It is no error if the request was interrupted or the mount has ended.
    fn send(&self, reply: &[u8]) -> io::Result<()> {
        match rustix::io::write(self.device.as_fd(), reply) {
            Ok(_) | Err(Os::NOENT | Os::NODEV | Os::CONNABORTED) => Ok(()),
            // The kernel rejects the reply: answer with an error, so that the client does not wait forever.
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

/// The threads that could be started. They serve requests already, so a later one that cannot be started must not
/// end them.
fn start<T>(threads: impl Iterator<Item = io::Result<T>>) -> io::Result<Vec<T>> {
    let (mut started, mut refused) = (Vec::new(), None);
    for thread in threads {
        match thread {
            Ok(thread) => started.push(thread),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    refused.filter(|_| started.is_empty()).map_or(Ok(started), Err)
}

/// A request in progress. If its processing panics, it is answered with `EIO`, so that the client does not wait
/// forever.
struct Unanswered<'s> {
    session: &'s Session,
    unique: u64,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        // For a request that expects no reply the kernel reports ENOENT.
        let _ = self.session.send(Reply::new(0).error(self.unique, crate::Errno(errno::EIO)));
    }
}

/// Whether a request may wait for the device or process a long range.
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

/// Buffer for the longest request: a write with its header.
fn request_memory() -> Box<[u8]> {
    vec![0; (FUSE_MIN_READ_BUFFER as usize).max(MAX_WRITE as usize + OVERHEAD)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> io::Result<u32> {
        Err(Os::AGAIN.into())
    }

    /// When one thread could not be started, `serve` returned an error, although the threads already running served
    /// the mount until it was unmounted.
    #[test]
    fn serving_continues_if_a_thread_cannot_be_started() {
        assert_eq!(start([Ok(1), Ok(2), refused(), Ok(3)].into_iter()).unwrap(), [1, 2]);
        assert_eq!(
            start([refused(), Ok(3)].into_iter()).unwrap_err().raw_os_error(),
            Some(Os::AGAIN.raw_os_error())
        );
        assert!(start(std::iter::empty::<io::Result<u32>>()).unwrap().is_empty());
    }
}

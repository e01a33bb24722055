//! A FUSE connection and the threads that serve it.
//!
//! # Invariants
//! - A worker has buffers for one request and one reply. It reads the next request when it has answered the last and
//!   the pool lets it (`worker_pool`).
//! - A request that is malformed, or whose processing panics, is answered with an error, and its worker continues.
//! - No worker ends alone: all end when the volume is unmounted, the connection is aborted, or a read of the device
//!   fails.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use base::errno;
use fuse_abi::linux::{FUSE_MIN_READ_BUFFER, fuse_opcode};
use rustix::io::Errno as Os;

use crate::operations::{NodeId, Operations, Result};
use crate::statistics::{RequestStatistics, ThreadStatistics};
use crate::wire::dispatch::{Outcome, dispatch};
use crate::wire::init::{self, Negotiation};
use crate::wire::invalidate::{inval_inode, invalidated_nodes};
use crate::wire::reply::{OVERHEAD, Reply};
use crate::wire::request::Request;
use crate::worker_pool::{Worker, WorkerPool};

pub use crate::wire::init::{MAX_TRANSFER, SessionOptions};

/// An open connection to the kernel (`/dev/fuse`) after `FUSE_INIT`.
#[derive(Debug)]
pub struct Session {
    device: OwnedFd,
    max_transfer: usize,
}

impl Session {
    /// Negotiates the protocol (`FUSE_INIT`); requests may follow from then on.
    ///
    /// # Errors
    /// `EPROTO` if the kernel is too old; errors of the device.
    pub fn begin(device: OwnedFd, options: SessionOptions) -> io::Result<Self> {
        let session = Self { device, max_transfer: options.max_transfer() as usize };
        let mut bytes = session.request_buffer();
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
            match init::negotiate(&request, options, &mut reply) {
                Ok(negotiation) => {
                    rustix::io::write(&session.device, reply.finish(request.unique()))?;
                    if negotiation == Negotiation::Done {
                        return Ok(session);
                    }
                }
                Err(error) => {
                    rustix::io::write(&session.device, reply.error(request.unique(), error))?;
                    return Err(io::Error::from_raw_os_error(error.0.get()));
                }
            }
        }
    }

    /// Serves requests until the mount ends, with one thread for each entry of `statistics`, or with fewer if the
    /// system refuses to start more.
    ///
    /// # Errors
    /// An error of the device, which ends the session; a panic, after the mount has ended; `EAGAIN` if no thread can be
    /// started.
    pub fn serve(&self, operations: &dyn Operations, statistics: &RequestStatistics) -> io::Result<()> {
        let pool = &WorkerPool::default();
        std::thread::scope(|scope| {
            let workers = start(statistics.threads().iter().enumerate().map(|(number, statistics)| {
                let name = format!("xebec-fuse-{number}");
                let work = move || self.work(operations, statistics, pool);
                std::thread::Builder::new().name(name).spawn_scoped(scope, work)
            }))?;
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(panicked())))
        })
    }

    fn work(
        &self,
        operations: &dyn Operations,
        statistics: &ThreadStatistics,
        pool: &WorkerPool,
    ) -> io::Result<()> {
        let mut bytes = self.request_buffer();
        let mut reply = Reply::new(self.max_transfer);
        let (mut worker, mut answered_at, mut result) = (pool.join(), Instant::now(), Ok(()));
        while let Some((length, arrival)) = self.next(&mut bytes, &mut worker, answered_at)? {
            // Without its header, a request cannot be answered.
            let Some(request) = bytes.get(..length).and_then(Request::parse) else { continue };
            if request.opcode().is_some_and(takes_long) {
                pool.wake_reader();
            }
            reply.clear();
            let is_known = |node| {
                // The kernel may be freeing the inode: that may need a reply to another request.
                pool.wake_reader();
                self.is_known(node)
            };
            let dispatched = AssertUnwindSafe(|| dispatch(operations, &request, &mut reply, &is_known));
            let outcome = catch_unwind(dispatched).unwrap_or_else(|_| {
                result = Err(panicked());
                Err(crate::Errno(errno::EIO))
            });
            if outcome == Ok(Outcome::Destroy) {
                break;
            }
            self.answer(&request, outcome, &mut reply);
            answered_at = Instant::now();
            let failed = matches!(outcome, Err(_) | Ok(Outcome::ErrorAndInvalidate(_)));
            statistics.add(request.opcode_number(), answered_at - arrival, failed);
        }
        result
    }

    /// Buffer for the longest request: a write with its header.
    fn request_buffer(&self) -> Box<[u8]> {
        vec![0; (FUSE_MIN_READ_BUFFER as usize).max(self.max_transfer + OVERHEAD)].into()
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
        worker
            .read_returned(arrival - answered_at, received.as_ref().map_or(0, |length| length.unwrap_or(0)));
        Ok(received?.map(|length| (length, arrival)))
    }

    /// Reads one request; `None` if the mount has ended.
    fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.device, &mut *bytes) {
                Ok(length) => return Ok(Some(length).filter(|length| *length > 0)),
                // The request was interrupted before it was read; a signal.
                Err(Os::NOENT | Os::INTR | Os::AGAIN) => {}
                // Unmounted; aborted.
                Err(Os::NODEV | Os::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the kernel knows an inode. An inode that it is freeing is waited for.
    fn is_known(&self, node: NodeId) -> bool {
        rustix::io::write(&self.device, &inval_inode(node)) != Err(Os::NOENT)
    }

    /// Sends the notifications and the reply that follow a request.
    fn answer(&self, request: &Request<'_>, outcome: Result<Outcome>, reply: &mut Reply) {
        let nodes = match outcome {
            Ok(Outcome::Reply) => invalidated_nodes(request),
            Ok(Outcome::ReplyAndInvalidate | Outcome::ErrorAndInvalidate(_)) => [Some(request.node()), None],
            _ => [None, None],
        };
        for node in nodes.into_iter().flatten() {
            // ENOENT: the kernel does not cache the inode.
            let _ = rustix::io::write(&self.device, &inval_inode(node));
        }
        let unique = request.unique();
        let sent = match outcome {
            Ok(Outcome::Reply | Outcome::ReplyAndInvalidate) => reply.finish(unique),
            Ok(Outcome::ErrorAndInvalidate(error)) | Err(error) => reply.error(unique, error),
            Ok(Outcome::NoReply | Outcome::Destroy) => return,
        };
        match rustix::io::write(&self.device, sent) {
            // The request was interrupted, or expects no reply; the mount has ended.
            Ok(_) | Err(Os::NOENT | Os::NODEV | Os::CONNABORTED) => {}
            // The kernel rejects the reply: answer with an error, so that the client does not wait forever.
            Err(_) => {
                let error = Reply::new(0).error(unique, crate::Errno(errno::EIO)).to_vec();
                let _ = rustix::io::write(&self.device, &error);
            }
        }
    }
}

fn panicked() -> io::Error {
    io::Error::other("a thread of the mount panicked")
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use fuse_abi::linux::{fuse_in_header, fuse_out_header};
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use zerocopy::{FromBytes as _, IntoBytes as _};

    use super::*;
    use crate::operations::{
        Attributes, ENOSYS, Entry, FileHandle, Opened, SetAttributes, StatFs, WriteFlags,
    };

    /// Only `statfs` is implemented; its first call panics.
    #[derive(Default)]
    struct PanicsOnce(AtomicBool);

    impl Operations for PanicsOnce {
        fn statfs(&self) -> Result<StatFs> {
            assert!(self.0.swap(true, SeqCst), "the first call");
            Ok(StatFs { block_size: 4096, blocks: 0, blocks_free: 0, files: 0, files_free: 0 })
        }

        fn lookup(&self, _: NodeId, _: &[u8]) -> Result<Entry> {
            Err(ENOSYS)
        }

        fn getattr(&self, _: NodeId) -> Result<Attributes> {
            Err(ENOSYS)
        }

        fn setattr(&self, _: NodeId, _: &SetAttributes) -> Result<Attributes> {
            Err(ENOSYS)
        }

        fn open(&self, _: NodeId, _: i32) -> Result<Opened> {
            Err(ENOSYS)
        }

        fn read(&self, _: FileHandle, _: u64, _: &mut [u8]) -> Result<usize> {
            Err(ENOSYS)
        }

        fn write(&self, _: FileHandle, _: u64, _: &[u8], _: WriteFlags) -> Result<usize> {
            Err(ENOSYS)
        }

        fn fsync(&self, _: FileHandle) -> Result<()> {
            Err(ENOSYS)
        }
    }

    /// Serves with one worker on a socket in place of `/dev/fuse`: sends requests with these lengths in their headers,
    /// and returns the errors of the replies and the result of the session.
    fn serve_statfs(operations: &PanicsOnce, lengths: &[u32]) -> (Vec<i32>, io::Result<()>) {
        let (kernel, device) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let session = Session { device, max_transfer: MAX_TRANSFER as usize };
        std::thread::scope(|scope| {
            let statistics = RequestStatistics::new(1);
            let server = scope.spawn(move || session.serve(operations, &statistics));
            let ask = |(unique, len): (u64, &u32)| {
                let opcode = fuse_opcode::FUSE_STATFS as u32;
                let header = fuse_in_header { len: *len, opcode, unique, ..fuse_in_header::default() };
                rustix::io::write(&kernel, header.as_bytes()).unwrap();
                let mut reply = [0; 256];
                let length = rustix::io::read(&kernel, &mut reply).unwrap();
                let (head, _) = fuse_out_header::read_from_prefix(&reply[..length]).unwrap();
                assert_eq!(head.unique, unique);
                head.error
            };
            let errors = (1..).zip(lengths).map(ask).collect();
            drop(kernel);
            (errors, server.join().unwrap())
        })
    }

    /// A request that is shorter than its header says ended its worker, and was not answered: the client waited until
    /// the mount ended.
    #[test]
    fn malformed_requests_are_answered() {
        let (errors, result) = serve_statfs(&PanicsOnce(true.into()), &[41, 39, 0, 40]);
        assert_eq!(errors, [-errno::EINVAL.get(), -errno::EINVAL.get(), -errno::EINVAL.get(), 0]);
        result.unwrap();
    }

    /// A panic ended the thread of its worker: after as many panics as threads, nobody answered requests.
    #[test]
    fn a_worker_continues_after_a_panic() {
        let (errors, result) = serve_statfs(&PanicsOnce::default(), &[40, 40]);
        assert_eq!(errors, [-errno::EIO.get(), 0]);
        assert!(result.unwrap_err().to_string().contains("panicked"));
    }

    /// Workers that sleep end with the one whose read failed.
    #[test]
    fn a_failed_read_ends_the_session() {
        let device = std::fs::File::options().write(true).open("/dev/null").unwrap().into();
        let session = Session { device, max_transfer: MAX_TRANSFER as usize };
        let served = session.serve(&PanicsOnce::default(), &RequestStatistics::new(4));
        assert_eq!(served.unwrap_err().raw_os_error(), Some(errno::EBADF.get()));
    }

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

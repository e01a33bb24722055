//! Answers `GET /metrics` over HTTP, and nothing else.
//!
//! # Invariants
//! Clients cannot disturb the mount: a few threads with little memory serve one connection each, every connection is
//! closed after some seconds, and further ones wait in the kernel's queue. All threads stop when the mount ends.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Number of threads, with one connection each.
const THREADS: usize = 2;

/// Maximum size of a request, in bytes.
const REQUEST_MAX: usize = 8 << 10;

/// Maximum duration of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum duration of discarding what the client sends after the reply (lingering close).
const LINGER_TIMEOUT: Duration = Duration::from_millis(300);

/// Delay after an error of `accept(2)`.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(300);

/// Returns the metrics as text.
pub type MetricsText<'s> = dyn Fn() -> String + Sync + 's;

/// Listening socket.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    stopped: PipeReader,
    /// Threads stop when it is dropped.
    stop: Mutex<Option<PipeWriter>>,
}

/// Status and body of a reply.
type Reply = (&'static str, String);

impl Endpoint {
    /// Binds the address. Requests wait until [`serve`](Self::serve).
    pub fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).map_err(|error| {
            anyhow!("cannot listen at {address} for metrics: {error} (try another port after metrics=)")
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stopped, stop) = io::pipe()?;
        Ok(Self { listener, address, stopped, stop: Mutex::new(Some(stop)) })
    }

    /// The address, with the port that was chosen for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts serving requests.
    ///
    /// # Errors
    /// `EAGAIN` if threads cannot be created.
    pub fn serve<'s>(&'s self, scope: &'s Scope<'s, '_>, metrics: &'s MetricsText<'s>) -> io::Result<()> {
        for _ in 0..THREADS {
            let thread = std::thread::Builder::new().name("xebec-metrics".into());
            thread.spawn_scoped(scope, move || {
                while self.wait(&self.listener, PollFlags::IN, None).is_ok() {
                    match self.listener.accept() {
                        // The client may have closed the connection.
                        Ok((connection, _)) => drop(self.handle(connection, metrics)),
                        // Another thread has accepted it.
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        // The process may be out of descriptors: wait before the next attempt.
                        Err(_) => std::thread::sleep(ACCEPT_RETRY_DELAY),
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Stops serving.
    pub fn stop(&self) {
        if let Ok(mut stop) = self.stop.lock() {
            *stop = None;
        }
    }

    fn handle(&self, mut connection: TcpStream, metrics: &MetricsText<'_>) -> io::Result<()> {
        connection.set_nonblocking(true)?;
        let deadline = Instant::now() + CONNECTION_TIMEOUT;
        let request = self.read_request(&mut connection, deadline)?;
        let (status, text) = respond(&request, metrics);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            text.len()
        );
        self.send(&mut connection, head.as_bytes(), deadline)?;
        if !request.starts_with(b"HEAD ") {
            self.send(&mut connection, text.as_bytes(), deadline)?;
        }
        connection.shutdown(Shutdown::Write)?;
        // Remaining data is read, or the kernel would reset the connection and lose the reply.
        let deadline = Instant::now() + LINGER_TIMEOUT;
        let mut discarded = [0; 1024];
        while self.read(&mut connection, &mut discarded, deadline)? > 0 {}
        Ok(())
    }

    /// Reads a request up to its empty line, or the maximum size.
    fn read_request(&self, connection: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while request.len() < REQUEST_MAX && !is_complete(&request) {
            match self.read(connection, &mut buffer, deadline)? {
                0 => break,
                length => request.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            }
        }
        Ok(request)
    }

    fn read(&self, connection: &mut TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            self.wait(connection, PollFlags::IN, Some(deadline))?;
            match connection.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    fn send(&self, connection: &mut TcpStream, mut text: &[u8], deadline: Instant) -> io::Result<()> {
        while !text.is_empty() {
            self.wait(connection, PollFlags::OUT, Some(deadline))?;
            match connection.write(text) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => text = text.get(written?..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// Waits for a descriptor, optionally up to a deadline; fails at the deadline or when the mount ends.
    fn wait(&self, fd: &impl AsFd, events: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
        let mut both =
            [PollFd::new(&self.stopped, PollFlags::IN), PollFd::from_borrowed_fd(fd.as_fd(), events)];
        loop {
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if remaining == Some(Duration::ZERO) {
                return Err(ErrorKind::TimedOut.into());
            }
            let timeout = remaining.and_then(|remaining| Timespec::try_from(remaining).ok());
            match rustix::event::poll(&mut both, timeout.as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let [stopped, _] = &both;
        if stopped.revents().is_empty() { Ok(()) } else { Err(ErrorKind::ConnectionAborted.into()) }
    }
}

/// Whether the empty line after the headers was received.
fn is_complete(request: &[u8]) -> bool {
    request.windows(4).any(|bytes| bytes == b"\r\n\r\n") || request.windows(2).any(|bytes| bytes == b"\n\n")
}

fn respond(request: &[u8], metrics: &MetricsText<'_>) -> Reply {
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let (method, path, protocol) = (words.next(), words.next(), words.next());
    let is_http = protocol.is_some_and(|protocol| protocol.starts_with("HTTP/1.")) && words.next().is_none();
    match (method, path.map(|path| path.split('?').next().unwrap_or(path))) {
        _ if !is_complete(request) && request.len() >= REQUEST_MAX => {
            ("431 Request Header Fields Too Large", "the request is too long\n".into())
        }
        _ if !is_http || !is_complete(request) => ("400 Bad Request", "not an HTTP/1.1 request\n".into()),
        (Some("GET" | "HEAD"), Some("/metrics")) => ("200 OK", metrics()),
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "metrics are at /metrics\n".into()),
        _ => ("405 Method Not Allowed", "only GET is supported\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: &str = "xebec_threads 4\n";

    /// Runs `work` while an endpoint serves, and returns how long stopping took.
    fn with_endpoint(work: impl FnOnce(SocketAddr)) -> Duration {
        let endpoint = Endpoint::new(([127, 0, 0, 1], 0).into()).unwrap();
        let metrics = || NUMBERS.to_owned();
        let mut stopped = Instant::now();
        std::thread::scope(|scope| {
            endpoint.serve(scope, &metrics).unwrap();
            work(endpoint.address());
            stopped = Instant::now();
            endpoint.stop();
        });
        stopped.elapsed()
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(request).unwrap();
        let mut reply = String::new();
        connection.read_to_string(&mut reply).unwrap();
        reply
    }

    #[test]
    fn answers_get_and_head_and_refuses_other_requests() {
        with_endpoint(|address| {
            let reply = ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with(NUMBERS), "{reply}");
            assert!(
                reply.contains("text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 16\r\n"),
                "{reply}"
            );
            let reply = ask(address, b"HEAD /metrics?a=b HTTP/1.0\r\n\r\n");
            assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("close\r\n\r\n"), "{reply}");
            assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
            assert!(ask(address, b"POST /metrics HTTP/1.1\r\n\r\nx").starts_with("HTTP/1.1 405"));
            for bad in
                [&b"\r\n\r\n"[..], b"GET\r\n\r\n", b"\xff\xfe\0 / HTTP/1.1 more\r\n\r\n", b"GET /metrics\n\n"]
            {
                assert!(ask(address, bad).starts_with("HTTP/1.1 400"), "{bad:?}");
            }
        });
    }

    #[test]
    fn refuses_a_request_that_is_too_long() {
        with_endpoint(|address| {
            let long =
                [b"GET /metrics HTTP/1.1\r\nCookie: ".as_slice(), &vec![b'x'; 3 * REQUEST_MAX]].concat();
            assert!(ask(address, &long).starts_with("HTTP/1.1 431"));
        });
    }

    /// Silent clients delay others by some seconds at most, and do not delay the end.
    #[test]
    fn silent_clients_time_out() {
        let ended = with_endpoint(|address| {
            let silent: Vec<_> = (0..THREADS).map(|_| TcpStream::connect(address).unwrap()).collect();
            let started = Instant::now();
            assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with(NUMBERS));
            assert!(started.elapsed() >= CONNECTION_TIMEOUT / 2, "it did not wait for the silent clients");
            drop(silent);
            let _again: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
            std::thread::sleep(Duration::from_millis(100));
        });
        assert!(ended < CONNECTION_TIMEOUT / 2, "{ended:?}");
    }
}

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
const LONGEST: usize = 8 << 10;

/// Maximum duration of a connection, and of discarding data after the reply.
const PATIENCE: Duration = Duration::from_secs(5);
const PARTING: Duration = Duration::from_millis(300);

/// Writes the metrics as text.
pub type Numbers<'s> = dyn Fn() -> String + Sync + 's;

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
type Answer = (&'static str, String);

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
    pub fn serve<'s>(&'s self, scope: &'s Scope<'s, '_>, numbers: &'s Numbers<'s>) -> io::Result<()> {
        for _ in 0..THREADS {
            let thread = std::thread::Builder::new().name("xebec-metrics".into());
            thread.spawn_scoped(scope, move || {
                while self.wait(&self.listener, PollFlags::IN, None).is_ok() {
                    match self.listener.accept() {
                        // The client may have closed the connection.
                        Ok((connection, _)) => drop(self.talk(connection, numbers)),
                        // Another thread has accepted it.
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        // The process may be out of descriptors: wait before the next attempt.
                        Err(_) => std::thread::sleep(PARTING),
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

    fn talk(&self, mut connection: TcpStream, numbers: &Numbers<'_>) -> io::Result<()> {
        connection.set_nonblocking(true)?;
        let until = Instant::now() + PATIENCE;
        let request = self.hear(&mut connection, until)?;
        let (status, text) = answer(&request, numbers);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            text.len()
        );
        self.send(&mut connection, head.as_bytes(), until)?;
        if !request.starts_with(b"HEAD ") {
            self.send(&mut connection, text.as_bytes(), until)?;
        }
        connection.shutdown(Shutdown::Write)?;
        // Remaining data is read, or the kernel would reset the connection and lose the reply.
        let until = Instant::now() + PARTING;
        let mut unwanted = [0; 1024];
        while self.read(&mut connection, &mut unwanted, until)? > 0 {}
        Ok(())
    }

    /// Reads a request up to its empty line, or the maximum size.
    fn hear(&self, connection: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
        let mut request = Vec::new();
        let mut piece = [0; 1024];
        while request.len() < LONGEST && !is_whole(&request) {
            match self.read(connection, &mut piece, until)? {
                0 => break,
                length => request.extend_from_slice(piece.get(..length).unwrap_or_default()),
            }
        }
        Ok(request)
    }

    fn read(&self, connection: &mut TcpStream, piece: &mut [u8], until: Instant) -> io::Result<usize> {
        loop {
            self.wait(connection, PollFlags::IN, Some(until))?;
            match connection.read(piece) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    fn send(&self, connection: &mut TcpStream, mut text: &[u8], until: Instant) -> io::Result<()> {
        while !text.is_empty() {
            self.wait(connection, PollFlags::OUT, Some(until))?;
            match connection.write(text) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => text = text.get(written?..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// Waits for a descriptor, optionally up to a deadline; fails at the deadline or when the mount ends.
    fn wait(&self, what: &impl AsFd, how: PollFlags, until: Option<Instant>) -> io::Result<()> {
        let mut both =
            [PollFd::new(&self.stopped, PollFlags::IN), PollFd::from_borrowed_fd(what.as_fd(), how)];
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(ErrorKind::TimedOut.into());
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match rustix::event::poll(&mut both, left.as_ref()) {
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
fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|bytes| bytes == b"\r\n\r\n") || request.windows(2).any(|bytes| bytes == b"\n\n")
}

fn answer(request: &[u8], numbers: &Numbers<'_>) -> Answer {
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let (method, path, protocol) = (words.next(), words.next(), words.next());
    let is_http = protocol.is_some_and(|protocol| protocol.starts_with("HTTP/1.")) && words.next().is_none();
    match (method, path.map(|path| path.split('?').next().unwrap_or(path))) {
        _ if !is_whole(request) && request.len() >= LONGEST => {
            ("431 Request Header Fields Too Large", "the request is too long\n".into())
        }
        _ if !is_http || !is_whole(request) => ("400 Bad Request", "not an HTTP/1.1 request\n".into()),
        (Some("GET" | "HEAD"), Some("/metrics")) => ("200 OK", numbers()),
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "metrics are at /metrics\n".into()),
        _ => ("405 Method Not Allowed", "only GET is supported\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: &str = "xebec_threads 4\n";

    /// An endpoint that answers while `work` runs; how long it takes to end.
    fn with_endpoint(work: impl FnOnce(SocketAddr)) -> Duration {
        let endpoint = Endpoint::new(([127, 0, 0, 1], 0).into()).unwrap();
        let numbers = || NUMBERS.to_owned();
        let mut stopped = Instant::now();
        std::thread::scope(|scope| {
            endpoint.serve(scope, &numbers).unwrap();
            work(endpoint.address());
            stopped = Instant::now();
            endpoint.stop();
        });
        stopped.elapsed()
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(request).unwrap();
        let mut said = String::new();
        connection.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn it_answers_what_it_is_asked() {
        with_endpoint(|address| {
            let said = ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with(NUMBERS), "{said}");
            assert!(
                said.contains("text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 16\r\n"),
                "{said}"
            );
            let said = ask(address, b"HEAD /metrics?a=b HTTP/1.0\r\n\r\n");
            assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("close\r\n\r\n"), "{said}");
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
    fn a_request_that_is_too_long_is_told_so() {
        with_endpoint(|address| {
            let long = [b"GET /metrics HTTP/1.1\r\nCookie: ".as_slice(), &vec![b'x'; 3 * LONGEST]].concat();
            assert!(ask(address, &long).starts_with("HTTP/1.1 431"));
        });
    }

    /// Clients that say nothing hold up who comes after them for some seconds at most, and the end not at all.
    #[test]
    fn silent_clients_are_given_up() {
        let ended = with_endpoint(|address| {
            let silent: Vec<_> = (0..THREADS).map(|_| TcpStream::connect(address).unwrap()).collect();
            let started = Instant::now();
            assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with(NUMBERS));
            assert!(started.elapsed() >= PATIENCE / 2, "they were not waited for");
            drop(silent);
            let _again: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
            std::thread::sleep(Duration::from_millis(100));
        });
        assert!(ended < PATIENCE / 2, "{ended:?}");
    }
}

//! Replies of servers, good and bad: each test has a server of its own that answers as told.

mod lists;
mod server;
mod statuses;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::server::{Server, reply};
use super::{NetworkStore, open_in};
use crate::{ErrorKind, Location, Store, StoreError, StoreOptions};

const SECRET: &str = "hunter2";

fn kind<T: std::fmt::Debug>(result: Result<T, StoreError>) -> ErrorKind {
    result.unwrap_err().kind
}

fn options() -> StoreOptions {
    StoreOptions { request_timeout: Duration::from_secs(20) }
}

/// A store of S3 at an endpoint.
fn s3(endpoint: &str) -> NetworkStore {
    let environment = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "me"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "us-east-1"),
        ("AWS_CONFIG_FILE", "/nonexistent"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let location = Location::parse("s3://bucket/vol").unwrap();
    open_in(&location, &options(), &BTreeMap::from(environment)).unwrap()
}

/// The same objects on a web server.
fn web(server: &Server) -> NetworkStore {
    let location = Location::parse(&format!("http://{}/vol", server.address)).unwrap();
    open_in(&location, &options(), &BTreeMap::new()).unwrap()
}

const META: &str = "ETag: \"e\"\r\nLast-Modified: Mon, 02 Jan 2006 15:04:05 GMT\r\n";

#[test]
fn a_reply_is_read_up_to_the_limit_whatever_length_it_states() {
    let endless = |head: &'static str| {
        Server::start(move |_, stream| {
            write!(stream, "HTTP/1.1 {head}\r\n{META}\r\n").unwrap();
            // Until the client hangs up.
            while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
        })
    };
    let cases = [
        "206 Partial Content\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 100000000000",
        "206 Partial Content\r\nContent-Range: bytes 0-9/10",
        "200 OK\r\nContent-Length: 100000000000",
        "200 OK",
    ];
    for head in cases {
        let store = s3(&endless(head).url());
        let read = match head.starts_with("206") {
            true => store.get_range("x", 0, 10).map(drop),
            false => store.get("x", 10).map(drop),
        };
        let error = read.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("larger than 10 bytes"), "{error}");
    }
    let store = s3(&endless("404 Not Found").url());
    assert_eq!(kind(store.get("x", 10)), ErrorKind::Absent);
    assert_eq!(kind(s3(&endless("200 OK").url()).list("", None)), ErrorKind::Invalid);
}

#[test]
fn a_reply_in_chunks_is_read() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
    let server = Server::start(move |_, stream| {
        write!(stream, "{chunks}{META}\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").unwrap();
    });
    let store = s3(&server.url());
    assert_eq!(&store.get("x", 5).unwrap().bytes[..], b"abcde");
    assert_eq!(kind(store.get("x", 4)), ErrorKind::Invalid);
}

#[test]
fn a_range_that_overflows_is_an_error() {
    for range in [
        "bytes 0-18446744073709551615/10",
        "bytes 0-18446744073709551615/18446744073709551615",
        "bytes 5-4/10",
        "bytes 0-9/5",
        "bytes */10",
        "lines 0-9/10",
    ] {
        let head = format!("HTTP/1.1 206 Partial Content\r\nContent-Range: {range}\r\nContent-Length: 0\r\n");
        let server = Server::start(move |_, stream| write!(stream, "{head}{META}\r\n").unwrap());
        let error = s3(&server.url()).get_range("x", 0, 10).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{range}");
        // It does not reach the arithmetic of the transport, which panics.
        assert!(!error.to_string().contains("bug"), "{range}: {error}");
    }
}

#[test]
fn a_range_is_what_was_asked_for() {
    let answer = |head: &'static str, body: &'static str| {
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n{META}\r\n{body}", body.len());
        Server::start(move |_, stream| stream.write_all(head.as_bytes()).unwrap())
    };
    let read = |server: Server| s3(&server.url()).get_range("x", 2, 3);
    assert_eq!(&read(answer("206 x\r\nContent-Range: bytes 2-4/9", "abc")).unwrap()[..], b"abc");
    // Fewer than announced, or another part.
    assert_eq!(kind(read(answer("206 x\r\nContent-Range: bytes 2-4/9", "ab"))), ErrorKind::Invalid);
    assert_eq!(kind(read(answer("206 x\r\nContent-Range: bytes 3-5/9", "abc"))), ErrorKind::Invalid);
    assert!(read(answer("416 x", "")).unwrap().is_empty());
    // A server without ranges, and one that has none for an empty object.
    assert!(read(answer("200 OK", "abcdefghi")).is_err());
    assert!(read(answer("200 OK", "")).unwrap().is_empty());
    let server = answer("200 OK", "abcdefghi");
    assert_eq!(kind(web(&server).get_range("x", 2, 3)), ErrorKind::Unsupported);
}

#[test]
fn a_web_server_is_not_asked_to_write() {
    let server = Server::start(|_, stream| reply(stream, "200 OK", ""));
    let store = web(&server);
    let version = crate::Version { etag: Some("x".into()), generation: None };
    assert!(store.is_read_only());
    assert_eq!(kind(store.delete("x")), ErrorKind::Unsupported);
    assert_eq!(kind(store.put_if_absent("x", Bytes::new())), ErrorKind::Unsupported);
    assert_eq!(kind(store.put_if_match("x", Bytes::new(), &version)), ErrorKind::Unsupported);
    assert!(server.requests().is_empty());
}

/// As a program that is async itself does.
#[test]
fn a_caller_may_be_a_thread_of_another_runtime() {
    let server = Server::start(|_, stream| reply(stream, "404 Not Found", ""));
    let store = s3(&server.url());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    assert_eq!(runtime.block_on(async { kind(store.get("x", 1)) }), ErrorKind::Absent);
}

#[test]
fn a_server_that_does_not_answer_in_time_is_unclear() {
    let server = Server::start(|_, stream| {
        // Until the client hangs up.
        let _ = std::io::copy(stream, &mut std::io::sink());
    });
    let mut options = options();
    options.request_timeout = Duration::from_millis(300);
    let location = Location::parse(&format!("http://{}/vol", server.address)).unwrap();
    let store = open_in(&location, &options, &BTreeMap::new()).unwrap();
    let start = Instant::now();
    assert_eq!(kind(store.get("x", 1)), ErrorKind::Unclear);
    assert!(start.elapsed() < Duration::from_secs(10));
}

//! What statuses mean.

use std::sync::Arc;

use bytes::Bytes;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::{ClientOptions, RetryConfig};

use super::server::{Server, reply};
use super::{SECRET, kind, s3};
use crate::network::guard::Guard;
use crate::network::{NetworkStore, runtime};
use crate::{ErrorKind, Location, Store, Version};

fn answering(status: &'static str, body: &'static str) -> Server {
    Server::start(move |_, stream| reply(stream, status, body))
}

fn azure(server: &Server) -> NetworkStore {
    let client = MicrosoftAzureBuilder::new()
        .with_account("account")
        .with_access_key("a2V5")
        .with_container_name("bucket")
        .with_endpoint(server.url())
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_http_connector(Guard);
    let location = Location::parse("az://bucket/vol").unwrap();
    NetworkStore::new(&location, Arc::new(client.build().unwrap()), true, runtime().unwrap())
}

fn version() -> Version {
    Version { etag: Some("\"x\"".into()), generation: None }
}

/// The kinds of a read, a list, a delete, a new object and a replacement.
fn kinds(store: &NetworkStore) -> [Option<ErrorKind>; 5] {
    let kind = |error: crate::StoreError| error.kind;
    [
        store.get("x", 9).err().map(kind),
        store.list("", None).err().map(kind),
        store.delete("x").err().map(kind),
        store.put_if_absent("x", Bytes::new()).err().map(kind),
        store.put_if_match("x", Bytes::new(), &version()).err().map(kind),
    ]
}

#[test]
fn a_status_says_whether_to_repeat() {
    use ErrorKind::{Absent, Denied, Invalid, Precondition, Unclear, Unsupported};
    const EXPIRED: &str = "<Error><Code>ExpiredToken</Code></Error>";
    const SLOW: &str = "<Error><Code>RequestTimeout</Code></Error>";
    let all = |kind: ErrorKind| [Some(kind); 5];
    for (status, body, expected) in [
        ("301 x", "", all(Invalid)),
        ("302 x\r\nLocation: /again", "", all(Invalid)),
        ("400 x", "", all(Invalid)),
        ("400 x", EXPIRED, all(Denied)),
        ("400 x", SLOW, all(Unclear)),
        ("401 x", "", all(Denied)),
        ("403 x", "", all(Denied)),
        ("404 x", "", [Some(Absent), Some(Absent), None, Some(Invalid), Some(Precondition)]),
        ("405 x", "", all(Unsupported)),
        ("408 x", "", all(Unclear)),
        ("409 x", "<Error><Code>ConditionalRequestConflict</Code></Error>", all(Unclear)),
        ("412 x", "", all(Precondition)),
        ("416 x", "", all(Invalid)),
        ("429 x", "", all(Unclear)),
        ("500 x", "", all(Unclear)),
        ("501 x", "", all(Unsupported)),
        ("503 x", "", all(Unclear)),
        // Neither a list nor a version: a write was carried out all the same.
        ("200 OK", "", [None, Some(Invalid), None, Some(Unclear), Some(Unclear)]),
    ] {
        let server = answering(status, body);
        assert_eq!(kinds(&s3(&server.url())), expected, "{status} {body}");
    }
}

#[test]
fn a_conflict_is_an_object_that_exists_on_azure_only() {
    let server = answering("409 x", "<Error><Code>BlobAlreadyExists</Code></Error>");
    assert_eq!(kind(azure(&server).put_if_absent("x", Bytes::new())), ErrorKind::Precondition);
    assert_eq!(kind(azure(&server).put_if_match("x", Bytes::new(), &version())), ErrorKind::Unclear);
    assert_eq!(kind(s3(&server.url()).put_if_absent("x", Bytes::new())), ErrorKind::Unclear);
}

#[test]
fn a_lost_connection_is_unclear_and_a_server_without_tls_is_not() {
    let server = Server::start(|_, _| ());
    assert_eq!(kinds(&s3(&server.url())), [Some(ErrorKind::Unclear); 5]);
    let short = Server::start(|_, stream| {
        use std::io::Write;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").unwrap();
    });
    assert_eq!(kind(s3(&short.url()).get("x", 9)), ErrorKind::Unclear);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = s3(&format!("http://{closed}")).get("x", 9).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unclear);
    assert!(error.to_string().contains("onnection refused"), "{error}");
    // It answers to TLS in plain text.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            reply(&mut stream.unwrap(), "400 x", "");
        }
    });
    let error = s3(&format!("https://{address}")).get("x", 9).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
}

#[test]
fn a_message_has_no_secret_and_can_be_printed() {
    let body = "<Code>Bad</Code>\u{1b}[2J\n\0<Message>no\u{202e}</Message>";
    let long = format!("{body}{}", "x".repeat(1 << 20));
    let server = Server::start(move |_, stream| reply(stream, "403 x", &long));
    let message = s3(&server.url()).get("x", 9).unwrap_err().to_string();
    assert!(message.contains("<Code>Bad</Code>") && message.len() < 1200, "{message}");
    assert!(!message.contains(char::is_control) && !message.contains('\u{202e}'), "{message:?}");
    assert!(!message.contains(SECRET), "{message}");
}

//! Lists of servers that keep the rules, and of those that do not.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::server::{Server, reply};
use super::{kind, s3, web};
use crate::{ErrorKind, LIST_PAGE, Store};

/// A page of S3.
fn page<'a>(keys: impl IntoIterator<Item = &'a str>, next: Option<&str>) -> String {
    let contents = keys.into_iter().map(|key| {
        let time = "2006-01-02T15:04:05.000Z";
        format!("<Contents><Key>{key}</Key><Size>1</Size><LastModified>{time}</LastModified></Contents>")
    });
    let next = next.map_or_else(String::new, |token| {
        format!("<NextContinuationToken>{token}</NextContinuationToken><IsTruncated>true</IsTruncated>")
    });
    format!("<ListBucketResult>{}{next}</ListBucketResult>", contents.collect::<String>())
}

fn names(store: &dyn Store, prefix: &str, after: Option<&str>) -> Vec<String> {
    let page = store.list(prefix, after).unwrap();
    assert!(!page.more);
    page.objects.into_iter().map(|listed| listed.key).collect()
}

#[test]
fn only_names_of_the_store_behind_the_last_one_are_listed() {
    // A server without start-after, and with names that no one asked for.
    let keys = ["other/x", "vol/a", "vol/b", "vol/b c", "vol/c", "vol/c/.lock", "volx/d", "x"];
    let server = Server::start(move |_, stream| reply(stream, "200 OK", &page(keys, None)));
    let store = s3(&server.url());
    assert_eq!(names(&store, "", None), ["a", "b", "c"]);
    assert_eq!(names(&store, "", Some("a")), ["b", "c"]);
    assert!(names(&store, "c/", None).is_empty());
}

#[test]
fn a_full_page_ends_the_reading_of_a_list() {
    let keys: Vec<_> = (0..LIST_PAGE).map(|n| format!("vol/{n:05}")).collect();
    let more: Vec<_> = (LIST_PAGE..LIST_PAGE + 9).map(|n| format!("vol/{n:05}")).collect();
    let server = Server::start(move |head, stream| {
        let page = match head.contains("continuation-token=") {
            true => page(more.iter().map(String::as_str), Some("third")),
            false => page(keys.iter().map(String::as_str), Some("second")),
        };
        reply(stream, "200 OK", &page);
    });
    let found = s3(&server.url()).list("", None).unwrap();
    assert_eq!((found.objects.len(), found.more), (LIST_PAGE, true));
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn pages_without_end_are_an_error() {
    // The same page again and again.
    let server = Server::start(|_, stream| reply(stream, "200 OK", &page(["vol/a", "vol/b"], Some("again"))));
    assert_eq!(kind(s3(&server.url()).list("", None)), ErrorKind::Invalid);
    assert_eq!(server.requests().len(), 2);
    let server = Server::start(|_, stream| reply(stream, "200 OK", &page([], Some("again"))));
    assert_eq!(kind(s3(&server.url()).list("", None)), ErrorKind::Invalid);
    // Names before the prefix, so that the page never fills.
    let next = AtomicU32::new(0);
    let server = Server::start(move |_, stream| {
        let name = format!("other/{:09}", next.fetch_add(1, Relaxed));
        reply(stream, "200 OK", &page([name.as_str()], Some("again")));
    });
    assert_eq!(kind(s3(&server.url()).list("", None)), ErrorKind::Invalid);
}

#[test]
fn names_out_of_order_are_an_error() {
    let server = Server::start(|_, stream| reply(stream, "200 OK", &page(["vol/b", "vol/a"], None)));
    assert_eq!(kind(s3(&server.url()).list("", None)), ErrorKind::Invalid);
}

#[test]
fn a_list_of_a_web_server_is_sorted_and_cut() {
    // WebDAV has no order.
    let keys: Vec<_> = (0..2 * LIST_PAGE + 5).rev().map(|n| format!("{n:05}")).collect();
    let body: String = keys
        .iter()
        .map(|key| {
            format!(
                "<D:response><D:href>/vol/{key}</D:href><D:propstat><D:prop>\
                 <D:getlastmodified>Mon, 02 Jan 2006 15:04:05 GMT</D:getlastmodified>\
                 <D:getcontentlength>1</D:getcontentlength><D:resourcetype/></D:prop>\
                 <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            )
        })
        .collect();
    let body = format!("<D:multistatus xmlns:D=\"DAV:\">{body}</D:multistatus>");
    let server = Server::start(move |_, stream| reply(stream, "207 Multi-Status", &body));
    let store = web(&server);
    let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = store.list("", after.as_deref()).unwrap();
        found.extend(page.objects.into_iter().map(|listed| listed.key));
        after = found.last().cloned();
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert!(found.is_sorted());
    assert_eq!((found.len(), pages), (keys.len(), 3));
}

//! Compares `setfacl` and `getfacl` with those of Linux.

use crate::{Twins, expect_same};

/// Creates the files of each case.
const MAKE: &str =
    "mkdir d d/e; touch f d/g d/e/h; chmod 640 f; chmod 751 d/e; chmod 4755 d/g; ln -s ../f d/l; ln -s f l";

const CASES: &[&[&str]] = &[
    &["setfacl -m u:7:rwx @f"],
    &["setfacl -m u:7:rwx @f", "setfacl -x u:7 @f"],
    &["setfacl -m u:7:rwx,g:9:r @f", "setfacl -m m::r @f", "setfacl -m o::r @f"],
    &["setfacl -m u:7:rwx,m::r @f", "setfacl -b @f"],
    &["setfacl -m u:7:rwx,g::rwx,m::r @f", "setfacl -b @f"],
    &["setfacl -n -m u:7:rwx @f"],
    &["setfacl --mask -m u:7:rwx,m::- @f"],
    &["setfacl -m d:u:7:rx @d", "setfacl -x d:u:7 @d"],
    &["setfacl -m d:u:7:rx @d", "setfacl -k @d"],
    &["setfacl -d -m u:7:rX,g:8:w,o::- @d", "touch @d/new", "mkdir @d/below"],
    &["setfacl -m u:8:rX @f @d @d/g"],
    &["setfacl --set u::rw,g::r,o::- @f"],
    &["setfacl --set u::rw,g::r,o::-,u:3:7 @f"],
    &["setfacl --set u:3:7 @f"],
    &["setfacl -m d:u:7:rwx @f"],
    &["setfacl -x u:99 @f", "setfacl -x m @f", "setfacl -x u: @f"],
    &["setfacl -m u:7:rwx @f", "setfacl -x u:99 @f", "setfacl -x m @f", "chmod 600 @f"],
    &["setfacl -m u:7:rwx,u:7:r @f"],
    &["setfacl -m u:7 @f", "setfacl -m u:7:z @f", "setfacl -m q:7:r @f", "setfacl -m u:no-such:r @f"],
    &["setfacl -x u:7:r @f"],
    &["setfacl -m u:7:rwx @f", "setfacl -m g::rwx @f", "setfacl -m m::rx,g::- @f", "chmod 6755 @f"],
    &["setfacl -m u:7:rwx,g:4:w @d", "chmod g-w @d", "chmod 3700 @d", "chmod u+x @d"],
    &["setfacl -m 7:rx,u:8:5,group:9:r-x,other:r,mask:rwx @f", "setfacl -x u:7,g:9 @f"],
    &["setfacl -m u:5:r @f @d", "setfacl -m u:12:r @l"],
    &["setfacl -R -m u:20:rwX @d", "setfacl -R -b @d"],
    &["setfacl -R -m u:20:rwX @d"],
    &["setfacl -R -d -m u:20:rwX @d"],
    &["setfacl -m d:u:1:r @d", "setfacl -b -m u:1:r @d"],
    &["setfacl -m d:u:2:r @d", "setfacl -k -m d:u:1:r @d"],
    &["setfacl -m u:6:rwx @d", "setfacl -d -m u:7:r @d", "setfacl --set d:u:3:rwx @d"],
    &["setfacl --set u::rwx,g::rx,o::-,d:u:3:rwx @d"],
    &["setfacl -m u:7:r @f", "chown 12:13 @f", "chmod 777 @f"],
    &[
        "setfacl -m d:u:7:rwx,d:g::-,d:o::x @d",
        "mkdir @d/x",
        "mkdir @d/x/y",
        "touch @d/x/y/z",
        "chmod 0 @d/x/y",
    ],
    &["chmod 712 @f", "setfacl -m u::r,g::w,o::x @f"],
];

/// Returns a command with an ACL of many users, which does not fit a leaf block with its name.
fn many(from: usize, to: usize) -> String {
    let users: Vec<String> = (from..to).map(|n| format!("u:{n}:r-x")).collect();
    format!("setfacl -m {} @f", users.join(","))
}

#[test]
fn acls_match_those_of_linux() {
    let (first, more) = (many(1, 300), many(1000, 1200));
    let long = [first.as_str(), "chmod 707 @f", more.as_str(), "setfacl -x u:17 @f"];
    let longer = [first.as_str(), "setfacl -b @f"];
    let cases: Vec<&[&str]> = CASES.iter().copied().chain([&long[..], &longer]).collect();
    let Some(twins) = needs::met(Twins::run(MAKE, &cases, &["setfacl", "getfacl"])) else { return };
    twins.judge();
    for options in ["-RnP", "-RnPE", "-RnPes", "-RnPac", "-RnPd"] {
        let (linux, xebec) = twins.show(&format!("getfacl {options} ."));
        expect_same(&linux, &xebec);
        // Linux prints paths relative to `.`, and does not follow symlinks either.
        let ours = twins.ours("getfacl", &[&options.replace('P', ""), "/"]);
        expect_same(&linux, &ours);
    }
}

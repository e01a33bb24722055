//! Compares everyday commands that change a tree with those of GNU.
//!
//! Each line runs in a session of `xebec sh` on one volume, and with the GNU programs on a kernel mount of another.
//! Both must succeed or fail alike, and both trees must be equal afterwards.

use crate::{Twins, script};

/// Creates the files of each case. All times are long ago.
const MAKE: &str = r#"
umask 022
mkdir -p d/e/deep empty "two words" .hidden
echo file > f; echo other > d/g; echo deep > d/e/deep/h; : > nothing; printf 'no newline' > d/part
head -c 70000 /dev/zero | tr '\0' x > d/large; echo w > "two words/w"; echo h > .hidden/h
ln f hard; ln -s f l; ln -s d dl; ln -s nowhere dangling; ln -s ../f d/up; mkfifo p
chmod 640 f; chmod 751 d/e; chmod 4755 d/g; chmod 1777 empty; chmod 444 nothing; chown 7:8 d/g d/e
setfattr -n user.x -v y f; setfattr -n user.dir -v z d
find . -depth -exec touch -h -d @1000000000.5 {} +
"#;

/// Shell functions for commands of `xebec sh` with other names in GNU.
const FUNCTIONS: &str = r#"
umask 022
write() {
    case $1 in
        --text) printf '%s\n' "$2" > "$3" ;;
        --append) printf '%s\n' "$3" >> "$4" ;;
        --at) printf '%s\n' "$4" | dd of="$5" bs=1 seek="$2" conv=notrunc status=none ;;
    esac
}
cp() { shift; command cp "$@"; }
reflink() { command cp --reflink=always "$1" "$2"; }
touch() { command touch "$@"; }
tar-in() { tar -xpf "$1" -C "$2" --numeric-owner; }
"#;

/// Lines of each case; `@` precedes each path.
const CASES: &[&[&str]] = &[
    // mkdir, rmdir
    &[
        "mkdir @new",
        "mkdir @new",
        "mkdir -p @new",
        "mkdir @a/b",
        "mkdir -p @a/b/c",
        "mkdir @f",
        "mkdir -p @f",
    ],
    &[
        "mkdir -m 700 @x",
        "mkdir -m u=rwx,go=s @y",
        "mkdir -p -m 711 @z/zz",
        "mkdir @x/",
        "mkdir -p @x/y/",
        "mkdir @dl",
    ],
    &["mkdir -p @l/x", "mkdir -p @dl/x", "mkdir @dangling", "mkdir -p @dangling"],
    &["rmdir @empty", "rmdir @d", "rmdir @f", "rmdir @none", "rmdir @dl", "rmdir @d/e/deep/"],
    // touch
    &[
        "touch -d '2000-01-01 UTC' @new",
        "touch -c @none",
        "touch -d '2001-02-03 04:05:06.7 UTC' @f",
        "touch -c -d '2000-01-02 UTC' @d",
    ],
    &[
        "touch -r @f @nothing",
        "touch -r @none @f",
        "touch -h -d '2000-01-06 UTC' @l",
        "touch -d '2000-01-07 UTC' @dl",
        "touch @d/g",
    ],
    &["touch @new/", "touch @none/x", "touch @f/x", "touch -d nonsense @f"],
    // rm
    &[
        "rm @f",
        "rm @none",
        "rm -f @none",
        "rm @d",
        "rm -d @empty",
        "rm -d @d",
        "rm -r @d",
        "rm @l",
        "rm @dangling",
    ],
    &["rm -rf @d @none @f", "rm -r @dl", "rm @nothing @none @hard", "rm -r @empty/"],
    &["rm -rf @d", "rm -R @empty", "rm -f @p", "rm -r @dl/"],
    // mv
    &[
        "mv @f @new",
        "mv @none @x",
        "mv @new @d",
        "mv @d/new @d/e/deep",
        "mv @l @l",
        "mv @d @d/e",
        "mv @nothing @p",
    ],
    &[
        "mv @f @nothing @d",
        "mv @hard @l @new",
        "mv @hard @l @p",
        "mv @d @f",
        "mv @d @empty",
        "mv @empty/d @back/",
    ],
    &["mv -n @f @nothing", "mv -T @d @empty", "mv -f @f @nothing", "mv -T @nothing @empty", "mv @p @p2/"],
    &["mv -t @d @f @l", "mv @d/e/. @x", "mv @f @hard"],
    &["mv @d/g @empty/g", "mv @empty/g @d/e", "mv @d/up @up", "mv @dl @dl2", "mv @d/ @d3", "mv @f/ @f2"],
    // ln
    &[
        "ln @f @new",
        "ln @none @x",
        "ln @d @y",
        "ln -s @f @f",
        "ln -sf @f @nothing",
        "ln -f @f @nothing",
        "ln @f @f",
    ],
    &[
        "ln @f @nothing @d",
        "ln @f @nothing @none",
        "ln -s any/text @s",
        "ln -s x @dl",
        "ln -sn x @dl",
        "ln -sfn x @dl",
    ],
    &["ln @l @l2", "ln @dangling @d2", "ln -s '' @e", "ln @f @d", "ln @f @d", "ln -f @f @d"],
    &["ln -sf any @x", "ln @f @f/x", "ln -sT y @empty"],
    // chmod
    &[
        "chmod 600 @f",
        "chmod u+x,g-r,o=w @d/g",
        "chmod a=rx @nothing",
        "chmod +x @nothing",
        "chmod -w @d/large",
    ],
    &[
        "chmod g=u @f",
        "chmod u=g,o=u @d/g",
        "chmod ug+s,+t @d",
        "chmod 2750 @d/e",
        "chmod 755 @d/e",
        "chmod u-s @d/g",
    ],
    &[
        "chmod -R go= @d",
        "chmod -R a+X @d",
        "chmod 600 @none",
        "chmod 700 @l",
        "chmod 700 @dangling",
        "chmod u=rwX @f",
    ],
    &[
        "chmod -R u=rwX,go=rX @d @empty",
        "chmod 0 @d/e",
        "chmod 7777 @empty",
        "chmod 00755 @empty",
        "chmod a-st @empty",
    ],
    &["chmod =r @f"],
    &[
        "chmod u+rwx-x @f",
        "chmod 888 @f",
        "chmod 77777 @f",
        "chmod o+s @f",
        "chmod g+s @f",
        "chmod 2755 @d",
        "chmod -x @f",
    ],
    // chown
    &[
        "chown 5 @f",
        "chown 6:7 @d/g",
        "chown :9 @nothing",
        "chown 1:2 @none",
        "chown 3:4 @l",
        "chown -h 5:6 @l",
    ],
    &["chown -R 10:11 @d", "chown 12:13 @dl", "chown : @f", "chown 4294967294:4294967294 @f"],
    &["chown -R :20 @d @two", "chown 1 @d/g"],
    // contents
    &[
        "write --text hello @new",
        "write --text short @f",
        "write --append --text more @f",
        "write --text x @d",
    ],
    &["write --at 3 --text middle @f", "write --at 100000 --text far @nothing", "write --text x @none/y"],
    &["write --text through @l", "write --text x @l/"],
    &["truncate -s 3 @f", "truncate -s 1m @nothing", "truncate -s +10 @d/part", "truncate -s -5 @d/large"],
    &[
        "truncate -s 0 @new",
        "truncate -c -s 5 @none",
        "truncate -s 5 @d",
        "truncate -s 4096 @l",
        "truncate -s 0 @no/x",
    ],
    &["fallocate -l 8192 @nothing", "fallocate -n -l 100000 @f", "fallocate -p -o 4096 -l 4096 @d/large"],
    &["fallocate -z -o 0 -l 100 @f", "fallocate -l 0 @f", "fallocate -l 10 @d", "fallocate -l 10 @new"],
    &["reflink @d/large @copy", "reflink @none @x", "reflink @d @x", "reflink @f @nothing"],
    // cp
    &[
        "cp --within @f @new",
        "cp --within @d @x",
        "cp --within -r @d @x",
        "cp --within @none @x",
        "cp --within @f @d",
    ],
    &[
        "cp --within -a @d @copy",
        "cp --within -a @l @dangling @p @d",
        "cp --within -p @d/g @g",
        "cp --within @f @f",
    ],
    &["cp --within -rT @d @empty", "cp --within -n @f @nothing", "cp --within @f @nothing @none"],
    &["cp --within -u @f @nothing"],
    // setfattr
    &[
        "setfattr -n user.a -v b @f",
        "setfattr -x user.x @f",
        "setfattr -x user.none @f",
        "setfattr -n user.e @d",
    ],
    &[
        "setfattr -n user.bin -v 0x0001ff @f",
        "setfattr -n user.b64 -v 0sAAEC @f",
        "setfattr -n bad.name -v x @f",
    ],
    &["setfattr -n trusted.t -v u @d", "setfattr -n user.l -v x @l", "setfattr -h -n user.l -v x @l"],
    // mknod, names
    &[
        "mknod @null c 1 3",
        "mknod @disk b 7 77",
        "mknod @pipe p",
        "mknod -m 600 @m c 1 5",
        "mknod @f p",
        "mknod @x c",
    ],
    &["touch '@-dash'", "touch '@*'", "touch '@[x]'", "mkdir '@a b'", "mv '@-dash' '@a b'", "rm '@[x]' '@*'"],
    &[
        "touch '@back\\slash'",
        "rm '@back\\slash'",
        "touch '@quo\"te'",
        "ln -s 'a b' '@a b'",
        "mv '@two words' '@x y'",
    ],
    // tar
    &["tar-in ARCHIVE @d", "tar-in ARCHIVE @empty", "tar-in ARCHIVE @none", "tar-in /nowhere.tar @d"],
];

/// Prints a tree, with times only if they were set explicitly.
const TREE: &str = r#"
find . -mindepth 1 \( -type d -printf '%P|%y|%m|%U:%G\n' -o -printf '%P|%y|%m|%U:%G|%s|%n|%l\n' \) |
    LC_ALL=C sort
find . -mindepth 2 ! -newermt 2005-01-01 ! -type d -printf '%P|%T@\n' | LC_ALL=C sort
find . -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum
find . \( -type b -o -type c \) -print0 | LC_ALL=C sort -z | xargs -0r stat -c '%n %t:%T'
find . -print0 | LC_ALL=C sort -z | xargs -0 getfattr -h -d -m - -e hex 2> /dev/null
"#;

#[test]
fn everyday_commands_match_gnu() {
    let archive = tempfile::tempdir().unwrap();
    let tar = archive.path().join("archive.tar");
    let tools = ["tar", "setfattr", "getfattr", "fallocate"];
    let Some(()) = needs::met(needs::tools(&tools)) else { return };
    script(
        "mkdir \"$1/s\"; cd \"$1/s\"; mkdir a; echo x > a/f; ln -s f a/l; ln a/f hard; chmod 2751 a; chown 5:6 a/f\n\
         touch -h -d @900000000 a/f a/l a; tar -cf ../archive.tar a hard",
        &[archive.path()],
    );
    let name = tar.display().to_string();
    let cases: Vec<Vec<String>> =
        CASES.iter().map(|case| case.iter().map(|line| line.replace("ARCHIVE", &name)).collect()).collect();
    let cases: Vec<Vec<&str>> = cases.iter().map(|case| case.iter().map(String::as_str).collect()).collect();
    let cases: Vec<&[&str]> = cases.iter().map(Vec::as_slice).collect();
    let Some(twins) = needs::met(Twins::run_with(FUNCTIONS, MAKE, &cases, &tools)) else { return };
    twins.judge();
    let (linux, xebec) = twins.show(TREE);
    let missing = |from: &str, to: &str| {
        let known: std::collections::HashSet<_> = to.lines().collect();
        from.lines().filter(|line| !known.contains(line)).map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!((missing(&linux, &xebec), missing(&xebec, &linux)), Default::default());
}

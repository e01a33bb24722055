//! Compares `cp` with that of GNU: the same command lines must give the same trees.
//!
//! One volume is mounted, and GNU `cp` copies in it; the other is an image. Both have the same source. Each command
//! runs four times: GNU within the mount, and Xebec from the mount into the image, within the image, and from the image
//! into the mount. All four must succeed or fail alike, and give the same names, types, modes, owners, preserved times,
//! contents, holes, devices, extended attributes, ACLs and hard links.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use interop::built;

use crate::script;

/// Creates the source in the current folder. All times in it are long ago.
const SOURCE: &str = r#"
mkdir -p tree/deep/er tree/empty one two
echo file > tree/file; echo other > tree/deep/other; echo one > one/file; echo two > two/file
head -c 300000 /dev/zero | tr '\0' x > tree/large
truncate -s 3M tree/sparse; truncate -s 1M tree/hole; : > tree/nothing
printf data | dd of=tree/sparse bs=1 seek=1M conv=notrunc status=none
printf more | dd of=tree/sparse bs=1 seek=2000001 conv=notrunc status=none
head -c 200000 /dev/zero > tree/zeros
ln tree/file tree/hard; ln tree/file tree/deep/hard; ln -s file tree/link; ln -s deep tree/dirlink
ln -s nowhere tree/dangling; ln -s /nowhere/at/all tree/absolute; ln tree/link tree/same-link
mkfifo tree/fifo; mknod tree/null c 1 3; mknod tree/disk b 7 77
echo s > 'tree/trailing '; echo s > ' leading'; echo s > $'tree/new\nline'; echo s > tree/-dash; echo s > '*'
chown 1000:1001 tree/deep tree/large tree/link tree/fifo; chown 7:8 tree/file
chmod 4711 tree/file; chmod 2775 tree/deep; chmod 1777 tree/empty; chmod 640 tree/large; chmod 500 tree/deep/er
chmod 666 tree/nothing one/file; chmod 606 tree/fifo; chmod 660 tree/disk
setfattr -n user.one -v 1 tree/file; setfattr -n trusted.two -v 2 tree/deep; setfattr -n user.three -v 3 tree/empty
setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 tree/large
setfacl -m u:1234:rw tree/deep/other; setfacl -d -m g:99:rx tree/empty; setfacl -m u:5:rwx tree/empty
find . -depth -exec touch -h -d @1000000000.123456789 {} +
"#;

/// Creates both volumes in the folder `$1` with the script `$2`. The folder `$4` has two files per case: one prepares
/// the target, the other is the command. Runs them with GNU `cp` and with the program `$3`, and prints how each
/// ended.
const RUN: &str = r#"
cd "$1"; source=$2; xebec=$3; cases=$4; export LC_ALL=C; umask 022
mkdir host vol output
for volume in host vol; do
    truncate -s 1G $volume.xfs
    mkfs.xfs -q $volume.xfs
    mount -t xfs -o loop,nouuid,noatime $volume.xfs $volume
    mkdir $volume/src
    (cd $volume/src; eval "$source")
done
mkdir host/gnu host/out vol/in vol/within
for prepare in "$cases"/*.prepare; do
    n=$(basename "$prepare" .prepare)
    for target in host/gnu host/out vol/in vol/within; do
        mkdir $target/$n
        (cd $target/$n; . "$prepare"; find . -depth -exec touch -h -d @900000000 {} +)
    done
done
umount vol
cd host
cp() { "$xebec" cp "$@"; }
image=../vol.xfs
answer() {
    if (eval "$4") > "../output/$1.$2" 2>&1; then echo "$1 $2 done"; else echo "$1 $2 failed"; fi
}
for run in "$cases"/*.run; do
    n=$(basename "$run" .run); line=$(cat "$run")
    S=src T=gnu/$n; answer gnu $n - "cp() { command cp \"\$@\"; }; $line"
    S=src T=$image:/in/$n; answer in $n - "$line"
    S=$image:/src T=$image:/within/$n; answer within $n - "$line"
    S=$image:/src T=out/$n; answer out $n - "$line"
done
cd ..
umount host
xfs_repair -n -f vol.xfs > repair 2>&1 || cat repair >&2
"#;

/// Prints the folder `$3` of a volume `$2`: metadata, device numbers, contents, holes, attributes.
const SHOW: &str = r#"
cd "$1"
mount -t xfs -o loop,nouuid,noatime "$2.xfs" "$2"
cd "$2/$3"
find . -mindepth 1 -printf '%P\001%y\001%m\001%U:%G\001%s\001%A@\001%T@\001%i\001%n\001%l\002'
printf '\003'
find . \( -type b -o -type c \) -print0 | sort -z | xargs -0r stat -c '%n %t:%T'
find . -type f -print0 | sort -z | xargs -0r md5sum
find . -type f -size +64k -print0 | sort -z | while IFS= read -r -d '' file; do
    echo "$file"; xfs_io -r -c 'seek -a 0' "$file"
done
find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex
cd "$1"
umount "$2"
"#;

/// Directions in which a command is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directions {
    /// All three directions.
    All,
    /// Not out of the image: the target is also a source.
    ToImage,
    /// Not out of the image, and without comparing trees: GNU stops early, in the order of inode numbers.
    Unordered,
    /// Only into the image: it has no such source.
    In,
}

use Directions::{All, In, ToImage, Unordered};

/// Directions, preparation of the target, command; `$S` is the source, `$T` the target.
const CASES: &[(Directions, &str, &str)] = &[
    // Files.
    (All, "", "cp $S/tree/file $T/x"),
    (All, "", "cp $S/tree/file $T"),
    (All, "", "cp $S/tree/file $S/tree/nothing $S/one/file $T/"),
    (All, "", "cp -p $S/tree/file $S/tree/large $S/tree/deep/other $T"),
    (All, "", "cp $S/tree/sparse $S/tree/hole $S/tree/zeros $T"),
    (All, "", "cp -a $S/tree/sparse $S/tree/hole $S/tree/zeros $T"),
    (All, "head -c 5M /dev/zero > sparse", "cp $S/tree/sparse $T"),
    (All, "", r#"cp "$S/tree/trailing " "$S/ leading" "$S/tree/-dash" "$S/*" $T"#),
    (All, "mkdir ' d '", r#"cp "$S/tree/trailing " "$T/ d ""#),
    (All, "", r#"cp $S/tree/file "$T/ with blanks ""#),
    (All, "", r#"cp "$S/tree/new"$'\n'"line" $T/$'\n'"#),
    // Which options keep what.
    (All, "", "cp --preserve=timestamps $S/tree/file $S/tree/large $T"),
    (All, "", "cp --preserve=mode $S/tree/file $S/tree/deep/other $T"),
    (All, "", "cp --preserve=ownership $S/tree/file $S/tree/large $T"),
    (All, "", "cp --preserve=xattr $S/tree/file $S/tree/large $T"),
    (All, "", "cp --preserve=links,mode $S/tree/file $S/tree/hard $T"),
    (All, "", "cp --preserve $S/tree/file $T"),
    (All, "", "cp -r --preserve=all $S/tree $T"),
    (All, "", "cp -a --no-preserve=ownership $S/tree $T"),
    (All, "", "cp -a --no-preserve=mode,timestamps $S/tree $T"),
    (All, "", "cp -r --no-preserve=mode $S/tree $T"),
    // Trees.
    (All, "", "cp $S/tree $T"),
    (All, "", "cp $S/tree $S/tree/file $T"),
    (All, "", "cp -r $S/tree $T"),
    (All, "", "cp -R $S/tree/deep/ $T/new"),
    (All, "", "cp -r $S/tree $T/new/"),
    (All, "", "cp -rp $S/tree $T"),
    (All, "", "cp -a $S/tree $T"),
    (All, "", "cp -a $S/tree/. $T"),
    (All, "", "cp -a $S/tree/deep/.. $T"),
    (All, "mkdir -p tree/deep; echo old > tree/file; echo own > tree/own", "cp -a $S/tree $T"),
    (All, "mkdir -p tree/deep; chmod 700 tree/deep; echo own > tree/own", "cp -r $S/tree $T"),
    (All, "mkdir d", "cp -rT $S/tree $T/d"),
    (All, "mkdir d", "cp -T $S/tree/file $T/d"),
    (All, "", "cp -t $T $S/tree/file $S/tree/large"),
    (All, "touch f", "cp -t $T/f $S/tree/file"),
    (All, "", "cp -r $S/tree/deep $T/no/where"),
    (All, "chgrp 77 .; chmod 2777 .", "cp -r $S/tree/deep $S/tree/large $T"),
    // (Directories without special bits keep the inherited set-group-ID bit with GNU 9.1; here they have their own.)
    (All, "chgrp 77 .; chmod 2777 .", "cp -a $S/tree/empty $S/tree/large $T"),
    (All, "setfacl -d -m u:5:rwx .", "cp -r $S/tree/deep $S/one $S/tree/nothing $T"),
    (All, "setfacl -d -m u:5:rwx .", "cp -a $S/tree/deep $S/one $S/tree/nothing $T"),
    (All, "setfacl -d -m u:5:rwx .", "cp -p $S/tree/file $S/tree/large $T"),
    // Links.
    (All, "", "cp $S/tree/link $S/tree/file $T"),
    (All, "", "cp -P $S/tree/link $S/tree/dangling $T"),
    (All, "", "cp -d $S/tree/link $S/tree/same-link $S/tree/file $S/tree/hard $T"),
    (All, "", "cp -a $S/tree/absolute $T"),
    (All, "", "cp $S/tree/dangling $T"),
    (All, "", "cp -rH $S/tree/dirlink $S/tree/link $T"),
    (All, "", "cp -r $S/tree/dirlink $T"),
    (All, "", "cp -r $S/tree/dirlink/ $T/new"),
    (All, "", "cp -rL $S/tree $T"),
    // (GNU 9.1 does not follow links to directories where it copies attributes.)
    (All, "", "cp -aL $S/tree/file $S/tree/link $S/tree/deep $T"),
    (All, "", "cp -rpL $S/tree/dirlink $S/tree/deep $T"),
    (All, "", "cp -rL --preserve=links $S/one/file $S/one $T"),
    // Pipes and devices.
    (All, "", "cp -r $S/tree/fifo $S/tree/null $S/tree/disk $T"),
    (All, "", "cp -a $S/tree/fifo $S/tree/null $S/tree/disk $T"),
    (All, "echo old > null; mkfifo fifo", "cp -r $S/tree/fifo $S/tree/null $T"),
    (All, "mkdir null", "cp -r $S/tree/null $T"),
    (In, "", "cp $S/tree/null $T/x"),
    (In, "", "cp <(echo through a pipe) $T/x"),
    // What exists.
    (All, "echo x > x; chmod 4750 x; setfattr -n user.own -v 1 x", "cp $S/tree/file $T/x"),
    (
        All,
        "echo x > x; setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 x",
        "cp $S/tree/file $T/x",
    ),
    (All, "echo x > x; setfacl -m u:9:rw x; setfattr -n user.own -v 1 x", "cp -p $S/tree/file $T/x"),
    (All, "echo x > x; setfacl -m u:9:rw x; setfattr -n user.own -v 1 x", "cp -a $S/tree/file $T/x"),
    (All, "echo x > x; ln x y", "cp $S/tree/file $T/x"),
    (All, "echo x > x; ln x y", "cp -a $S/tree/file $T/x"),
    (All, "echo x > x; ln x y", "cp --remove-destination $S/tree/file $T/x"),
    (All, "echo x > x; ln -s x y", "cp $S/tree/file $T/y"),
    (All, "echo x > x; ln -s x y", "cp -a $S/tree/file $T/y"),
    (All, "echo x > x; ln -s x y", "cp -a $S/tree/link $T/y"),
    (All, "echo x > x; ln -s x y", "cp --remove-destination $S/tree/file $T/y"),
    (All, "ln -s nowhere y", "cp $S/tree/file $T/y"),
    (All, "mkdir file", "cp $S/tree/file $T"),
    (All, "echo x > tree", "cp -r $S/tree $T"),
    (All, "mkdir -p tree/file tree/link", "cp -r $S/tree $T"),
    (All, "mkdir d; ln -s d deep", "cp -r $S/tree/deep $T"),
    (All, "mkdir d; ln -s d deep", "cp -rT $S/tree/deep $T/deep"),
    (All, "touch x", "cp $S/tree/file $S/tree/large $T/x"),
    (All, "echo x > file", "cp -n $S/tree/file $S/tree/large $T"),
    (All, "mkdir tree; echo x > tree/file", "cp -rn $S/tree $T"),
    (All, "echo x > file", "cp -u $S/tree/file $S/tree/large $T"),
    (ToImage, "echo x > file", "cp $S/one/file $T/y; cp -u $S/tree/file $T/y"),
    (All, "echo x > file", "cp -f $S/tree/file $T"),
    // What cannot be.
    (All, "", "cp $S/tree/file $S/none $T"),
    (All, "", "cp $S/tree/file $T/none/"),
    (All, "", "cp $S/tree/file $T/none/x"),
    (All, "", "cp $S/tree/file/ $T"),
    (All, "", "cp $S/one/file $S/two/file $T"),
    (All, "", "cp -r $S/one $S/one $T"),
    (All, "", "cp -r $S/one $S/one/ $S/two $T"),
    (All, "", "cp -r $S/tree/deep $S/tree $T"),
    (ToImage, "echo a > a", "cp $T/a $T/a"),
    (ToImage, "echo a > a; ln a b", "cp $T/a $T/b"),
    (ToImage, "echo a > a; ln a b", "cp -a $T/a $T/b"),
    (ToImage, "echo a > a; ln -s a b", "cp $T/b $T/a"),
    (ToImage, "echo a > a; ln -s a b", "cp $T/a $T/b"),
    (Unordered, "mkdir d; echo a > d/a", "cp -r $T/d $T/d"),
    (Unordered, "mkdir d; echo a > d/a", "cp -r $T/d $T/d/e"),
    (Unordered, "mkdir -p d/sub; echo a > d/a", "cp -r $T/d $T/d/sub"),
    (Unordered, "mkdir -p d/sub; echo a > d/a", "cp -r $T/. $T/d"),
    (Unordered, "mkdir -p d/sub; echo a > d/a", "cp -r $T/d/.. $T/d/sub"),
    (ToImage, "mkdir -p d; ln -s . d/loop", "cp -rL $T/d $T/e"),
];

#[test]
fn copied_trees_match_gnu_cp() {
    let ready = needs::mounting()
        .and_then(|()| needs::tools(&["setfattr", "getfattr", "setfacl", "find", "md5sum", "mknod"]))
        .and_then(|()| needs::tools(&["cp", "stat", "mkfifo", "dd"]))
        .and_then(|()| built::xebec());
    let Some(xebec) = needs::met(ready) else { return };
    let (folder, cases) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (n, (_, prepare, run)) in CASES.iter().enumerate() {
        std::fs::write(cases.path().join(format!("{n}.prepare")), prepare).unwrap();
        std::fs::write(cases.path().join(format!("{n}.run")), run).unwrap();
    }
    let answers = script(RUN, &[folder.path(), Path::new(SOURCE), &xebec, cases.path()]);
    let answers: HashMap<_, _> = answers.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    let show = |volume: &str, name: &str| {
        let shown = script(SHOW, &[folder.path(), Path::new(volume), Path::new(name)]);
        TreeListing::parse(&shown)
    };
    let expected = show("host", "gnu");
    let mut wrong = String::new();
    for (volume, way) in [("vol", "in"), ("vol", "within"), ("host", "out")] {
        let found = show(volume, way);
        for (n, (runs, prepare, line)) in CASES.iter().enumerate() {
            let is_run = match runs {
                All => true,
                ToImage | Unordered => way != "out",
                In => way == "in",
            };
            let (theirs, ours) = (answers[&*format!("gnu {n}")], answers[&*format!("{way} {n}")]);
            let mut differences = expected.of(n).differences(&found.of(n));
            differences.retain(|_| *runs != Unordered);
            if is_run && (theirs != ours || !differences.is_empty()) {
                let messages = |name: &str| {
                    let bytes = std::fs::read(folder.path().join(format!("output/{name}.{n}"))).unwrap();
                    String::from_utf8_lossy(&bytes).into_owned()
                };
                writeln!(wrong, "case {n}, {way}: {line}   # in a folder where: {prepare}").unwrap();
                writeln!(wrong, "GNU: {theirs}: {}Xebec: {ours}: {}", messages("gnu"), messages(way))
                    .unwrap();
                writeln!(wrong, "{}", differences.join("\n")).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    let repaired = std::fs::read_to_string(folder.path().join("repair")).unwrap();
    assert!(!repaired.contains("would"), "{repaired}");
}

/// A tree: lines of properties by path.
#[derive(Default)]
struct TreeListing(BTreeMap<String, Vec<String>>);

impl TreeListing {
    fn parse(text: &str) -> Self {
        let (facts, rest) = text.split_once('\u{3}').unwrap();
        let mut tree = Self::default();
        let mut first_names: HashMap<&str, String> = HashMap::new();
        let mut records: Vec<Vec<&str>> =
            facts.split_terminator('\u{2}').map(|record| record.split('\u{1}').collect()).collect();
        records.sort();
        for record in records {
            let [path, kind, mode, owner, size, accessed, modified, ino, links, target] = record[..] else {
                panic!("{record:?}")
            };
            // Hard links are between files of one case.
            let case = path.split('/').next().unwrap();
            let first = first_names.entry(ino).or_insert_with(|| path.to_owned()).clone();
            let first = first.strip_prefix(case).unwrap_or(&first).to_owned();
            let (size, links) = if kind == "d" { ("", "") } else { (size, links) };
            let facts = [
                format!("kind {kind}, mode {mode}, owner {owner}, size {size}, links {links} {target:?}"),
                format!("accessed {}, modified {}", time(accessed), time(modified)),
                format!("first name {first:?}"),
            ];
            tree.0.insert(path.to_owned(), facts.to_vec());
        }
        tree.add_lines(rest);
        tree
    }

    /// Adds lines that begin with `./PATH`, and those after them, to this path.
    fn add_lines(&mut self, text: &str) {
        let mut path = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let named = line.strip_prefix("# file: ").or_else(|| Some(line.split_once("./")?.1));
            if let Some(named) = named {
                // Only the first part of a name with blanks is used, on both sides.
                named.split([' ', '\\']).next().unwrap().clone_into(&mut path);
            }
            self.0.entry(format!("{path} (more)")).or_default().push(line.to_owned());
        }
    }

    /// Returns the part of a case.
    fn of(&self, n: usize) -> Self {
        let (itself, below) = (n.to_string(), format!("{n}/"));
        let part = self.0.iter().filter(|(path, _)| **path == itself || path.starts_with(&below));
        Self(part.map(|(path, lines)| (path.clone(), lines.clone())).collect())
    }

    fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for path in self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path))) {
            let (theirs, ours) = (self.0.get(path), other.0.get(path));
            if theirs != ours {
                found.push(format!("  {path:?}\n    GNU   {theirs:?}\n    Xebec {ours:?}"));
            }
        }
        found
    }
}

/// Returns a time if it was set for a source or target, and "now" otherwise.
fn time(seconds: &str) -> &str {
    if seconds.starts_with("1000000000.") || seconds.starts_with("900000000.") { seconds } else { "now" }
}

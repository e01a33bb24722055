//! Flags and projects: the calls that they forbid, with the errors of Linux, and how new files inherit them.

use crate::{Twins, expect_same};

/// Creates the files of each case.
const MAKE: &str = "mkdir d d/sub e e/sub; echo file > f; echo in > d/g; echo h > e/h; echo q > q; mkfifo p; \
    ln -s f l; chmod 640 f; setfattr -n user.x -v y f";

/// Commands on the file `f`.
const TO_FILE: &[&str] = &[
    "chmod 600 @f",
    "chown 1:1 @f",
    "touch @f",
    "touch -d '1970-01-06 UTC' @f",
    "ln @f @f2",
    "rm @f",
    "rmdir @f",
    "mv -T @f @f2",
    "mv -T @q @f",
    "mv -T @d @f",
    "setfattr -n user.y -v z @f",
    "setfattr -n trusted.y -v z @f",
    "setfattr -x user.x @f",
    "setfattr -x user.none @f",
    "setfacl -m u:7:r @f",
    "truncate -s 0 @f",
    "truncate -s 100 @f",
    "fallocate -l 8k @f",
    "fallocate -p -l 4k @f",
    "chattr +d @f",
    "chattr =A @f",
];

/// Commands on the directory `d` and in it.
const IN_DIRECTORY: &[&str] = &[
    "touch @d/new",
    "touch @d/g",
    "mkdir @d/new",
    "mkdir @d/g",
    "ln -s x @d/new",
    "mknod @d/new p",
    "ln @f @d/new",
    "ln @f @d/g",
    "ln @d/g @out",
    "rm @d/g",
    "rm @d/none",
    "rmdir @d/sub",
    "rmdir @d/g",
    "rmdir @d",
    "mv -T @f @d/f",
    "mv -T @d/g @out",
    "mv -T @d/g @d/h",
    "mv -T @f @d/g",
    "mv -T @d @dd",
    "mv -T @d/sub @sub",
    "mv -T @e/sub @d/new",
    "mv -T @e @d",
    "chmod 700 @d",
    "touch @d",
    "touch -d '1970-01-06 UTC' @d",
    "setfattr -n user.y -v z @d",
    "setfacl -m d:u:7:r @d",
    "truncate -s 0 @d/g",
    "chmod 600 @d/g",
];

/// Inheritance of projects, hints and flags, and moves between projects.
const PROJECTS: &[&[&str]] = &[
    &["project -R 5 @d", "touch @d/new", "mkdir @d/below", "mknod @d/fifo p", "ln -s x @d/link"],
    &["project 5 @d", "mv -T @f @d/f", "ln @f @d/f", "mv -T @p @d/p", "mv -T @l @d/l", "mv -T @d/g @out"],
    &["project 5 @d", "project 6 @e", "mv -T @e/h @d/h", "mv -T @e/sub @d/x", "mv -T @f @d/sub"],
    &["project 5 @d @f @e", "mv -T @f @d/f", "mv -T @e @d/e"],
    &["project -R 5 @d", "project -R 0 @d", "touch @d/new", "mv -T @f @d/f"],
    &["extsize 64k @d", "touch @d/new", "mkdir @d/below", "touch @d/below/new"],
    &["extsize 64k @f", "touch @new", "extsize 64k @new", "extsize 1000 @new", "extsize 0 @new"],
    &["cowextsize 128k @d", "touch @d/new", "mkdir @d/below", "cowextsize 64k @f", "cowextsize 1 @f"],
    &["chattr +dAS @d", "touch @d/new", "mkdir @d/below", "ln -s x @d/link"],
    &["chattr +n @d", "ln -s x @d/link", "touch @d/new", "mkdir @d/below", "mv -T @l @d/l"],
    &["chattr -R +A @d", "chattr -d @d/g", "chattr =S @f"],
];

/// Shell functions for commands of Xebec with other names in Linux. `mv` is replaced because it copies after an error
/// of `rename`.
const FUNCTIONS: &str = r#"
project() { local r=; if [ "$1" = -R ]; then r=-R; shift; fi; local id=$1; shift
    for path; do for file in $(if [ "$r" ]; then find "$path"; else echo "$path"; fi); do
        [ -f "$file" ] || [ -d "$file" ] || continue
        xfs_io -r -c "chproj $id" "$file" || return
        if [ -d "$file" ]; then
            if [ "$id" = 0 ]; then xfs_io -r -c 'chattr -P' "$file"; else xfs_io -r -c 'chattr +P' "$file"; fi
        fi
    done; done; }
hint() { local output; output=$(xfs_io -r -c "$1 $2" "$3" 2>&1); [ -z "$output" ]; }
extsize() { hint extsize "$1" "$2"; }
cowextsize() { hint cowextsize "$1" "$2"; }
chattr() { case "$1 $2" in
    '+n '*) xfs_io -r -c 'chattr +n' "$2";;
    *) command chattr "$@";; esac; }
mv() { python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$2" "$3"; }
ln() { if [ "$1" = -s ]; then command ln "$@"; else python3 -c 'import os, sys; os.link(*sys.argv[1:])' "$@"; fi; }
rm() { python3 -c 'import os, sys; os.unlink(sys.argv[1])' "$1"; }
rmdir() { python3 -c 'import os, sys; os.rmdir(sys.argv[1])' "$1"; }
mkdir() { python3 -c 'import os, sys; os.mkdir(sys.argv[1])' "$1"; }
mknod() { python3 -c 'import os, sys; os.mkfifo(sys.argv[1])' "$1"; }
"#;

/// Prints everything that the cases change, except for the attribute fork flag: Linux creates attribute forks in
/// advance.
const SHOW: &str = r#"
for path in $(find . -mindepth 2 | sort); do
    printf '%s %s\n' "$path" "$(stat -c '%A %h %u:%g %s' "$path")"
    if [ -f "$path" ] || [ -d "$path" ]; then xfs_io -r -c stat "$path" | grep fsxattr | grep -v extents; fi |
        sed 's/0x[0-9a-f]* //; s/X]/-]/'
    echo
done
"#;

#[test]
fn flags_and_projects_forbid_the_calls_that_linux_forbids() {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (calls, name) in [(TO_FILE, "f"), (IN_DIRECTORY, "d")] {
        for flag in ["+i", "+a"] {
            for call in calls {
                lines.push(vec![format!("chattr {flag} @{name}"), (*call).to_owned()]);
            }
        }
    }
    lines.extend(PROJECTS.iter().map(|case| case.iter().map(|line| (*line).to_owned()).collect()));
    let cases: Vec<Vec<&str>> =
        lines.iter().map(|case| case.iter().map(|line| line.as_str()).collect()).collect();
    let cases: Vec<&[&str]> = cases.iter().map(|case| case.as_slice()).collect();
    let Some(twins) =
        needs::met(Twins::run_with(FUNCTIONS, MAKE, &cases, &["chattr", "setfattr", "setfacl", "python3"]))
    else {
        return;
    };
    twins.judge();
    let (linux, xebec) = twins.show(SHOW);
    expect_same(&linux, &xebec);
}

/// Writes to files with an extent size hint. No write goes to a hole in a partly mapped unit, because Linux then shifts
/// the unit after the mapped part. Each file has at most two appends, because Linux frees blocks past the end of a file
/// only at the first close, so a third append would find them.
const HINTED: &[&[&str]] = &[
    &["touch @n", "extsize 64k @n", "write @n --at 0 --text x"],
    &["touch @n", "extsize 64k @n", "write @n --at 102400 --text x"],
    &["touch @n", "extsize 64k @n", "write @n --at 65535 --text x", "write @n --at 10 --text x"],
    &["touch @n", "extsize 64k @n", "truncate -s 1048576 @n", "write @n --at 512000 --text x"],
    &["touch @n", "extsize 96k @n", "write @n --at 0 --text x", "write @n --at 204800 --text x"],
    &["touch @n", "extsize 64k @n", "fallocate -l 4096 @n", "write @n --at 300000 --text x"],
    &["extsize 64k @d", "touch @d/n", "write @d/n --at 5000 --text x", "truncate -s 8k @d/n"],
    &[
        "touch @n",
        "extsize 64k @n",
        "write @n --at 9000 --text x",
        "truncate -s 0 @n",
        "write @n --at 1 --text x",
    ],
];

/// Prints the mappings of each file without block numbers: written, unwritten or hole.
const SHOW_MAPS: &str = r#"
for path in $(find . -mindepth 2 -type f -size +0 | sort); do
    echo "$path"
    xfs_io -r -c 'bmap -vp' "$path" | awk '
        NR > 2 && $2 ~ /^\[/ {
            split($2, range, /[^0-9]+/)
            kind = $3 == "hole" ? "hole" : substr($NF, length($NF) - 4, 1) == "1" ? "unwritten" : "written"
            if (kind != last) { if (last) print start, end, last; start = range[2]; last = kind }
            end = range[3]
        }
        END { print start, end, last }'
    echo
done
"#;

#[test]
fn extent_size_hints_allocate_as_on_linux() {
    let functions = format!(
        "{FUNCTIONS}\nwrite() {{ printf '%s\\n' \"$5\" |\n    dd of=\"$1\" bs=64k seek=\"$3\" oflag=seek_bytes \
         conv=notrunc status=none; }}\n"
    );
    let Some(twins) =
        needs::met(Twins::run_with(&functions, MAKE, HINTED, &["chattr", "setfattr", "python3"]))
    else {
        return;
    };
    twins.judge();
    let (linux, xebec) = twins.show(SHOW_MAPS);
    assert!(linux.contains("128 199 unwritten\n200 207 written\n"), "{linux}");
    expect_same(&linux, &xebec);
}

#[test]
fn lsattr_letters_match_linux() {
    let cases: &[&[&str]] = &[&["chattr +iadAS @f"], &["chattr +d @f", "chattr =S @f"], &["chattr +aA @d"]];
    let Some(twins) = needs::met(Twins::run(MAKE, cases, &["chattr", "lsattr"])) else { return };
    let letters = |text: &str| {
        let line = |line: &str| {
            let (flags, path) = line.split_once(' ')?;
            let mut set: Vec<char> = flags.chars().filter(|letter| *letter != '-').collect();
            set.sort_unstable();
            let path = path.trim_start_matches(['.', '/']).to_owned();
            Some((path, set.into_iter().collect::<String>()))
        };
        let mut lines: Vec<_> = text.lines().filter_map(line).collect();
        lines.sort();
        lines
    };
    let (linux, xebec) = twins.show("lsattr -R . 2>/dev/null | grep -v '^$\\|:$'");
    assert_eq!(letters(&linux), letters(&xebec));
    let ours = twins.ours("lsattr", &["-R", "/"]);
    // lsattr of Linux skips files that it cannot open.
    let ours: Vec<_> = letters(&ours).into_iter().filter(|(path, _)| !path.ends_with(['l', 'p'])).collect();
    assert_eq!(letters(&linux), ours);
    assert!(ours.iter().any(|(path, set)| path == "0/f" && set == "ASadi"), "{ours:?}");
}

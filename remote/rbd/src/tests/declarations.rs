//! The declarations of `library`, compared with the headers by a C compiler.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;

use crate::library::{
    FEATURE_EXCLUSIVE_LOCK, FEATURE_LAYERING, LOCK_MODE_EXCLUSIVE, OPTION_CLONE_FORMAT, OPTION_FEATURES_SET,
    RawInfo, RawSnapshot, RawWatcher,
};

/// Types in Rust, and in the headers.
const TYPES: &[(&str, &str)] = &[
    ("*mut *mut RawCluster", "rados_t *"),
    ("*mut RawCluster", "rados_t"),
    ("*mut *mut RawPool", "rados_ioctx_t *"),
    ("*mut RawPool", "rados_ioctx_t"),
    ("*mut *mut RawImage", "rbd_image_t *"),
    ("*mut RawImage", "rbd_image_t"),
    ("*mut *mut RawImageOptions", "rbd_image_options_t *"),
    ("*mut RawImageOptions", "rbd_image_options_t"),
    ("*mut *mut RawCompletion", "rbd_completion_t *"),
    ("*mut RawCompletion", "rbd_completion_t"),
    ("*mut RawInfo", "rbd_image_info_t *"),
    ("*mut RawSnapshot", "rbd_snap_info_t *"),
    ("*mut RawWatcher", "rbd_image_watcher_t *"),
    ("*const IoSlice<'_>", "const struct iovec *"),
    ("*const IoSliceMut<'_>", "const struct iovec *"),
    ("*const c_char", "const char *"),
    ("*mut *mut c_char", "char **"),
    ("*mut *const c_char", "const char **"),
    ("*mut c_void", "void *"),
    ("*mut c_int", "int *"),
    ("*mut usize", "size_t *"),
    ("*mut u64", "uint64_t *"),
    ("*mut LockMode", "rbd_lock_mode_t *"),
    ("LockMode", "rbd_lock_mode_t"),
    ("Callback", "rbd_callback_t"),
    ("c_int", "int"),
    ("isize", "ssize_t"),
    ("usize", "size_t"),
    ("u64", "uint64_t"),
];

fn c_type(rust: &str) -> &'static str {
    let found = TYPES.iter().find(|(name, _)| *name == rust.trim());
    found.unwrap_or_else(|| panic!("{rust} is not in the table")).1
}

/// The functions of `library.rs` as C declarations: a compiler refuses one that differs from that of the header.
fn declarations(source: &str) -> (usize, String) {
    let (mut count, mut text) = (0, String::new());
    let tables = source.split("functions! {").skip(1).map(|table| table.split("\n}\n").next().unwrap());
    // Behind the name of the table.
    let functions = tables.flat_map(|table| table.split_once(":\n").unwrap().1.split_terminator(';'));
    for function in functions.map(str::trim).filter(|function| !function.is_empty()) {
        let (name, rest) = function.split_once('(').unwrap();
        let (arguments, result) = rest.rsplit_once(')').unwrap();
        let arguments: Vec<&str> = arguments.split(',').map(c_type).collect();
        let result = result.trim().strip_prefix("-> ").map_or("void", c_type);
        writeln!(text, "{result} {name}({});", arguments.join(", ")).unwrap();
        count += 1;
    }
    (count, text)
}

fn layout(name: &str, size: usize, fields: &[(&str, usize)]) -> String {
    let mut text = format!("_Static_assert(sizeof({name}) == {size}, \"{name}\");\n");
    for (field, offset) in fields {
        writeln!(text, "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");").unwrap();
    }
    text
}

#[test]
fn functions_and_structures_are_those_of_the_headers() {
    let headers = ["/usr/include/rados/librados.h", "/usr/include/rbd/librbd.h"];
    let installed = match headers.iter().find(|header| !Path::new(header).exists()) {
        Some(missing) => {
            Err(format!("{missing} is missing: run .ci/install, or apt install librados-dev librbd-dev"))
        }
        None => needs::tools(&["cc"]),
    };
    let Some(()) = needs::met(installed) else { return };
    let (count, declarations) = declarations(include_str!("../library.rs"));
    assert_eq!(count, 44, "functions in the source");
    let mut program = "#include <stddef.h>\n#include <sys/uio.h>\n".to_owned();
    for header in ["rados/librados.h", "rbd/librbd.h", "rbd/features.h"] {
        writeln!(program, "#include <{header}>").unwrap();
    }
    program += &declarations;
    program += &layout(
        "rbd_snap_info_t",
        size_of::<RawSnapshot>(),
        &[
            ("id", offset_of!(RawSnapshot, id)),
            ("size", offset_of!(RawSnapshot, size)),
            ("name", offset_of!(RawSnapshot, name)),
        ],
    );
    program += &layout(
        "rbd_image_watcher_t",
        size_of::<RawWatcher>(),
        &[
            ("addr", offset_of!(RawWatcher, address)),
            ("id", offset_of!(RawWatcher, id)),
            ("cookie", offset_of!(RawWatcher, cookie)),
        ],
    );
    program += &layout(
        "rbd_image_info_t",
        size_of::<RawInfo>(),
        &[
            ("size", offset_of!(RawInfo, size)),
            ("obj_size", offset_of!(RawInfo, object_size)),
            ("num_objs", offset_of!(RawInfo, objects)),
            ("order", offset_of!(RawInfo, order)),
            ("block_name_prefix", offset_of!(RawInfo, block_name_prefix)),
            ("parent_pool", offset_of!(RawInfo, parent_pool)),
            ("parent_name", offset_of!(RawInfo, parent_name)),
        ],
    );
    for (name, value) in [
        ("RBD_LOCK_MODE_EXCLUSIVE", LOCK_MODE_EXCLUSIVE as u64),
        ("RBD_IMAGE_OPTION_FEATURES_SET", OPTION_FEATURES_SET as u64),
        ("RBD_IMAGE_OPTION_CLONE_FORMAT", OPTION_CLONE_FORMAT as u64),
        ("RBD_FEATURE_LAYERING", FEATURE_LAYERING),
        ("RBD_FEATURE_EXCLUSIVE_LOCK", FEATURE_EXCLUSIVE_LOCK),
    ] {
        writeln!(program, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    writeln!(program, "_Static_assert(sizeof(rbd_lock_mode_t) == sizeof(int), \"LockMode\");").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("declarations.c");
    std::fs::write(&source, &program).unwrap();
    let output =
        needs::command("cc").args(["-std=c11", "-Werror", "-fsyntax-only"]).arg(&source).output().unwrap();
    assert!(output.status.success(), "{}\n{program}", String::from_utf8_lossy(&output.stderr));
}

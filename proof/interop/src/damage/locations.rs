//! Structures to damage, and how xfs_db finds them in a volume that `interop fill` has filled.

/// A structure and its location.
pub struct Location {
    /// Kind of the structure.
    pub structure: &'static str,
    /// Commands with which xfs_db finds it.
    pub at: Vec<String>,
}

/// Returns the locations that a filled volume may have; xfs_db reports which of them exist.
///
/// `block` is the volume's block size and `dir_block` its directory block size, in bytes.
pub fn locations(block: u64, dir_block: u64) -> Vec<Location> {
    let mut locations = Vec::new();
    let mut add = |structure, at: &[&str]| {
        locations.push(Location { structure, at: at.iter().map(|c| (*c).to_owned()).collect() });
    };
    headers(&mut add);
    ag_trees(&mut add);
    inodes(&mut add);
    directories(&mut add, block, dir_block);
    attributes(&mut add);
    locations
}

fn headers(add: &mut impl FnMut(&'static str, &[&str])) {
    add("superblock", &["sb 0"]);
    add("secondary superblock", &["sb 1"]);
    add("AGF", &["agf 0"]);
    add("AGF", &["agf 1"]);
    add("AGFL", &["agfl 1"]);
    add("AGI", &["agi 0"]);
    add("AGI", &["agi 1"]);
}

/// Btrees of both AGs, from the root down. A leaf has no `ptrs`, which xfs_db reports.
fn ag_trees(add: &mut impl FnMut(&'static str, &[&str])) {
    for (structure, header, root) in [
        ("bnobt", "agf", "addr bnoroot"),
        ("cntbt", "agf", "addr cntroot"),
        ("rmapbt", "agf", "addr rmaproot"),
        ("refcountbt", "agf", "addr refcntroot"),
        ("inobt", "agi", "addr root"),
        ("finobt", "agi", "addr free_root"),
    ] {
        for group in ["0", "1"] {
            let header = format!("{header} {group}");
            add(structure, &[&header, root]);
            add(structure, &[&header, root, "addr ptrs[1]"]);
            add(structure, &[&header, root, "addr ptrs[2]", "addr ptrs[1]"]);
        }
    }
}

fn inodes(add: &mut impl FnMut(&'static str, &[&str])) {
    add("root inode", &["sb 0", "addr rootino"]);
    add("realtime inode", &["sb 0", "addr rbmino"]);
    add("metadata directory inode", &["sb 0", "addr metadirino"]);
    for (structure, path) in [
        ("short-form directory", "path /dirs/short"),
        ("directory inode", "path /dirs/block"),
        ("inode with extents", "path /files/sparse"),
        ("inode with unwritten extents", "path /files/unwritten"),
        ("inode with shared extents", "path /files/shared-40-second"),
        ("inode with a btree root", "path /files/btree-map"),
        ("directory with a btree root", "path /dirs/btree"),
        ("inline symlink", "path /symlinks/len-0059"),
        ("remote symlink inode", "path /symlinks/len-1000"),
        ("device inode", "path /special/block"),
        ("fifo inode", "path /special/fifo"),
        ("hard-linked inode", "path /hardlinks/first"),
        ("inode with flags", "path /flags/extent-size"),
        ("short-form attributes", "path /attrs/inline"),
        ("inode with an attribute leaf", "path /attrs/leaf"),
        ("inode with an attribute btree root", "path /attrs/btree-remote"),
    ] {
        add(structure, &[path]);
    }
    add("bmbt", &["path /files/btree-map", "addr u3.bmbt.ptrs[1]"]);
    add("bmbt", &["path /files/btree-map", "addr u3.bmbt.ptrs[1]", "addr ptrs[1]"]);
    add("bmbt of a directory", &["path /dirs/btree", "addr u3.bmbt.ptrs[1]"]);
    add("bmbt of attributes", &["path /attrs/btree-remote", "addr a.bmbt.ptrs[1]"]);
    add("symlink block", &["path /symlinks/len-1000", "dblock 0"]);
}

/// Leaf blocks of directories start at 32 GiB of the directory's address space, free index blocks at 64 GiB.
fn directories(add: &mut impl FnMut(&'static str, &[&str]), block: u64, dir_block: u64) {
    let leaf = (32 << 30) / block;
    let first_leaf = format!("dblock {leaf}");
    let second_leaf = format!("dblock {}", leaf + dir_block / block);
    let free = format!("dblock {}", (64 << 30) / block);
    add("directory block", &["path /dirs/block", "dblock 0"]);
    add("directory block", &["path /dirs/block-holes", "dblock 0"]);
    add("directory data block", &["path /dirs/leaf", "dblock 0"]);
    add("directory data block", &["path /dirs/node-holes", "dblock 0"]);
    add("directory leaf", &["path /dirs/leaf", &first_leaf]);
    add("directory node", &["path /dirs/node", &first_leaf]);
    add("directory leaf below a node", &["path /dirs/node", &second_leaf]);
    add("directory free index", &["path /dirs/node", &free]);
    add("directory free index", &["path /dirs/node-holes", &free]);
}

fn attributes(add: &mut impl FnMut(&'static str, &[&str])) {
    add("attribute leaf", &["path /attrs/leaf", "ablock 0"]);
    add("attribute node", &["path /attrs/node", "ablock 0"]);
    add("attribute leaf below a node", &["path /attrs/node-holes", "ablock 1"]);
    add("attribute leaf with remote values", &["path /attrs/remote", "ablock 0"]);
    add("remote attribute value", &["path /attrs/remote", "ablock 1"]);
}

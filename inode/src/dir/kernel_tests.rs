use super::Directory;
use super::memory::{Memory, geometry};
use base::Ino;

#[test]
fn as_the_kernel() {
    for case in std::fs::read_dir("/work/tmp/dir/k").unwrap() {
        let case = case.unwrap().path();
        let Ok(ops) = std::fs::read_to_string(case.join("ops")) else { continue };
        let mut lines = ops.lines();
        let head: Vec<u64> = lines.next().unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
        let log = head[0].trailing_zeros() as u8;
        let geometry = geometry(log, 12u8.saturating_sub(log));
        let mut memory = Memory::new(geometry.clone(), 336);
        Directory::new(&geometry, &mut memory).init(Ino(head[2])).unwrap();
        let started = std::time::Instant::now();
        let mut count = 0;
        for op in lines {
            let mut dir = Directory::new(&geometry, &mut memory);
            let name = op[1..].as_bytes();
            if op.starts_with('+') {
                dir.add(name, Ino(head[3]), 1).unwrap()
            } else {
                dir.remove(name).map(|_| ()).unwrap()
            }
            count += 1;
        }
        let each = started.elapsed() / count;
        let mut kernel = std::collections::BTreeMap::<u64, Vec<u8>>::new();
        let per = 1u64 << geometry.dir_block_log;
        for file in std::fs::read_dir(&case).unwrap() {
            let path = file.unwrap().path();
            let Some(number) = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse::<u64>().ok())
            else {
                continue;
            };
            let bytes = std::fs::read(&path).unwrap();
            let block = kernel.entry(number / per * per).or_insert_with(|| vec![0; 4096]);
            let at = ((number % per) << log) as usize;
            block[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        let (mut same, mut differ) = (0, Vec::new());
        for (at, theirs) in &kernel {
            let Some((_, ours)) = memory.blocks.get(at) else {
                differ.push((*at, "absent".to_owned()));
                continue;
            };
            let is_tree = matches!(u16::from_be_bytes([theirs[8], theirs[9]]), 0x3df1 | 0x3dff | 0x3ebe);
            // crc, blkno, lsn, uuid, owner
            let masked = |i: usize| if is_tree { (12..56).contains(&i) } else { (4..48).contains(&i) };
            let used = |b: &[u8]| -> usize {
                if is_tree {
                    let magic = u16::from_be_bytes([b[8], b[9]]);
                    if magic == 0x3df1 {
                        4096
                    } else {
                        64 + 8 * usize::from(u16::from_be_bytes([b[56], b[57]]))
                    }
                } else {
                    4096
                }
            };
            let end = used(theirs).max(used(ours));
            let bad: Vec<usize> = (0..end).filter(|i| !masked(*i) && theirs[*i] != ours[*i]).collect();
            if bad.is_empty() {
                same += 1
            } else {
                differ.push((*at, format!("{} bytes from {:#x}", bad.len(), bad[0])))
            }
        }
        let extra = memory.blocks.keys().filter(|at| !kernel.contains_key(at)).count();
        println!(
            "{}: {count} ops {each:?} each; size {} kernel {}; blocks same {same} differ {} extra {extra}; inside {}",
            case.display(),
            memory.size,
            head[4],
            differ.len(),
            memory.local.is_some()
        );
        for (at, what) in differ.iter().take(8) {
            println!("    {at}: {what}");
        }
    }
}

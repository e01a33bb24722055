#![allow(clippy::unwrap_used, clippy::panic)]
use block::*;
use format::superblock::Superblock;
use xebec_log as log;
fn main() {
    for path in std::env::args().skip(1) {
        let d = FileDevice::open(path.as_ref(), &OpenOptions::default()).unwrap();
        let mut b = vec![0; 32768];
        d.read_at(0, &mut b).unwrap();
        let sb = Superblock::parse(&b).unwrap();
        let ext = path.replace(".img", ".log");
        let e = FileDevice::open(ext.as_ref(), &OpenOptions::default()).ok();
        let t = std::time::Instant::now();
        match log::Journal::open(&sb, &d, e.as_ref().map(|e| e as &dyn Device)) {
            Ok(j) => {
                println!(
                    "{path}: {:?} {:?} {:?}",
                    j.dirty().map(|d| (d.tail.block(), d.records, d.transactions, d.discarded.clone())),
                    j.head().block(),
                    t.elapsed()
                );
                let mut n = 0;
                let mut items = 0;
                for t in j.transactions() {
                    let t = t.unwrap();
                    n += 1;
                    items += t.items().len();
                    if t.items().map(|i| i.len()).sum::<usize>() as u32 != t.promised_regions {
                        println!("items {} promised {}", t.items().len(), t.promised_regions);
                    }
                }
                println!("   {n} transactions {items} items");
            }
            Err(e) => println!("{path}: ERROR {e}"),
        }
    }
}

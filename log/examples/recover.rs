#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
use block::*;
use format::superblock::Superblock;
use xebec_log as log;
fn main() {
    for path in std::env::args().skip(1) {
        let d = FileDevice::open(path.as_ref(), &OpenOptions { writable: true, ..OpenOptions::default() })
            .unwrap();
        let mut b = vec![0; 32768];
        d.read_at(0, &mut b).unwrap();
        let sb = Superblock::parse(&b).unwrap();
        let ext = path.replace(".ours.img", ".log").replace(".ours.xfs", ".log");
        let e = FileDevice::open(ext.as_ref(), &OpenOptions::default()).ok();
        let j = match log::Journal::open(&sb, &d, e.as_ref().map(|e| e as &dyn Device)) {
            Ok(j) => j,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        let t = std::time::Instant::now();
        let mut n = 0;
        for t in j.transactions() {
            let t = t.unwrap();
            for i in t.items() {
                let f = log::item::describe(&i, t.lsn).unwrap();
                n += f.to_string().len();
            }
        }
        println!("{path} described {n} {:?}", t.elapsed());
        let t = std::time::Instant::now();
        let o = log::Options { on_damage: log::OnDamage::Note, ..Default::default() };
        match log::recover(&j, &sb, &d, &log::Registry::default(), &o) {
            Ok(r) => {
                println!(
                    "{path}: {} txs, {} items {:?}; incomplete {} unfinished {} sb {} torn {} unsealed {} problems {}",
                    r.transactions,
                    r.items_total(),
                    t.elapsed(),
                    r.incomplete_transactions,
                    r.unfinished.len(),
                    r.superblock_replayed,
                    r.not_believed.len(),
                    r.unsealed.len(),
                    r.problems_total
                );
                for (k, t) in &r.items {
                    println!("   {k}: {t:?}");
                }
                for p in r.problems.iter().take(5) {
                    println!("   PROBLEM {p}");
                }
                for i in r.unfinished.iter().take(5) {
                    println!("   {i}");
                }
                println!(
                    "   concerned {:?} torn {:?}",
                    r.files_concerned(),
                    &r.not_believed[..r.not_believed.len().min(5)]
                );
            }
            Err(e) => println!("{path}: ERROR {e}"),
        }
    }
}

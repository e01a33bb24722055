//! The traced program (`sharing::target`). It is started by `xebec-sharing`, with numbers of pairs.
#![forbid(unsafe_code)]

#[global_allocator]
static ALLOCATOR: base::line_alloc::LineAllocator = base::line_alloc::LineAllocator;

fn main() -> anyhow::Result<()> {
    let pairs: Result<Vec<usize>, _> = std::env::args().skip(1).map(|number| number.parse()).collect();
    sharing::target::run(&pairs?)
}

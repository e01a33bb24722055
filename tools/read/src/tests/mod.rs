//! Tests on small volumes that are built here. `proof/interop` compares volumes made by the kernel.

mod attrs;
mod damage;
mod dirs;
mod paths;
mod volume;

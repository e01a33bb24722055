//! Tests on small volumes made by hand. Volumes that the kernel made are compared in `proof/interop`.

mod attrs;
mod damage;
mod dirs;
mod paths;
mod volume;

//! Modules of the journal, compiled from the product's source files.

#[path = "../../../journal/src/engine/cil/context.rs"]
pub mod context;
#[path = "../../../journal/src/engine/grant.rs"]
pub mod grant;
#[path = "../../../journal/src/engine/shutdown.rs"]
pub mod shutdown;
#[path = "../../../journal/src/engine/sizes.rs"]
pub mod sizes;

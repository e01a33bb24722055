//! The journal's parts, built from the product's source files.

#[path = "../../../journal/src/engine/cil/context.rs"]
pub mod context;
#[path = "../../../journal/src/engine/grant.rs"]
pub mod grant;
#[path = "../../../journal/src/engine/shutdown.rs"]
pub mod shutdown;
#[path = "../../../journal/src/engine/sizes.rs"]
pub mod sizes;

/// The journal's error, as far as its sizes need it.
pub mod error {
    /// Why the sizes of a log are invalid.
    #[derive(Debug)]
    pub enum Error {
        /// A message.
        Log(String),
    }

    impl Error {
        /// An error with this message.
        pub fn log(why: String) -> Self {
            Self::Log(why)
        }
    }
}

//! The journal's parts.

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
    /// Why a log's sizes are impossible.
    #[derive(Debug)]
    pub enum Error {
        /// In words.
        Log(String),
    }

    impl Error {
        /// With the reason in words.
        pub fn log(why: String) -> Self {
            Self::Log(why)
        }
    }
}

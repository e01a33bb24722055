//! Methods that set the options of imports and extractions.

/// Declares methods of a builder that set the field of their name.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name.into();
            self
        }
    )*};
}
pub(crate) use setters;

/// The number of threads if it is set, else that of CPUs.
pub(crate) fn thread_count(threads: Option<usize>) -> usize {
    threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

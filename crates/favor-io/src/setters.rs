//! Options are built by chained calls, one per field.

/// Generates a consuming setter for each of these fields of an options struct. A setter takes the type of
/// its field, so an optional field takes an `Option`; setters of options that are written by hand follow the same rule.
///
/// ```
/// #[derive(Default)]
/// pub struct Options {
///     threads: Option<usize>,
///     seed: u64,
/// }
///
/// favor_io::setters! { Options {
///     threads: Option<usize>,
///     seed: u64,
/// } }
///
/// let options = Options::default().threads(Some(2)).seed(7);
/// assert_eq!((options.threads, options.seed), (Some(2), 7));
/// ```
#[macro_export]
macro_rules! setters {
    ($name:ident $(<$life:lifetime>)? { $($field:ident: $type:ty),* $(,)? }) => {
        impl $(<$life>)? $name $(<$life>)? {
            $(
                #[doc = concat!("With another `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

//! Options are built by chained calls, one for each field.

/// Writes a consuming setter for each field of a struct of options.
#[doc(hidden)]
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

//! Options in one style: public fields to read, and a consuming setter for each.

/// One consuming setter per field.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident: $kind:ty,)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $field(mut self, $field: $kind) -> Self {
                self.$field = $field;
                self
            }
        )*
    };
}

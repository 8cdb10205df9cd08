//! Kinds that have names: each is written once, so that no list can lack one.

/// An enum whose kinds have names in commands and files, with a list of them all. `$what` is what errors
/// call it.
macro_rules! named {
    (
        $what:literal
        $(#[$about:meta])*
        pub enum $kind:ident {
            $($(#[$attribute:meta])* $variant:ident: $name:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
        )]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum $kind {
            $($(#[$attribute])* $variant,)*
        }

        impl $kind {
            /// Every one of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name in commands and files.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        by_name! { $what $kind }
    };
}

/// Text and files by the names of an enum that has `ALL` and `name`.
macro_rules! by_name {
    ($what:literal $kind:ident) => {
        impl From<$kind> for &'static str {
            fn from(kind: $kind) -> Self {
                kind.name()
            }
        }

        impl TryFrom<String> for $kind {
            type Error = $crate::Error;
            fn try_from(name: String) -> $crate::Result<Self> {
                name.parse()
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $kind {
            type Err = $crate::Error;
            fn from_str(name: &str) -> $crate::Result<Self> {
                Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
                    let names = Self::ALL.map(Self::name).join(", ");
                    $crate::Error::invalid($what, format!("'{name}' is none of {names}"))
                })
            }
        }
    };
}

//! Kinds that have names: each is written once, so that no list can lack one. And what is said of a name that is
//! unknown.

/// How similar a name must be to be suggested: one minus the edits per character.
const SIMILAR: f64 = 0.6;

/// The known name most similar to one that is not, upper and lower case aside; none if all are far from it.
///
/// ```
/// assert_eq!(favor::nearest("balnced", &["pos", "balanced"]), Some("balanced"));
/// assert_eq!(favor::nearest("fast", &["pos", "balanced"]), None);
/// ```
pub fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let name = name.to_lowercase();
    let similarity =
        |other: &str| strsim::normalized_damerau_levenshtein(&name, &other.to_lowercase());
    let scored = known.iter().map(|other| (similarity(other), *other));
    let (score, best) = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score >= SIMILAR).then_some(best)
}

/// Says that a name is unknown, which ones are known, and which was probably meant.
///
/// ```
/// let reason = favor::unknown_name("pso", &["pos", "balanced"]);
/// assert_eq!(reason, "'pso' is not one of pos, balanced; did you mean 'pos'?");
/// ```
pub fn unknown_name(name: &str, known: &[&str]) -> String {
    let meant = nearest(name, known).map(|meant| format!("; did you mean '{meant}'?"));
    format!("'{name}' is not one of {}{}", known.join(", "), meant.unwrap_or_default())
}

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
                    $crate::Error::invalid(
                        $what,
                        $crate::unknown_name(name, &Self::ALL.map(Self::name)),
                    )
                })
            }
        }
    };
}

//! Enums that are stored and sent as one lower-case word.

/// Declares an enum with `as_str`, `FromStr`, `Display`, serde as that word, and `ALL`.
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)* }

        impl $name {
            /// Every value, in the order people see them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word it is stored and sent as.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::text_enum::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(crate::text_enum::UnknownWord { word: text.to_owned(), of: stringify!($name) }),
                }
            }
        }
    };
}
pub(crate) use text_enum;

/// A word that names no value of an enum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not a {of}")]
pub struct UnknownWord {
    pub word: String,
    pub of: &'static str,
}

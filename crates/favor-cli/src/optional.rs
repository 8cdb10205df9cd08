//! The subcommands that a cargo feature brings, so that a build without it can say so.

/// A cargo feature and the subcommands that it brings.
struct Optional {
    feature: &'static str,
    built: bool,
    subcommands: &'static [&'static str],
    about: &'static str,
}

const OPTIONAL: &[Optional] = &[
    Optional {
        feature: "tables",
        built: cfg!(feature = "tables"),
        subcommands: &["fit", "predict", "evaluate", "info", "merge", "update"],
        about: "kernel classification, regression and density on tables",
    },
    Optional {
        feature: "nn",
        built: cfg!(feature = "nn"),
        subcommands: &[
            "asr",
            "embed",
            "finetune",
            "pretrain",
            "reproduce glue",
            "reproduce speech",
        ],
        about: "transformers and speech with attention by features",
    },
];

/// Why a subcommand is unknown to this build, if a feature would bring it.
pub(crate) fn missing(subcommand: &str) -> Option<String> {
    missing_of(OPTIONAL, subcommand)
}

/// What stands below the help: where to begin and what else could be built.
pub(crate) fn after_help() -> String {
    after_help_of(OPTIONAL)
}

fn missing_of(optional: &[Optional], subcommand: &str) -> Option<String> {
    let left_out = optional.iter().filter(|o| !o.built);
    let mut all = left_out.flat_map(|o| o.subcommands.iter().map(move |s| (o.feature, *s)));
    // A subcommand of a subcommand is asked for by its last word.
    let (feature, subcommand) = all.find(|(_, s)| s.split(' ').next_back() == Some(subcommand))?;
    Some(format!(
        "this favor was built without '{subcommand}', which comes with the cargo feature \
         '{feature}': cargo run --release --features {feature} -- {subcommand} …"
    ))
}

fn after_help_of(optional: &[Optional]) -> String {
    let mut text = "Begin with:  favor demo".to_owned();
    for o in optional.iter().filter(|o| !o.built) {
        text.push_str(&format!(
            "\n\nNot in this build: {} ({}).\nThey come with  cargo run --release --features {} --",
            o.subcommands.join(", "),
            o.about,
            o.feature
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_left_out_is_named() {
        let optional = |built| Optional {
            feature: "extra",
            built,
            subcommands: &["dance", "sing", "play chess"],
            about: "amusements",
        };
        let line = missing_of(&[optional(false)], "sing").unwrap();
        assert!(line.contains("built without 'sing'"), "{line}");
        assert!(line.ends_with("cargo run --release --features extra -- sing …"), "{line}");
        let line = missing_of(&[optional(false)], "chess").unwrap();
        assert!(line.contains("built without 'play chess'"), "{line}");
        assert_eq!(missing_of(&[optional(false)], "walk"), None);
        assert_eq!(missing_of(&[optional(true)], "sing"), None);
        assert!(after_help_of(&[optional(false)]).contains("dance, sing, play chess (amusements)"));
        assert!(!after_help_of(&[optional(true)]).contains("dance"));
    }
}

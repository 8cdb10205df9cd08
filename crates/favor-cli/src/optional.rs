//! The subcommands that a cargo feature brings, so that a build without it can say so.

/// A cargo feature and the subcommands that it brings.
struct Optional {
    feature: &'static str,
    built: bool,
    subcommands: &'static [&'static str],
    /// Options that it brings to other subcommands.
    options: &'static [&'static str],
    about: &'static str,
}

const OPTIONAL: &[Optional] = &[
    Optional {
        feature: "tables",
        built: cfg!(feature = "tables"),
        subcommands: &[
            "compare", "fit", "predict", "project", "evaluate", "info", "merge", "subtract",
            "update",
        ],
        options: &[],
        about: "kernel classification, regression and density on tables",
    },
    Optional {
        feature: "cluster",
        built: cfg!(feature = "cluster"),
        subcommands: &["cluster"],
        options: &["--cluster", "--partitions"],
        about: "fitting and predicting tables on a cluster",
    },
    Optional {
        feature: "nn",
        built: cfg!(feature = "nn"),
        subcommands: &["convert", "embed", "finetune", "pretrain", "reproduce glue"],
        options: &[],
        about: "transformers with linear attention",
    },
    Optional {
        feature: "speech",
        built: cfg!(feature = "speech"),
        subcommands: &["asr", "reproduce speech"],
        options: &[],
        about: "speech recognition with linear attention",
    },
];

/// Why a subcommand or an option is unknown to this build, if a feature would bring it.
pub(crate) fn missing(argument: &str) -> Option<String> {
    missing_of(OPTIONAL, argument)
}

/// What stands below the help: where to begin and what else could be built.
pub(crate) fn after_help() -> String {
    after_help_of(OPTIONAL)
}

fn missing_of(optional: &[Optional], argument: &str) -> Option<String> {
    // A subcommand of a subcommand is asked for by its last word.
    let named = |s: &&&str| s.split(' ').next_back() == Some(argument);
    let (feature, argument, example) = optional.iter().filter(|o| !o.built).find_map(|o| {
        let subcommand =
            o.subcommands.iter().find(named).map(|s| (o.feature, *s, format!("{s} …")));
        let option = || o.options.iter().find(named).map(|s| (o.feature, *s, "…".to_string()));
        subcommand.or_else(option)
    })?;
    Some(format!(
        "this favor was built without '{argument}', which needs the cargo feature '{feature}': \
         cargo install favor-cli --features {feature} (from a clone: cargo run --release --features \
         {feature} -- {example})"
    ))
}

fn after_help_of(optional: &[Optional]) -> String {
    let mut text =
        "Start with:  favor demo\nHelp on a command or topic:  favor help NAME".to_owned();
    for o in optional.iter().filter(|o| !o.built) {
        text.push_str(&format!(
            "\n\nNot in this build: {} ({}).\nTo get them:  cargo install favor-cli --features {} \
             (from a clone: cargo run --release --features {} --)",
            o.subcommands.join(", "),
            o.about,
            o.feature,
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
            options: &["--loud"],
            about: "amusements",
        };
        let line = missing_of(&[optional(false)], "sing").unwrap();
        assert!(line.contains("built without 'sing'"), "{line}");
        assert!(line.ends_with("cargo run --release --features extra -- sing …)"), "{line}");
        let line = missing_of(&[optional(false)], "chess").unwrap();
        assert!(line.contains("built without 'play chess'"), "{line}");
        let line = missing_of(&[optional(false)], "--loud").unwrap();
        assert!(line.ends_with("cargo run --release --features extra -- …)"), "{line}");
        assert_eq!(missing_of(&[optional(false)], "walk"), None);
        assert_eq!(missing_of(&[optional(true)], "sing"), None);
        assert!(after_help_of(&[optional(false)]).contains("dance, sing, play chess (amusements)"));
        assert!(!after_help_of(&[optional(true)]).contains("dance"));
    }
}

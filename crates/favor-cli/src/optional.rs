//! The subcommands that a cargo feature brings, so that a build without it can say so.

/// A cargo feature and the subcommands that it brings.
struct Optional {
    feature: &'static str,
    built: bool,
    subcommands: &'static [&'static str],
    about: &'static str,
}

const OPTIONAL: &[Optional] = &[Optional {
    feature: "tables",
    built: cfg!(feature = "tables"),
    subcommands: &["fit", "predict", "evaluate", "info", "merge", "update"],
    about: "kernel classification, regression and density on tables",
}];

/// Why a subcommand is unknown to this build, if a feature would bring it.
pub(crate) fn missing(subcommand: &str) -> Option<String> {
    let mut left_out = OPTIONAL.iter().filter(|o| !o.built);
    let found = left_out.find(|o| o.subcommands.contains(&subcommand))?;
    let feature = found.feature;
    Some(format!(
        "this favor was built without '{subcommand}', which comes with the cargo feature \
         '{feature}': cargo run --release --features {feature} -- {subcommand} …"
    ))
}

/// What stands below the help: where to begin and what else could be built.
pub(crate) fn after_help() -> String {
    let mut text = "Begin with:  favor demo".to_owned();
    for o in OPTIONAL.iter().filter(|o| !o.built) {
        text.push_str(&format!(
            "\n\nNot in this build: {} ({}).\nThey come with  cargo run --release --features {} --",
            o.subcommands.join(", "),
            o.about,
            o.feature
        ));
    }
    text
}

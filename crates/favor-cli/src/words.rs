//! What libraries say of tables and clusters, in the words of the command: with its options.

use favor_tables::{Error, Remedy, Setting};

/// An error of `favor-tables`.
pub(crate) fn of_tables(error: &Error) -> String {
    match error {
        Error::Column { column, reason, remedy: Some(remedy) } => {
            format!("column '{column}' {reason}; {}", of_remedy(*remedy))
        }
        Error::Request { setting, reason } => match option(*setting) {
            Some(option) => format!("{option}: {reason}"),
            None => error.to_string(),
        },
        Error::Merge { what } => format!(
            "the models cannot be merged: their {what} differ; fit the second with --map-of the first"
        ),
        Error::NotMergeable => {
            "a logistic model needs all its rows at once: it cannot be merged, updated or subtracted \
             from; use --head ridge for that"
                .into()
        }
        other => other.to_string(),
    }
}

fn of_remedy(remedy: Remedy) -> String {
    match remedy {
        Remedy::Ignore => "leave it out with --ignore".into(),
        Remedy::DropMissing => "use --missing drop to skip such rows".into(),
        Remedy::DropOrFillMissing => "give --missing drop, mean or mark".into(),
        Remedy::NameTask => "give --classify or --regress".into(),
        Remedy::Regress => "did you mean --regress?".into(),
        other => other.to_string(),
    }
}

/// The option that a setting is given by.
fn option(setting: Setting) -> Option<&'static str> {
    Some(match setting {
        Setting::Query => "--sql",
        Setting::Columns => "--columns",
        Setting::Target => "--target",
        Setting::Weight => "--weight",
        Setting::Features => "--features",
        Setting::Bandwidth => "--bandwidth",
        Setting::Folds => "--folds",
        Setting::Prior => "--prior",
        Setting::Probabilities => "--proba",
        Setting::Head => "--head",
        Setting::Family => "--family",
        Setting::Interval => "--interval",
        Setting::Components => "--components",
        _ => return None,
    })
}

/// An error of `favor-cluster`; `scheduler` is the option that its address was given by.
#[cfg(feature = "cluster")]
pub(crate) fn of_cluster(error: &favor_cluster::Error, scheduler: &str) -> String {
    use favor_cluster::{Endpoint, Error};
    match error {
        Error::Tables(error) => of_tables(error),
        Error::Address { endpoint: Endpoint::Scheduler, .. } => format!("{scheduler}: {error}"),
        Error::Address { endpoint: Endpoint::Bind, .. } | Error::Listen { .. } => {
            format!("--bind: {error}")
        }
        Error::NoScheduler { address, why } => format!(
            "{scheduler}: no scheduler answers at {address} ({why}); start one with: favor cluster \
             scheduler --bind {address}"
        ),
        Error::NoExecutors { address } => format!(
            "{scheduler}: the scheduler at {address} has no executors; start some with: favor cluster \
             executor --scheduler {address}"
        ),
        Error::Unordered => format!(
            "{scheduler}: predictions come in no fixed order; give --keep with columns that tell the \
             rows apart, or --ordered"
        ),
        Error::NoCores => "--cores: give at least one".into(),
        Error::WorkFolder { .. } => format!("--work: {error}"),
        other => other.to_string(),
    }
}

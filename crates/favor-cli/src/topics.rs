//! What `favor help TOPIC` prints: subjects that several commands share.

use crate::failure::EXIT_CODES;
use favor::Family;
use std::fmt::Write;

/// A topic: its name, what it is about, and its text.
type Topic = (&'static str, &'static str, fn() -> String);

const TOPICS: &[Topic] = &[
    ("arrays", "files of queries, keys and values", || ARRAYS.to_owned()),
    ("environment", "variables and exit codes", environment),
    ("exact-keys", "--near, --routed and --global", || EXACT_KEYS.to_owned()),
    ("families", "--family: which random features there are", families),
    ("seeds", "what results depend on", || SEEDS.to_owned()),
    #[cfg(feature = "tables")]
    ("tables", "what fit, predict and the like read", || TABLES.to_owned()),
];

const ARRAYS: &str = "\
Arrays are .npy, .npz or .safetensors files of 16-, 32- or 64-bit floats. Where a file holds several
arrays, name one after a colon:

  favor inspect --queries qkv.npz:q --keys qkv.npz:k --values qkv.npz:v

Shapes, with queries and keys of the same number of columns and one value per key:

  tokens × columns                     inspect, near
  heads × tokens × columns             inspect, near, learn
  sequences × heads × tokens × columns inspect --maps, learn

inspect also reads .csv files of numbers.";

const EXACT_KEYS: &str = "\
Some keys can be attended exactly, and features estimate the rest. All share one normalisation, so
every exact key removes its part of the error:

  --near W       keys at most W tokens from the query
  --routed SxM   the M largest members of each of the S slots (features) that the query prefers
  --global N     N keys for every query: the first tokens, and those that the map estimates worst

Time and memory stay linear in the length. A routed key is worth more than a global one; start with
--near 16 --routed 4x8, and learn maps with the keys that they will be used with (favor learn).";

const SEEDS: &str = "\
Every random choice comes from --seed, which is 0 by default: the same seed gives the same result,
whatever the number of threads. Processors with other vector instructions may differ by rounding.

Samples of tables are drawn by a hash of each row, so neither the order of the rows nor the number
of machines changes them.";

#[cfg(feature = "tables")]
const TABLES: &str = "\
Tables are CSV, Parquet or Arrow files: names, globs or folders, all of one format. They may be
larger than memory. In CSV files the first line names the columns; empty fields and NaN are missing
values.
With --sql, a query with files as tables takes their place:

  favor fit 'logs/*.parquet' --target label --ignore id
  favor fit --sql \"select a, ln(b) as b, y from 'x.parquet' where a > 0\" --target y --classify

Numbers, booleans, dates, times and texts are columns to predict from; --columns chooses some, and
--ignore leaves some out.";

fn families() -> String {
    let mut text = "Families of random features, by the names that commands take:\n\n".to_owned();
    for family in Family::ALL {
        let sign = if family.is_positive() { "" } else { " (may be negative: not for attention)" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:12} {}{sign}", family.name(), family.title());
    }
    text + "\nbalanced is the default and the optimum of its class; favor inspect measures the error on your \
            data."
}

pub(crate) fn environment() -> String {
    format!(
        "Environment:\n  \
         FAVOR_DATA         folder that holds the data sets of favor reproduce\n  \
         FAVOR_SIMD         AVX-512, AVX2, NEON or portable: which instructions to use\n  \
         NO_COLOR           if set, disables colours\n  \
         RAYON_NUM_THREADS  threads of commands without --threads\n\n{EXIT_CODES}"
    )
}

/// The text of a topic.
pub(crate) fn text(name: &str) -> Option<String> {
    let (.., text) = TOPICS.iter().find(|(known, ..)| *known == name)?;
    Some(text() + "\n")
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|(name, ..)| *name)
}

/// The topics, one per line.
pub(crate) fn list() -> String {
    let lines = TOPICS.iter().map(|(name, about, _)| format!("\n  {name:12} {about}"));
    format!("Topics:{}", lines.collect::<String>())
}

//! The developer's commands. `cargo xtask help` lists them.

mod bench;
mod crates;
mod features;
mod lint;
mod package;
mod pages;
mod peers;
mod places;
mod python;
mod quotes;
mod site;
mod skips;
mod step;
mod store;
mod test;
mod versions;
mod wheel;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <command>

  test      all tests: of the Rust crates, of the outputs that documents quote, of the Python package
            (--only rust, quotes or python for a part of them; python3 is needed for some, and 5 GB)
  lint      format, lints, reference pages, minimum Rust versions, published crates, Python files
  features  every crate without features and with each one alone
  package   what users get: archives of the crates, not compiled, and the Python wheel with its tests
            (crates or wheel for one of them; the wheel needs python3 and 5 GB)
  quotes    write the outputs that the documents quote again
  peers     compare with public implementations, write docs/peers.md (needs python3 and 6 GB)
  bench     compare the speed with PyTorch, JAX, NumPy and scikit-learn, write docs/benchmarks.md
            (--quick for short lengths only; needs python3 and 6 GB)
  bench tables
            compare fits and predictions of tables with scikit-learn, write docs/benchmarks-tables.md
            (--rows N --scaling for a short one; needs python3 and 3 GB)
  bench nn
            compare training steps of a BERT with PyTorch, write docs/benchmarks-nn.md
            (--rounds N; needs python3 and 6 GB)
  bench python
            what attention from Python costs over the engine alone (needs python3 and 5 GB)
  bench quality
            error against time on heads of a MiniLM, ours and peers, write docs/benchmarks-quality.md
            (needs python3, 6 GB and FAVOR_DATA)
  site      the documents as a site, in the target directory or in --out FOLDER
            (--check opens every page in Chromium, which it installs if it is run by root)
  help      this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["test", ref more @ ..] => test::run(more),
        ["lint"] => lint::run(),
        ["features"] => features::run(),
        ["package", ref more @ ..] => package::run(more),
        ["quotes"] => quotes::rewrite(),
        ["peers"] => peers::run(),
        ["bench", ref more @ ..] => bench::run(more),
        ["site", ref more @ ..] => site::run(more),
        ["help" | "--help" | "-h"] | [] => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err(format!("unknown command '{}'\n\n{HELP}", words.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("\nerror: {reason}");
            ExitCode::FAILURE
        }
    }
}

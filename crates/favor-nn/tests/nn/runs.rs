//! Whole runs on small files: fine-tuning, pretraining, the grid; stopped and gone on with.

use crate::common::{fixture, generator};
use favor::Redraw;
use favor_io::progress::Tick;
use favor_nn::run::{
    ConvertOptions, FinetuneRequest, GlueRequest, How, PretrainRequest, TuningOptions, Watch,
    finetune, glue, plan, pretrain,
};
use favor_nn::task::Glue;
use favor_nn::{Attention, Error, Family, LayerOptions};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sentences about cats and dogs, by label.
fn task(path: &Path) {
    let mut text = "sentence\tlabel\n".to_owned();
    for i in 0..80 {
        let (animal, label) = [("cat", "feline"), ("dog", "canine")][i % 2];
        let rest = ["sat on the mat .", "ran fast !", "jump", "and not slow ?"][i / 2 % 4];
        text += &format!("the {animal} {rest}\t{label}\n");
    }
    fs::write(path, text).unwrap();
}

fn request(folder: &Path, out: &str) -> FinetuneRequest {
    let task = folder.join("animals.tsv");
    FinetuneRequest::new(fixture("tiny-bert"), task.to_str().unwrap(), folder.join(out))
        .data(folder.to_path_buf())
        .attention(Some(
            LayerOptions::new(Attention::Features(Family::Balanced), 16).redraw(Redraw::Every(5)),
        ))
        .options(TuningOptions::default().epochs(12).batch(8).rate(5e-3).length(16))
}

/// A run that is stopped when it has made so many steps.
fn stopped_at<T>(
    step: u64,
    work: impl FnOnce(Watch<'_>) -> favor_nn::Result<T>,
) -> favor_nn::Result<T> {
    let stop = AtomicBool::new(false);
    let listener = |tick: Tick<'_>| stop.store(tick.done >= step, Ordering::Relaxed);
    work(Watch::new(&listener, &stop))
}

fn weights(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("model.safetensors")).unwrap()
}

#[test]
fn finetuning_learns_and_goes_on() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    task(&folder.path().join("animals.tsv"));
    let whole = request(folder.path(), "whole");
    let found = stopped_at(u64::MAX, |w| finetune(&whole, w)).unwrap();
    assert_eq!(found.score(), 1.0, "{:?}", found.scores);
    assert_eq!(found.scores.len(), 12);
    let parts = request(folder.path(), "parts");
    let Err(Error::Stopped { step, checkpoint, .. }) = stopped_at(13, |w| finetune(&parts, w))
    else {
        panic!()
    };
    assert_eq!((step, checkpoint.exists()), (13, true));
    assert!(!parts.out.join("model.safetensors").exists());
    let other = parts.clone().options(parts.options.rate(1e-3));
    let stop = AtomicBool::new(false);
    let watch = Watch::new(&favor_io::progress::silent, &stop);
    let message = finetune(&other, watch).unwrap_err().to_string();
    assert!(message.contains("other settings"), "{message}");
    stopped_at(u64::MAX, |w| finetune(&parts, w)).unwrap();
    assert_eq!(weights(&whole.out), weights(&parts.out));
    assert!(!checkpoint.exists() && parts.out.join("vocab.txt").exists());
    // What was learned is there to go on from.
    let again = request(folder.path(), "again")
        .model(whole.out.clone())
        .options(whole.options.epochs(1).rate(1e-9));
    assert_eq!(stopped_at(u64::MAX, |w| finetune(&again, w)).unwrap().score(), 1.0);
}

#[test]
fn pretraining_learns_and_goes_on() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let line = "the cat sat on the mat . a dog ran fast , but not the cat !\n";
    fs::write(folder.path().join("a.txt"), line.repeat(200)).unwrap();
    let request = |out: &str, shape| {
        PretrainRequest::new(folder.path(), fixture("tiny-bert"), folder.path().join(out))
            .shape(shape)
            .attention(LayerOptions::new(Attention::Features(Family::Sde), 32))
            .steps(400)
            .length(16)
            .rate(1e-2)
    };
    let whole = request("whole", Some([32, 2, 2]));
    let found = stopped_at(u64::MAX, |w| pretrain(&whole, w)).unwrap();
    // Who knows only how often each token of the line comes has a loss of 2.56.
    assert!(found.loss < 2.56, "{found:?}");
    let parts = request("parts", Some([32, 2, 2]));
    let stopped = stopped_at(70, |w| pretrain(&parts, w));
    assert!(matches!(stopped, Err(Error::Stopped { step: 70, .. })));
    stopped_at(u64::MAX, |w| pretrain(&parts, w)).unwrap();
    assert_eq!(weights(&whole.out), weights(&parts.out));
    let warm = request("warm", None).steps(5);
    stopped_at(u64::MAX, |w| pretrain(&warm, w)).unwrap();
}

/// The grid of a small RTE of one's own.
fn small_rte(folder: &Path) -> GlueRequest {
    let rte = folder.join("glue/RTE");
    fs::create_dir_all(&rte).unwrap();
    for (name, rows) in [("train", 24), ("dev", 8)] {
        let mut text = "index\tsentence1\tsentence2\tlabel\n".to_owned();
        for i in 0..rows {
            let label = ["entailment", "not_entailment"][i % 2];
            text += &format!("{i}\tthe cat sat .\tthe {} sat .\t{label}\n", ["cat", "dog"][i % 2]);
        }
        fs::write(rte.join(format!("{name}.tsv")), text).unwrap();
    }
    GlueRequest::new(fixture("tiny-bert"), folder, folder.join("out"))
        .tasks(vec![Glue::Rte])
        .variants(vec![Attention::Exact.into(), Attention::Features(Family::Ge).into()])
        .features(vec![4, 8])
        .seeds(2)
        .tuning(TuningOptions::default().batch(8).length(16))
        .epochs(vec![1])
        .convert(ConvertOptions::default().maps(0).values(2).weights(2).epochs(1).batch(8))
        .drop_in(false)
}

/// A search keeps the rates and epochs that it tried, wherever they were in the request.
#[test]
fn a_search_says_what_it_tried() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let request = small_rte(folder.path())
        .variants(vec![Attention::Exact.into()])
        .seeds(1)
        .rates(vec![1e-4, 3e-4])
        .epochs(vec![2, 1]);
    let found = stopped_at(u64::MAX, |w| glue(&request, w)).unwrap();
    let searched = |rate, epochs| How::Search { rate, epochs };
    let wanted = [searched(1e-4, 2), searched(1e-4, 1), searched(3e-4, 2), searched(3e-4, 1)];
    let hows: Vec<How> = found.cells.iter().map(|(cell, ..)| cell.how).collect();
    assert_eq!((&hows[..4], &hows[4..]), (&wanted[..], &[How::Convert][..]));
    assert!(request.out.join("cells/rte-search-0.0003-1.json").exists());
    let table = fs::read_to_string(request.out.join("glue.csv")).unwrap();
    assert!(table.contains(",search-0.0003-1,0,0,"), "{table}");
}

/// The grid is planned, stopped, gone on with, and not run twice.
#[test]
fn the_grid_goes_on() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let request = small_rte(folder.path());
    let planned = |done: usize, ahead: usize| {
        let found = stopped_at(u64::MAX, |w| plan(&request, w)).unwrap();
        let open = found.ahead.iter().map(|(_, count, _)| count).sum::<usize>();
        assert_eq!((found.done, open), (done, ahead));
    };
    planned(0, 6);
    let calls = AtomicBool::new(false);
    let stop = AtomicBool::new(false);
    // Stopped within a conversion.
    let listener = |tick: Tick<'_>| {
        stop.store(tick.what.contains("(2 of 6)") && tick.done == 2, Ordering::Relaxed);
        calls.store(true, Ordering::Relaxed);
    };
    let found = glue(&request, Watch::new(&listener, &stop));
    assert!(matches!(found, Err(Error::Stopped { step: 2, .. })), "{found:?}");
    // The exact models of both seeds come first.
    planned(2, 4);
    let first = stopped_at(u64::MAX, |w| glue(&request, w)).unwrap();
    assert_eq!(first.cells.len(), 6);
    planned(6, 0);
    calls.store(false, Ordering::Relaxed);
    let listener = |_: Tick<'_>| calls.store(true, Ordering::Relaxed);
    let off = AtomicBool::new(false);
    let second = glue(&request, Watch::new(&listener, &off)).unwrap();
    assert_eq!(first, second);
    assert!(!calls.load(Ordering::Relaxed), "a cell was run again");
    let table = fs::read_to_string(request.out.join("glue.md")).unwrap();
    assert!(table.contains("| GE (FAVOR++) | 8 |") && table.contains("±"), "{table}");
    assert_eq!(fs::read_to_string(request.out.join("glue.csv")).unwrap().lines().count(), 7);
    // A result of other settings is none of this grid.
    for other in [request.clone().rates(vec![2e-4]), request.clone().model(folder.path().into())] {
        let refused = stopped_at(u64::MAX, |w| glue(&other, w)).unwrap_err().to_string();
        assert!(refused.contains("other settings"), "{refused}");
    }
}

#[test]
fn attention_is_replaced_without_training() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let pairs = folder.path().join("glue/STS-B");
    fs::create_dir_all(&pairs).unwrap();
    let texts =
        ["the cat sat .", "the cat sat on the mat .", "a dog ran fast !", "the dog and a cat"];
    for name in ["train", "dev"] {
        let mut text = "a\tb\tc\td\te\tf\tg\tsentence1\tsentence2\tscore\n".to_owned();
        for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
            let (left, right, score) = (texts[i], texts[j], 5 * usize::from(i == j));
            text += &format!("{i}\t\t\t\t\t\t\t{left}\t{right}\t{score}\n");
        }
        fs::write(pairs.join(format!("{name}.tsv")), text).unwrap();
    }
    let request = GlueRequest::new(fixture("tiny-bert"), folder.path(), folder.path().join("out"))
        .tasks(vec![])
        .variants(vec![Attention::Exact.into(), Attention::Features(Family::Balanced).into()])
        .features(vec![4, 64])
        .seeds(2);
    let found = stopped_at(u64::MAX, |w| glue(&request, w)).unwrap();
    assert_eq!(found.cells.len(), 6);
    // Texts that are the same have the same vector whatever the attention, and those pairs alone are
    // alike: a correlation of 0.75 with the ranks 1 to 16, but for ties.
    assert!(found.cells.iter().all(|(_, found, _)| found.score > 0.7), "{found:?}");
    assert!(found.to_markdown().contains("STS-B drop-in (Spearman)"));
    let nothing = request.drop_in(false);
    let refused = stopped_at(u64::MAX, |w| glue(&nothing, w)).unwrap_err().to_string();
    assert!(refused.contains("tasks"), "{refused}");
}

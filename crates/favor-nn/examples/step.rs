//! Times training steps of a BERT: `step LENGTH BATCH ATTENTION FEATURES`, seconds of the best step out.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use favor_nn::bert::{Bert, BertConfig};
use favor_nn::text::Batch;
use favor_nn::train::{AdamOptions, Schedule, Trainer};
use favor_nn::{Attention, LayerOptions};
use std::time::Instant;

/// What the command allocates with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The shape of MiniLM: 6 layers of width 384, 12 heads.
fn config(length: usize) -> BertConfig {
    BertConfig::small(30522, 384, 6, 12).max_position_embeddings(length.max(512))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [length, batch, attention, features] = &arguments[..] else {
        return Err("give LENGTH BATCH ATTENTION FEATURES".into());
    };
    let (length, batch): (usize, usize) = (length.parse()?, batch.parse()?);
    let options = LayerOptions::new(attention.parse::<Attention>()?, features.parse()?);
    let device = Device::flex().autodiff();
    device.seed(0);
    let config = config(length);
    let model = Bert::new(&config, options, &device)?.with_classifier(&config, 2, &device);
    let schedule = Schedule::new(1000, 1e-5).warmup(10);
    let mut trainer = Trainer::new(model, schedule, AdamOptions::default(), 0)?;
    let token = |i: usize| (1000 + 7919 * i % 29000) as u32;
    let texts: Vec<Vec<u32>> =
        (0..batch).map(|b| (0..length).map(|i| token(b * length + i)).collect()).collect();
    let texts = Batch::new(texts)?;
    let labels = Tensor::<1, Int>::from_data(
        TensorData::new((0..batch as i64).map(|b| b % 2).collect(), [batch]),
        &device,
    );
    let mut step = || -> favor_nn::Result<f64> {
        let start = Instant::now();
        trainer.step(|model| {
            let loss = CrossEntropyLossConfig::new().init(&device);
            Ok(loss.forward(model.classify(&texts)?, labels.clone()))
        })?;
        Ok(start.elapsed().as_secs_f64())
    };
    step()?;
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        best = best.min(step()?);
    }
    println!("{best:.4}");
    Ok(())
}

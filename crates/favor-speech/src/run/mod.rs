//! What the commands do: they take plain data and return a report.

mod listen;
mod nst;
mod options;
mod replace;
mod reproduce;
mod train;

pub use listen::{EvaluateRequest, Evaluated, Spoken, TranscribeRequest, evaluate, transcribe};
pub use nst::{Generation, NstRequest, nst};
pub use options::{Size, TrainOptions};
pub use reproduce::{Mode, SpeechCell, SpeechReport, SpeechRequest, plan, reproduce};
pub use train::{Epoch, TrainRequest, Trained, train};

use burn::tensor::Device;

/// Where everything is computed.
fn device() -> Device {
    Device::flex()
}

//! What the commands do: plain data in, a report out.

mod asr_listen;
mod asr_nst;
mod asr_speech;
mod asr_train;
mod dropin;
mod embed;
mod finetune;
mod glue;
mod grid;
mod pretrain;
mod session;

pub use asr_listen::{EvaluateRequest, Evaluated, Spoken, TranscribeRequest, evaluate, transcribe};
pub use asr_nst::{Generation, NstRequest, nst};
pub use asr_speech::{Mode, SpeechCell, SpeechReport, SpeechRequest, plan_speech, speech};
pub use asr_train::{AsrOptions, AsrRequest, Epoch, Size, Trained, train_asr};
pub use embed::{EmbedRequest, Embedded, embed};
pub use finetune::{FineTuned, FinetuneRequest, TuningOptions, finetune};
pub use glue::{Cell, GlueReport, GlueRequest, glue, plan};
pub use grid::Plan;
pub use pretrain::{PretrainRequest, Pretrained, pretrain};
pub use session::Watch;

use burn::tensor::Device;

/// Where everything is computed.
fn device() -> Device {
    Device::flex()
}

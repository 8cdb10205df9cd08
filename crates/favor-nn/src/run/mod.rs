//! What the commands do: plain data in, a report out.

mod dropin;
mod embed;
mod finetune;
mod glue;
pub mod grid;
mod pretrain;
mod session;

pub use embed::{EmbedRequest, Embedded, embed};
pub use finetune::{FineTuned, FinetuneRequest, TuningOptions, finetune};
pub use glue::{Cell, GlueReport, GlueRequest, glue, plan};
pub use pretrain::{PretrainRequest, Pretrained, pretrain};
pub use session::{Session, Watch};

use burn::tensor::Device;

/// Where everything is computed.
fn device() -> Device {
    Device::flex()
}

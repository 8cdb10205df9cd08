//! What the commands do: plain data in, a report out.

mod convert;
mod embed;
mod finetune;
mod glue;
pub mod grid;
mod pretrain;
mod session;

pub use convert::{
    ConvertOptions, ConvertRequest, Converted, Distance, Source, StageReport, convert,
};
pub use embed::{EmbedRequest, Embedded, embed};
pub use finetune::{FineTuned, FinetuneRequest, TuningOptions, finetune};
pub use glue::{
    Cell, Found, GlueReport, GlueRequest, How, Variant, glue, glue_cell, glue_in_processes, plan,
};
pub use pretrain::{PretrainRequest, Pretrained, pretrain};
pub use session::{Session, Watch};

use burn::tensor::Device;

/// Where everything is computed.
fn device() -> Device {
    Device::flex()
}

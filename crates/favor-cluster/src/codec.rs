//! Our functions as bytes, with the version of their code, inside the plans that the processes of a
//! cluster exchange. Everything else is Ballista's.

use crate::message::{Message, mark};
use ballista_core::serde::{BallistaLogicalExtensionCodec, BallistaPhysicalExtensionCodec};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, Extension, LogicalPlan, ScalarUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use favor_tables::{
    WIRE_VERSION, aggregate_from_bytes, aggregate_to_bytes, scalar_from_bytes, scalar_to_bytes,
};
use std::sync::Arc;

const MAGIC: &[u8] = b"favor";

/// The version of the functions: that of the package, and that of the byte format of the functions
/// and their states.
pub fn version() -> String {
    format!("{}-{WIRE_VERSION}", env!("CARGO_PKG_VERSION"))
}

/// Encodes and decodes our functions.
#[derive(Debug)]
pub struct Codec {
    /// Who decodes, for messages.
    role: &'static str,
    version: String,
    logical: BallistaLogicalExtensionCodec,
    physical: BallistaPhysicalExtensionCodec,
}

impl Codec {
    /// The codec of a process, as in "scheduler".
    pub fn new(role: &'static str) -> Self {
        Self::of_version(role, &version())
    }

    /// The codec of a process of another build, for tests.
    #[doc(hidden)]
    pub fn of_version(role: &'static str, version: &str) -> Self {
        let (logical, physical) = Default::default();
        Self { role, version: version.into(), logical, physical }
    }

    /// Other functions have no bytes: they are found by name.
    fn encode(&self, function: Option<Vec<u8>>, buffer: &mut Vec<u8>) {
        let Some(bytes) = function else { return };
        buffer.extend(MAGIC);
        buffer.push(self.version.len().min(255) as u8);
        buffer.extend(self.version.bytes().take(255));
        buffer.extend(bytes);
    }

    /// The bytes of a function, after its version was checked.
    fn decode<'a>(&self, name: &str, buffer: &'a [u8]) -> Result<&'a [u8]> {
        let damaged = || refusal(format!("the function '{name}' arrived damaged"));
        let rest = buffer.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let (length, rest) = rest.split_first().ok_or_else(damaged)?;
        let (version, rest) = rest.split_at_checked(*length as usize).ok_or_else(damaged)?;
        if version != self.version.as_bytes() {
            return Err(refusal(format!(
                "the {} has the functions of favor {}, but '{name}' was sent by favor {}; run one \
                 version of favor everywhere",
                self.role,
                self.version,
                String::from_utf8_lossy(version),
            )));
        }
        Ok(rest)
    }

    fn scalar(&self, name: &str, buffer: &[u8]) -> Result<Arc<ScalarUDF>> {
        let function = scalar_from_bytes(name, self.decode(name, buffer)?);
        function.map(Arc::new).map_err(|e| refusal(e.to_string()))
    }

    fn aggregate(&self, name: &str, buffer: &[u8]) -> Result<Arc<AggregateUDF>> {
        let function = aggregate_from_bytes(name, self.decode(name, buffer)?);
        function.map(Arc::new).map_err(|e| refusal(e.to_string()))
    }
}

fn refusal(reason: String) -> DataFusionError {
    DataFusionError::Execution(mark(&Message::Line(reason)))
}

impl LogicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[LogicalPlan],
        context: &TaskContext,
    ) -> Result<Extension> {
        self.logical.try_decode(buf, inputs, context)
    }

    fn try_encode(&self, node: &Extension, buf: &mut Vec<u8>) -> Result<()> {
        self.logical.try_encode(node, buf)
    }

    fn try_decode_table_provider(
        &self,
        buf: &[u8],
        table: &TableReference,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        self.logical.try_decode_table_provider(buf, table, schema, context)
    }

    fn try_encode_table_provider(
        &self,
        table: &TableReference,
        node: Arc<dyn TableProvider>,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        self.logical.try_encode_table_provider(table, node, buf)
    }

    fn try_decode_file_format(
        &self,
        buf: &[u8],
        context: &TaskContext,
    ) -> Result<Arc<dyn FileFormatFactory>> {
        self.logical.try_decode_file_format(buf, context)
    }

    fn try_encode_file_format(
        &self,
        buf: &mut Vec<u8>,
        node: Arc<dyn FileFormatFactory>,
    ) -> Result<()> {
        self.logical.try_encode_file_format(buf, node)
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        self.scalar(name, buf)
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.encode(scalar_to_bytes(node), buf);
        Ok(())
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        self.aggregate(name, buf)
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.encode(aggregate_to_bytes(node), buf);
        Ok(())
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.physical.try_decode(buf, inputs, context, converter)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        self.physical.try_encode(node, buf, converter)
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        self.scalar(name, buf)
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.encode(scalar_to_bytes(node), buf);
        Ok(())
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        self.aggregate(name, buf)
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.encode(aggregate_to_bytes(node), buf);
        Ok(())
    }
}

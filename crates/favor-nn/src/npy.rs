//! Matrices as NumPy files.

/// The bytes of a NumPy file of so many rows and columns in `f32`.
pub(crate) fn matrix<'a>(
    rows: usize,
    columns: usize,
    values: impl Iterator<Item = &'a f32>,
) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    // Magic, version and length are 10 bytes; the whole is a multiple of 64 and ends a line.
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(values.flat_map(|v| v.to_le_bytes()));
    out
}

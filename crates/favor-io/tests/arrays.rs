//! Files of every kind are read back number by number, and broken ones are refused with words.

use favor_io::arrays::{npy_bytes, read, read_sequences, read_spec, split_spec};
use favor_io::{HeadArrays, Problem, Stack};
use half::{bf16, f16};
use safetensors::tensor::{Dtype, TensorView};
use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

const SIX: [f64; 6] = [1.0, -2.0, 3.5, 4.0, -5.25, 6.0];
const COUNTS: [f64; 6] = [1.0, 2.0, 3.0, 100.0, 101.0, 102.0];

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The message for a file, which must name it.
    fn refusal(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        refusal(&self.file(name, bytes), None)
    }
}

fn refusal(path: &Path, name: Option<&str>) -> String {
    let message = read(path, name).expect_err("this file should be refused").to_string();
    assert!(message.starts_with(&path.display().to_string()), "{message}");
    message
}

fn npy_with(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    let length = header.len() as u32;
    let wide = length.to_le_bytes();
    bytes.extend(if version == 1 { &wide[..2] } else { &wide[..] });
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let header =
        format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}  \n");
    npy_with(1, &header, data)
}

fn npz(entries: &[(&str, Vec<u8>)], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        let options = SimpleFileOptions::default().compression_method(method);
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn le64(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn two_by_three(stack: &Stack) -> Vec<f64> {
    assert_eq!(stack.heads().len(), 1);
    assert_eq!(stack.heads()[0].shape(), (2, 3));
    assert!(!stack.has_head_axis());
    stack.heads()[0].as_slice().to_vec()
}

#[test]
fn npy_of_every_type_and_byte_order() {
    let folder = Folder::new();
    macro_rules! case {
        ($letters:literal, $number:ty, $values:expr, $from:expr) => {
            let numbers: Vec<$number> = $values.iter().map(|v| $from(*v)).collect();
            let little: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            let big: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
            for (order, data) in [('<', little), ('>', big)] {
                let descr = format!("{order}{}", $letters);
                let path = folder.file("a.npy", npy(&descr, false, "(2, 3)", &data));
                assert_eq!(two_by_three(&read(&path, None).unwrap()), $values, "{descr}");
            }
        };
    }
    case!("f2", f16, SIX, f16::from_f64);
    case!("f4", f32, SIX, |v: f64| v as f32);
    case!("f8", f64, SIX, |v: f64| v);
    let signed = COUNTS.map(|v| -v);
    case!("i1", i8, signed, |v: f64| v as i8);
    case!("i2", i16, signed, |v: f64| v as i16);
    case!("i4", i32, signed, |v: f64| v as i32);
    case!("i8", i64, signed, |v: f64| v as i64);
    case!("u1", u8, COUNTS.map(|v| v + 100.0), |v: f64| v as u8);
    case!("u2", u16, COUNTS.map(|v| v + 60_000.0), |v: f64| v as u16);
    case!("u4", u32, COUNTS.map(|v| v + 4e9), |v: f64| v as u32);
    case!("u8", u64, COUNTS.map(|v| v + 9e15), |v: f64| v as u64);
    let path = folder.file("a.npy", npy("|u1", false, "(2, 3)", &[1, 2, 3, 4, 5, 255]));
    assert_eq!(two_by_three(&read(&path, None).unwrap())[5], 255.0);
}

#[test]
fn npy_that_we_write() {
    let folder = Folder::new();
    // NumPy wants the numbers to begin at a multiple of 64 bytes.
    for columns in [1, 10, 100, 1000, 10_000] {
        let bytes = npy_bytes(1, columns, &vec![1.5; columns]);
        assert_eq!((bytes.len() - 4 * columns) % 64, 0);
    }
    let values: Vec<f32> = SIX.iter().map(|v| *v as f32).collect();
    let path = folder.file("a.npy", npy_bytes(2, 3, &values));
    assert_eq!(two_by_three(&read(&path, None).unwrap()), SIX);
}

#[test]
fn npy_of_later_versions() {
    let folder = Folder::new();
    for version in [2, 3] {
        let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }\n";
        let path = folder.file("a.npy", npy_with(version, header, &le64(&SIX)));
        assert_eq!(two_by_three(&read(&path, None).unwrap()), SIX);
    }
}

#[test]
fn orders_and_dimensions() {
    let folder = Folder::new();
    // The entry at head h, row i, column j is 100h + 10i + j in both files.
    let (mut c, mut fortran) = (Vec::new(), Vec::new());
    for (h, i, j) in (0..24).map(|n| (n / 12, n / 4 % 3, n % 4)) {
        c.push((100 * h + 10 * i + j) as f64);
    }
    for (j, i, h) in (0..24).map(|n| (n / 6, n / 2 % 3, n % 2)) {
        fortran.push((100 * h + 10 * i + j) as f64);
    }
    for shape in ["(2, 3, 4)", "(1, 2, 3, 4)"] {
        for (values, is_fortran) in [(&c, false), (&fortran, true)] {
            let bytes = npy("<f8", is_fortran, shape, &le64(values));
            let stack = read(&folder.file("a.npy", bytes), None).unwrap();
            assert!(stack.has_head_axis());
            assert_eq!(stack.heads().len(), 2);
            for (h, head) in stack.heads().iter().enumerate() {
                assert_eq!(head.shape(), (3, 4));
                for (i, j) in (0..12).map(|n| (n / 4, n % 4)) {
                    assert_eq!(head[(i, j)], (100 * h + 10 * i + j) as f64, "{shape} {h} {i} {j}");
                }
            }
        }
    }
    let bytes = npy("<f8", true, "(2, 3)", &le64(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    let stack = read(&folder.file("a.npy", bytes), None).unwrap();
    assert_eq!(two_by_three(&stack), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

#[test]
fn other_shapes_and_types_are_refused() {
    let folder = Folder::new();
    for (shape, found) in [
        ("()", "shape []"),
        ("(6,)", "shape [6]"),
        ("(2, 3, 1, 1)", "shape [2, 3, 1, 1]"),
        ("(1, 1, 1, 2, 3)", "shape [1, 1, 1, 2, 3]"),
        ("(0, 6)", "empty: its shape is [0, 6]"),
        ("(2, 3, 0)", "empty"),
        ("(0, 2, 3, 1)", "empty"),
    ] {
        let message = folder.refusal("a.npy", npy("<f8", false, shape, &le64(&SIX)));
        assert!(message.contains(found), "{message}");
    }
    for descr in ["<c16", "|O", "<U3", "<V2", "|b1", "f8", "<f16", "", "é8", "|f8"] {
        let message = folder.refusal("a.npy", npy(descr, false, "(2, 3)", &le64(&SIX)));
        assert!(message.contains("numbers of type"), "{descr}: {message}");
    }
}

#[test]
fn npz_by_name() {
    let folder = Folder::new();
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let q = npy("<f8", false, "(2, 3)", &le64(&SIX));
        let k = npy("<f8", false, "(1, 2)", &le64(&[7.0, 8.0]));
        let one = folder.file("one.npz", npz(&[("q.npy", q.clone())], method));
        assert_eq!(two_by_three(&read(&one, None).unwrap()), SIX);
        let two = folder.file("two.npz", npz(&[("q.npy", q), ("k.npy", k)], method));
        assert_eq!(two_by_three(&read(&two, Some("q")).unwrap()), SIX);
        assert_eq!(read(&two, Some("k.npy")).unwrap().heads()[0].as_slice(), [7.0, 8.0]);
        let message = refusal(&two, None);
        assert!(message.contains("q, k"), "{message}");
        let message = refusal(&two, Some("v"));
        assert!(message.contains("\"v\"") && message.contains("q, k"), "{message}");

        let spec = format!("{}:k", two.display());
        assert_eq!(read_spec(&spec).unwrap().heads()[0].shape(), (1, 2));
        assert_eq!(split_spec(&spec), (two.clone(), Some("k")));
    }
    let colon = folder.file("a:b.csv", "1,2");
    assert!(read_spec(colon.to_str().unwrap()).is_ok());
    let missing = read_spec("/no/where.npz:q").unwrap_err();
    assert!(matches!(missing.problem, Problem::Missing));
    assert!(refusal(&colon, Some("q")).contains("without a name"));
}

#[test]
fn broken_npz_is_refused() {
    let folder = Folder::new();
    let q = npy("<f8", false, "(2, 3)", &le64(&SIX));
    let good = npz(&[("q.npy", q.clone())], CompressionMethod::Stored);
    for length in [4, 20, good.len() / 2, good.len() - 1] {
        folder.refusal("a.npz", &good[..length]);
    }
    // A changed number no longer agrees with the checksum.
    let mut changed = good.clone();
    let at = changed.windows(8).position(|w| w == 3.5_f64.to_le_bytes()).unwrap();
    changed[at] ^= 1;
    folder.refusal("a.npz", changed);
    let message = folder.refusal("a.npz", npz(&[], CompressionMethod::Stored));
    assert!(message.contains("no arrays"), "{message}");
    let foreign = npz(&[("q.npy", b"hello".to_vec())], CompressionMethod::Stored);
    assert!(folder.refusal("a.npz", foreign).contains("a.npz:q: "));
    let promise = npy("<f8", false, "(1000000, 1000000000)", &[0; 80]);
    let message = folder.refusal("a.npz", npz(&[("q.npy", promise)], CompressionMethod::Deflated));
    assert!(message.contains("ends early"), "{message}");
}

#[test]
fn safetensors_of_every_type() {
    let folder = Folder::new();
    let save = |dtype, shape: Vec<usize>, data: &[u8]| {
        let view = TensorView::new(dtype, shape, data).unwrap();
        safetensors::serialize([("q", view.clone()), ("k", view)], None).unwrap()
    };
    macro_rules! case {
        ($dtype:expr, $number:ty, $values:expr, $from:expr) => {
            let data: Vec<u8> =
                $values.iter().flat_map(|v| <$number>::to_le_bytes($from(*v))).collect();
            let path = folder.file("a.safetensors", save($dtype, vec![2, 3], &data));
            assert_eq!(two_by_three(&read(&path, Some("q")).unwrap()), $values);
        };
    }
    case!(Dtype::F16, f16, SIX, f16::from_f64);
    case!(Dtype::BF16, bf16, SIX, bf16::from_f64);
    case!(Dtype::F32, f32, SIX, |v: f64| v as f32);
    case!(Dtype::F64, f64, SIX, |v: f64| v);
    case!(Dtype::I8, i8, COUNTS, |v: f64| v as i8);
    case!(Dtype::I16, i16, COUNTS, |v: f64| v as i16);
    case!(Dtype::I32, i32, COUNTS, |v: f64| v as i32);
    case!(Dtype::I64, i64, COUNTS, |v: f64| v as i64);
    case!(Dtype::U8, u8, COUNTS, |v: f64| v as u8);
    case!(Dtype::U16, u16, COUNTS, |v: f64| v as u16);
    case!(Dtype::U32, u32, COUNTS, |v: f64| v as u32);
    case!(Dtype::U64, u64, COUNTS, |v: f64| v as u64);
    let path = folder.file("a.safetensors", save(Dtype::BOOL, vec![2, 3], &[1; 6]));
    assert!(refusal(&path, Some("q")).contains("numbers of type \"BOOL\""));
    assert!(refusal(&path, None).contains("k, q"));
    let good = save(Dtype::F64, vec![1, 2, 3], &le64(&SIX));
    let path = folder.file("a.safetensors", &good);
    assert!(read(&path, Some("k")).unwrap().has_head_axis());
    for length in [5, 8, 9, 40, good.len() - 1] {
        folder.refusal("a.safetensors", &good[..length]);
    }
    let promise = r#"{"q":{"dtype":"F64","shape":[1000000,1000000000],"data_offsets":[0,8]}}"#;
    let mut bytes = (promise.len() as u64).to_le_bytes().to_vec();
    bytes.extend(promise.as_bytes());
    bytes.extend([0; 8]);
    folder.refusal("a.safetensors", bytes);
}

#[test]
fn csv_with_and_without_heading() {
    let folder = Folder::new();
    for text in [
        "1,-2,3.5\n4,-5.25,6\n",
        "a,b,c\n1,-2,3.5\n4,-5.25,6",
        "\u{feff}\"a, or b\",c\r\n\r\n 1 , \"-2\", 3.5e0\r\n# a remark\r\n4,-5.25,6\r\n\r\n",
    ] {
        let path = folder.file("a.csv", text);
        assert_eq!(two_by_three(&read(&path, None).unwrap()), SIX, "{text:?}");
    }
    // A comma or a line end in quotes belongs to its cell, and no cell is ever cut in two.
    for text in [
        "\"a, 2, b\",c,d\n1,-2,3.5\n4,-5.25,6\n",
        "# a remark,\"as it comes\n1,-2,3.5\n4,-5.25,6\n",
        "a,\"two\nlines\",c\n\"1\",\"-2\",\"3.5\"\n4,-5.25,6\n",
    ] {
        let path = folder.file("a.csv", text);
        assert_eq!(two_by_three(&read(&path, None).unwrap()), SIX, "{text:?}");
    }
    for (text, wanted) in [
        ("a,b\n\"1,5\",2\n", "line 2, column 1: \"1,5\" is not a number"),
        ("\"a\nb\",c\n1,2\n3,x\n", "line 4, column 2: \"x\""),
        ("# a\n\n  # b, c\n1,2\r\n# d\r\n\r\n3,x\r\n", "line 7, column 2: \"x\""),
        ("1,2\n\n3,x\n", "line 3, column 2: \"x\" is not a number"),
        ("1,x\n3,4\n", "line 1, column 2"),
        ("a,b\nc,d\n", "line 2, column 1"),
        ("1,2\n3\n", "line 2 has 1 columns where the first line of numbers has 2"),
        ("1,2\n3,4,5\n", "line 2 has 3 columns"),
        ("1,2\n3,\n", "line 2, column 2: \"\""),
        ("1,2\nnan,4\n", "line 2, column 1: \"nan\" is not a finite number"),
        ("1,1e999\n", "line 1, column 2: \"1e999\" is not a finite number"),
        ("1;2\n3;4\n", "commas separate"),
        ("1,2\n3,\0\n", "line 2 is not text: it holds a NUL byte"),
        ("a,b\n", "empty"),
        ("\n\n", "empty"),
    ] {
        let message = folder.refusal("a.csv", text);
        assert!(message.contains(wanted), "{text:?}: {message}");
    }
    let message = folder.refusal("a.csv", b"1,2\n3,\xff\n");
    assert!(message.contains("line 2 is not text"), "{message}");
}

#[test]
fn entries_that_are_not_finite_are_named() {
    let folder = Folder::new();
    let mut values = [0.5; 24];
    values[12 + 2 * 4 + 3] = f64::NAN;
    let message = folder.refusal("a.npy", npy("<f8", false, "(2, 3, 4)", &le64(&values)));
    assert!(message.contains("NaN at head 1, row 2, column 3"), "{message}");
    let bytes: Vec<u8> =
        [1.0_f32, f32::NEG_INFINITY].iter().flat_map(|v| v.to_le_bytes()).collect();
    let message = folder.refusal("a.npy", npy("<f4", false, "(1, 2)", &bytes));
    assert!(message.contains("-inf at row 0, column 1"), "{message}");
}

#[test]
fn broken_npy_is_refused() {
    let folder = Folder::new();
    let good = npy("<f8", false, "(2, 3)", &le64(&SIX));
    for length in 1..good.len() {
        folder.refusal("a.npy", &good[..length]);
    }
    assert!(folder.refusal("a.npy", &good[..good.len() - 1]).contains("48 bytes of numbers, 47"));
    assert!(folder.refusal("a.npy", [&good[..], b"x"].concat()).contains("1 bytes follow"));
    for shape in ["(1000000, 1000000000)", "(4294967296, 4294967296, 4294967296)"] {
        folder.refusal("a.npy", npy("<f8", false, shape, &le64(&SIX)));
    }
    let mut huge_header = good.clone();
    huge_header[6] = 2;
    huge_header[8..12].copy_from_slice(&[255; 4]);
    assert!(folder.refusal("a.npy", huge_header).contains("header claims"));
    let mut version = good.clone();
    version[6] = 9;
    assert!(folder.refusal("a.npy", version).contains("version 9.0"));
    // Any single changed byte gives numbers or an error, never a panic.
    for at in 0..good.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            let _ = read(&folder.file("a.npy", bytes), None);
        }
    }
}

#[test]
fn files_that_are_something_else() {
    let folder = Folder::new();
    for name in ["a.npy", "a.npz", "a.safetensors", "a.csv"] {
        assert!(folder.refusal(name, b"").contains("the file is empty"));
        let noise: Vec<u8> = (0..999_u32).map(|i| (i * 7919 % 251) as u8).collect();
        folder.refusal(name, noise);
        assert!(refusal(&folder.0.path().join("none").join(name), None).contains("no such file"));
        let inside = folder.0.path().join("folders").join(name);
        fs::create_dir_all(&inside).unwrap();
        assert!(refusal(&inside, None).contains("folder"));
    }
    let good = npy("<f8", false, "(2, 3)", &le64(&SIX));
    let message = folder.refusal("a.npz", &good);
    assert!(message.contains("is named .npz but begins like a NumPy array"), "{message}");
    assert!(folder.refusal("a.csv", &good).contains("begins like a NumPy array"));
    assert!(folder.refusal("a.txt", &good).contains("\"txt\" is not known"));
    assert!(read(&folder.file("A.NPY", &good), None).is_ok());
}

#[test]
fn three_files_make_heads() {
    let folder = Folder::new();
    let array = |from: f64| -> Vec<u8> {
        npy(
            "<f8",
            false,
            "(2, 3, 2)",
            &le64(&std::array::from_fn::<f64, 12, _>(|i| from + i as f64)),
        )
    };
    let arrays = [("q.npy", array(0.0)), ("k.npy", array(100.0))];
    let path = folder.file("qk.npz", npz(&arrays, CompressionMethod::Stored));
    let values = folder.file("v.npy", npy("<f8", false, "(2, 3, 1)", &le64(&SIX)));
    let spec = |name: &str| format!("{}:{name}", path.display());
    let values = values.display().to_string();
    let heads = HeadArrays::read(&spec("q"), &spec("k"), Some(&values)).unwrap();
    assert_eq!((heads.heads().len(), heads.dim(), heads.has_values()), (2, 2, true));
    assert_eq!(heads.heads()[1].keys.row(0), [106.0, 107.0]);
    let sources = heads.sources().unwrap();
    assert!(sources.starts_with("queries ") && sources.contains("qk.npz:k"), "{sources}");
    let message = HeadArrays::read(&spec("q"), &values, None).unwrap_err().to_string();
    assert!(
        message.contains("v.npy (2 heads of 3 × 1)") && message.contains("columns"),
        "{message}"
    );
}

#[test]
fn real_files_if_they_are_there() {
    let Some(folder) = favor_testing::data("qkv") else { return };
    let paths = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let archives: Vec<PathBuf> =
        paths.filter(|p| p.extension().is_some_and(|e| e == "npz")).collect();
    assert!(!archives.is_empty(), "{} holds no .npz", folder.display());
    for path in archives {
        let queries = read_spec(&format!("{}:q", path.display())).unwrap();
        assert_eq!(queries.shape(), [12, 512, 32]);
    }
}

#[test]
fn arrays_of_sequences() {
    let folder = Folder::new();
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let shape = [2, 3, 2, 2];
    let entry = |s: usize, h: usize, i: usize, l: usize| (1000 * s + 100 * h + 10 * i + l) as f32;
    let (mut c, mut fortran) = (vec![], vec![]);
    for n in 0..24 {
        c.push(entry(n / 12, n / 4 % 3, n / 2 % 2, n % 2));
        fortran.push(entry(n % 2, n / 2 % 3, n / 6 % 2, n / 12));
    }
    let shape_text = "(2, 3, 2, 2)";
    let view = bytes(&c);
    let view = TensorView::new(Dtype::F32, shape.to_vec(), &view).unwrap();
    let tensors = safetensors::serialize([("k", view)], None).unwrap();
    let plain = npy("<f4", false, shape_text, &bytes(&c));
    let paths = [
        folder.file("c.npy", &plain),
        folder.file("f.npy", npy("<f4", true, shape_text, &bytes(&fortran))),
        folder.file("t.safetensors", tensors),
        folder.file("z.npz", npz(&[("q.npy", plain)], CompressionMethod::Deflated)),
    ];
    for path in paths {
        let array = read_sequences(&path.display().to_string()).unwrap();
        assert_eq!(array.shape(), shape);
        assert_eq!(array.head(1, 2).row(1), [1210.0, 1211.0], "{}", path.display());
        assert_eq!(array.head(0, 1).row(0), [100.0, 101.0], "{}", path.display());
    }
    let heads = folder.file("h.npy", npy("<f4", false, "(3, 2, 4)", &bytes(&c)));
    let spec = heads.display().to_string();
    assert_eq!(read_sequences(&spec).unwrap().shape(), [1, 3, 2, 4]);
    assert_eq!(read_sequences(&spec).unwrap().source(), Some(spec.as_str()));
    for (name, bytes) in [
        ("flat.npy", npy("<f4", false, "(6, 4)", &bytes(&c))),
        ("deep.npy", npy("<f4", false, "(1, 2, 3, 2, 2)", &bytes(&c))),
        ("table.csv", b"1,2\n3,4\n".to_vec()),
    ] {
        let path = folder.file(name, bytes).display().to_string();
        let message = read_sequences(&path).unwrap_err().to_string();
        assert!(
            message.contains(name) && message.contains("[heads, tokens, columns]"),
            "{message}"
        );
    }
}

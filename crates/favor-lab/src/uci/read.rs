//! Reading a set: numbers as they are, words as columns of zeros and ones.

use super::set::{Column, Set};
use favor::Matrix;
use favor_io::{InputError, Problem, arrays};
use std::path::Path;

/// The least number of rows of which the twentieth part is one.
const FEWEST: usize = 20;

/// The rows of a set before they are divided and scaled.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Examples {
    pub(super) vectors: Matrix<f64>,
    /// The class of each row, as its place in the sorted list of classes.
    pub(super) labels: Vec<usize>,
    pub(super) classes: Vec<String>,
}

/// Reads the file of a set in this folder.
pub(super) fn read(set: Set, folder: &Path) -> Result<Examples, InputError> {
    let path = folder.join(set.format().file);
    let read = || -> Result<Examples, Problem> { examples(set, &table(set, &path)?) };
    read().map_err(|problem| InputError { path: path.clone(), array: None, problem })
}

/// Numbers of lines and their cells, as many in each as the format has.
type Table = Vec<(usize, Vec<String>)>;

fn table(set: Set, path: &Path) -> Result<Table, Problem> {
    let format = set.format();
    let wanted = format.kinds().count() + 1;
    let mut table = Table::new();
    for (line, text) in arrays::lines(path)? {
        let cells: Vec<String> =
            format.separator.cells(&text).into_iter().map(str::to_owned).collect();
        let (found, separator) = (cells.len(), format.separator.name());
        if found != wanted {
            return Err(Problem::Columns { line, found, wanted, separator });
        }
        if let Some(empty) = cells.iter().position(String::is_empty) {
            let (column, cell) = (empty + 1, String::new());
            return Err(Problem::Cell { line, column, cell, wanted: "a value" });
        }
        table.push((line, cells));
    }
    if table.len() < FEWEST {
        return Err(Problem::FewRows { found: table.len(), wanted: FEWEST });
    }
    Ok(table)
}

fn examples(set: Set, table: &Table) -> Result<Examples, Problem> {
    let mut columns: Vec<Vec<f64>> = Vec::new();
    let mut last = 0;
    for (c, kind) in set.format().kinds().enumerate() {
        last = c + 1;
        match kind {
            Column::Ignored => {}
            Column::Number => {
                let numbers: Result<Vec<f64>, Problem> = table
                    .iter()
                    .map(|(line, cells)| arrays::number(&cells[c], *line, c + 1))
                    .collect();
                columns.push(numbers?);
            }
            Column::Word => {
                let (words, places) = sorted(table, c);
                let column = |w: usize| places.iter().map(move |p| f64::from(u8::from(*p == w)));
                columns.extend((0..words.len()).map(|w| column(w).collect::<Vec<f64>>()));
            }
        }
    }
    let (classes, labels) = sorted(table, last);
    let vectors = Matrix::from_fn(table.len(), columns.len(), |i, c| columns[c][i]);
    Ok(Examples { vectors, labels, classes })
}

/// The different words of a column in order, and the place of each row's word among them.
fn sorted(table: &Table, column: usize) -> (Vec<String>, Vec<usize>) {
    let mut words: Vec<String> = table.iter().map(|(_, cells)| cells[column].clone()).collect();
    words.sort();
    words.dedup();
    let place = |cells: &Vec<String>| words.binary_search(&cells[column]).unwrap_or(0);
    let places = table.iter().map(|(_, cells)| place(cells)).collect();
    (words, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(set: Set, text: &[u8]) -> Result<Examples, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(set.format().file), text).unwrap();
        read(set, folder.path()).map_err(|e| e.to_string())
    }

    fn repeated(line: &str, count: usize) -> String {
        format!("{line}\n").repeat(count)
    }

    #[test]
    fn words_become_columns_and_names_are_left_out() {
        let text = repeated("F,1,2,3,4,5,6,7,9", 12) + &repeated("M,1,2,3,4,5,6,8,10", 12);
        let read = written(Set::Abalone, text.as_bytes()).unwrap();
        assert_eq!(read.vectors.shape(), (24, 9));
        assert_eq!(read.vectors.row(0), [1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(read.vectors.row(23), [0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]);
        // Sorted as text.
        assert_eq!(read.classes, ["10", "9"]);
        assert_eq!((read.labels[0], read.labels[23]), (1, 0));
        let text = repeated("NAME  1  2 3 4   5 6 7 8  MIT", 20);
        assert_eq!(written(Set::Yeast, text.as_bytes()).unwrap().vectors.shape(), (20, 8));
    }

    #[test]
    fn line_ends_and_blank_lines_do_not_matter() {
        let plain = repeated("1,2,3,-4.5,0", 20);
        let other = plain.replace('\n', "\r\n") + "\r\n\r\n";
        let (plain, other) =
            (written(Set::Banknote, plain.as_bytes()), written(Set::Banknote, other.as_bytes()));
        assert_eq!(plain.unwrap(), other.unwrap());
    }

    #[test]
    fn refusals_name_file_line_and_column() {
        let good = repeated("1,2,3,4,0", 25);
        let cases: [(Vec<u8>, &[&str]); 9] = [
            (vec![], &["banknote.txt", "empty"]),
            (b"\n \n".to_vec(), &["holds 0 rows", "20"]),
            (repeated("1,2,3,4,0", 19).into(), &["holds 19 rows", "20"]),
            ((good.clone() + "1,2,3,4\n").into(), &["line 26 has 4 columns", "5", "commas"]),
            ((good.clone() + "1,2,3,4,5,0\n").into(), &["line 26 has 6 columns"]),
            (repeated("1\t2\t3\t4\t0", 25).into(), &["line 1 has 1 columns", "commas"]),
            ((good.clone() + "1,x,3,4,0\n").into(), &["line 26, column 2", "\"x\"", "number"]),
            ((good.clone() + "1,inf,3,4,0\n").into(), &["line 26, column 2", "finite"]),
            ((good.clone() + "1,2,3,4,\n").into(), &["line 26, column 5", "a value"]),
        ];
        for (text, parts) in cases {
            let message = written(Set::Banknote, &text).unwrap_err();
            assert!(parts.iter().all(|p| message.contains(p)), "{message:?} lacks {parts:?}");
            assert_eq!(message.lines().count(), 1);
        }
        let message = written(Set::Banknote, b"1,2,3,\xff,0\n").unwrap_err();
        assert!(message.contains("line 1 is not text"), "{message}");
        let message = written(Set::Banknote, b"\0\0\0\n").unwrap_err();
        assert!(message.contains("NUL"), "{message}");
        let folder = tempfile::tempdir().unwrap();
        let message = read(Set::Wifi, folder.path()).unwrap_err().to_string();
        assert!(message.contains("wifi.txt: there is no such file"), "{message}");
        std::fs::create_dir(folder.path().join("wifi.txt")).unwrap();
        let message = read(Set::Wifi, folder.path()).unwrap_err().to_string();
        assert!(message.contains("a folder"), "{message}");
    }
}

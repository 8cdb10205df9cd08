//! Text tables with aligned columns.

/// A table whose first column is text and whose other columns are numbers.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// For each column, the name of its group (may be empty) and its own name.
    columns: Vec<(String, String)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table whose first column has this name.
    pub fn new(first: &str) -> Self {
        Self { columns: vec![(String::new(), first.to_owned())], rows: vec![] }
    }

    /// Adds a column of numbers; neighbouring columns of one group share a heading.
    pub fn column(&mut self, group: impl Into<String>, name: impl Into<String>) {
        self.columns.push((group.into(), name.into()));
    }

    /// Adds a row with one cell per column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines of the table, each with `indent` before it.
    pub fn render(&self, indent: &str) -> String {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(c, (_, name))| {
                let cells = self.rows.iter().filter_map(|r| r.get(c)).map(|s| length(s));
                cells.fold(length(name), usize::max)
            })
            .collect();
        let spans = self.spans();
        // A group wider than its columns widens the last of them.
        for &(start, end) in &spans {
            let inside: usize = widths[start..end].iter().sum::<usize>() + 2 * (end - start - 1);
            widths[end - 1] += length(&self.columns[start].0).saturating_sub(inside);
        }
        let mut out = String::new();
        if self.columns.iter().any(|(group, _)| !group.is_empty()) {
            let cells: Vec<String> = spans
                .iter()
                .map(|&(start, end)| {
                    let inside = widths[start..end].iter().sum::<usize>() + 2 * (end - start - 1);
                    rule(&self.columns[start].0, inside)
                })
                .collect();
            line(&mut out, indent, &cells.join("  "));
        }
        let pad = |c: usize, text: &str| {
            let fill = " ".repeat(widths[c].saturating_sub(length(text)));
            if c == 0 { format!("{text}{fill}") } else { format!("{fill}{text}") }
        };
        let names: Vec<String> =
            self.columns.iter().enumerate().map(|(c, (_, name))| pad(c, name)).collect();
        line(&mut out, indent, &names.join("  "));
        for row in &self.rows {
            let cells: Vec<String> = row.iter().enumerate().map(|(c, t)| pad(c, t)).collect();
            line(&mut out, indent, &cells.join("  "));
        }
        out
    }

    /// Runs of neighbouring columns of one group.
    fn spans(&self) -> Vec<(usize, usize)> {
        let mut spans: Vec<(usize, usize)> = Vec::new();
        for (c, (group, _)) in self.columns.iter().enumerate() {
            match spans.last_mut() {
                Some((start, end)) if !group.is_empty() && self.columns[*start].0 == *group => {
                    *end = c + 1;
                }
                _ => spans.push((c, c + 1)),
            }
        }
        spans
    }
}

/// A group's name centred in a rule of the given width.
fn rule(name: &str, width: usize) -> String {
    if name.is_empty() {
        return " ".repeat(width);
    }
    let free = width.saturating_sub(length(name) + 2);
    let (left, right) = (free / 2, free - free / 2);
    if width >= length(name) + 2 {
        format!("{} {name} {}", "─".repeat(left), "─".repeat(right))
    } else {
        format!("{name:<width$}")
    }
}

fn line(out: &mut String, indent: &str, text: &str) {
    out.push_str(indent);
    out.push_str(text.trim_end());
    out.push('\n');
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("family");
        table.column("a group", "x");
        table.column("a group", "yy");
        table.column("", "z");
        table.row(vec!["pos".into(), "1".into(), "22".into(), "333".into()]);
        let text = table.render("");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, ["        a group", "family  x    yy    z", "pos     1    22  333"]);
    }
}

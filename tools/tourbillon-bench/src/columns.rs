//! Aligns text in columns.

/// The greatest width of a line of text.
pub(crate) const WIDTH: usize = 99;

/// Side of a column at which its cells are aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Formats rows as lines, with two spaces between columns. Every row has a cell for each column.
pub(crate) fn columns(align: &[Align], rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..align.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(align).zip(&widths).map(|((cell, align), &width)| match align {
            Align::Left => format!("{cell:width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text += &format!("  {}\n", line.trim_end());
    }
    text
}

/// Breaks text into lines at spaces. Lines after the first are indented.
pub(crate) fn wrap(text: &str) -> String {
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            wrapped += "\n ";
            column = 1;
        }
        if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped += word;
        column += length;
    }
    wrapped + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [["name", "value"], ["a", "1"], ["longer name", "12,345"]].map(|row| row.map(str::to_owned).to_vec());
        let expected = "  name          value\n  a                 1\n  longer name  12,345\n";
        assert_eq!(columns(&[Align::Left, Align::Right], &rows), expected);
    }

    #[test]
    fn long_text_is_broken_at_spaces() {
        let text = ["word"; 50].join(" ");
        let wrapped = wrap(&text);
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().count(), 50);
        assert_eq!(wrap("short"), "short\n");
    }
}

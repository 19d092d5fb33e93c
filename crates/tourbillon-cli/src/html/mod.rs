//! Writes a page that stands alone: one file, with its style and drawings inside, that needs no network and no script.
//!
//! The page is HTML and well-formed XML at once, so that a test can parse it without a browser.

mod style;

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file for a page, opened before the page is known, so that a path that cannot be written is found out at once.
pub(crate) struct PageFile {
    path: PathBuf,
    file: File,
}

impl PageFile {
    /// Opens or creates the file. Its old contents stay until [`write`](PageFile::write).
    ///
    /// # Errors
    /// Returns a sentence that names the path and the system's reason.
    pub(crate) fn open(path: &Path) -> Result<PageFile, String> {
        match OpenOptions::new().write(true).create(true).truncate(false).open(path) {
            Ok(file) => Ok(PageFile { path: path.to_owned(), file }),
            Err(error) => Err(refused(path, &error)),
        }
    }

    /// Replaces the contents of the file.
    ///
    /// # Errors
    /// Returns a sentence that names the path and the system's reason.
    pub(crate) fn write(mut self, page: &str) -> Result<PathBuf, String> {
        match self.replace(page) {
            Ok(()) => Ok(self.path),
            Err(error) => Err(refused(&self.path, &error)),
        }
    }

    fn replace(&mut self, page: &str) -> io::Result<()> {
        // A pipe or a terminal has no length and no position.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
            self.file.seek(SeekFrom::Start(0))?;
        }
        self.file.write_all(page.as_bytes())
    }
}

fn refused(path: &Path, error: &io::Error) -> String {
    format!("the page cannot be written to {}: {error}; choose another path for --html", path.display())
}

/// Returns a whole page with this title; `body` is markup.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(title),
        style::STYLE
    )
}

/// Escapes text for an element or a quoted attribute. Characters that XML does not allow become the replacement character.
pub(crate) fn escape(text: impl Display) -> String {
    let mut escaped = String::new();
    for character in text.to_string().chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns a section with a heading; `body` is markup.
pub(crate) fn section(id: &str, heading: &str, body: &str) -> String {
    format!("<section id=\"{id}\">\n<h2>{}</h2>\n{body}</section>\n", escape(heading))
}

/// Returns a list of names and values.
pub(crate) fn facts<'a>(facts: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let rows = facts.map(|(name, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value)));
    format!("<dl class=\"facts\">\n{}</dl>\n", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e9_text_cannot_become_markup() {
        assert_eq!(
            escape("a<b> & \"c\" 'd' \u{1b}[31m\u{0}"),
            "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39; \u{fffd}[31m\u{fffd}"
        );
        let page = page("</title><script>", &section("s", "<h>", ""));
        assert!(!page.contains("<script") && page.contains("&lt;/title&gt;"), "{page}");
    }

    #[test]
    fn e9_a_path_that_cannot_be_written_is_named_with_the_reason() {
        let folder = std::env::temp_dir();
        let Err(why) = PageFile::open(&folder) else { panic!("a folder is no file") };
        assert!(why.contains(&folder.display().to_string()) && why.contains("--html"), "{why}");
        assert!(PageFile::open(&folder.join("no such folder").join("report.html")).is_err());
    }

    #[test]
    fn e9_an_old_page_stays_until_the_new_one_is_written() {
        let path = std::env::temp_dir().join(format!("tourbillon-page-{}.html", std::process::id()));
        std::fs::write(&path, "a longer old page").unwrap();
        let file = PageFile::open(&path).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a longer old page");
        file.write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        std::fs::remove_file(path).unwrap();
    }
}

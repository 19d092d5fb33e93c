//! Writes a page that stands alone: one file, with its style and drawings inside, that needs no network and no script.
//!
//! The page is HTML and well-formed XML at once, so that a test can parse it without a browser.

mod style;

use std::fmt::Display;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file for a page, opened before the page is known, so that a path that cannot be written is found out at once.
///
/// The page is written to a file beside it, which then replaces it: a reader sees the old page or the new one, also if the program is
/// killed. A pipe or a terminal is written directly.
pub(crate) struct PageFile {
    path: PathBuf,
    file: File,
    replacement: Option<Replacement>,
}

/// A new file that takes the place of another when it is complete. Dropping it removes it, if it is still there.
struct Replacement {
    new: PathBuf,
    target: PathBuf,
}

impl PageFile {
    /// Opens the file, or one beside it. Its old contents stay until [`write`](PageFile::write).
    ///
    /// # Errors
    /// Returns a sentence that names the path and the system's reason.
    pub(crate) fn open(path: &Path) -> Result<PageFile, String> {
        PageFile::try_open(path).map_err(|error| refused(path, &error))
    }

    fn try_open(path: &Path) -> io::Result<PageFile> {
        let (target, old) = match std::fs::metadata(path) {
            Ok(metadata) => {
                // Also for a regular file, which this user may not be allowed to write.
                let file = OpenOptions::new().write(true).open(path)?;
                if !metadata.is_file() {
                    return Ok(PageFile { path: path.to_owned(), file, replacement: None });
                }
                // A symbolic link stays, and the file that it names is replaced.
                (path.canonicalize()?, Some(metadata))
            }
            Err(_) => (path.to_owned(), None),
        };
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
        let new = target.with_file_name(format!(".{name}.{}", std::process::id()));
        let file = create(&new, old.as_ref())?;
        let replacement = Some(Replacement { new, target });
        let page = PageFile { path: path.to_owned(), file, replacement };
        if let Some(old) = &old {
            adopt_owner_and_mode(&page.file, old)?;
        }
        Ok(page)
    }

    /// Replaces the contents of the file, and returns its path.
    ///
    /// # Errors
    /// Returns a sentence that names the path and the system's reason.
    pub(crate) fn write(mut self, page: &str) -> Result<PathBuf, String> {
        let written = self.file.write_all(page.as_bytes()).and_then(|()| match &self.replacement {
            Some(Replacement { new, target }) => std::fs::rename(new, target),
            None => Ok(()),
        });
        match written {
            Ok(()) => Ok(self.path),
            Err(error) => Err(refused(&self.path, &error)),
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After the rename it is not there.
        let _ = std::fs::remove_file(&self.new);
    }
}

/// Creates a file with the mode that every new file gets; if it replaces an old one, first for this user only.
fn create(path: &Path, old: Option<&Metadata>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if old.is_some() {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = old;
    options.open(path)
}

/// Gives the new file the owner of the old one, where the system lets this user do so, and its mode.
fn adopt_owner_and_mode(new: &File, old: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};

        // Before the mode, because a change of owner clears bits of it.
        let _not_permitted = fchown(new, Some(old.uid()), Some(old.gid()));
    }
    new.set_permissions(old.permissions())
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
        let folder = std::env::temp_dir().join(format!("tourbillon-page-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("report.html");
        std::fs::write(&path, "a longer old page").unwrap();
        let file = PageFile::open(&path).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a longer old page");
        file.write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        drop(PageFile::open(&path));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left behind");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn e9_a_page_that_is_replaced_keeps_its_mode_and_a_new_one_has_that_of_every_new_file() {
        use std::os::unix::fs::PermissionsExt;

        let folder = std::env::temp_dir().join(format!("tourbillon-mode-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let written = |path: &Path| PageFile::open(path).and_then(|file| file.write("page")).unwrap();
        for old in [0o600, 0o604, 0o640, 0o664, 0o666] {
            let path = folder.join("old.html");
            std::fs::write(&path, "old").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(old)).unwrap();
            assert_eq!(mode(&written(&path)), old, "{old:o}");
        }
        let other = folder.join("other");
        std::fs::write(&other, "").unwrap();
        assert_eq!(mode(&written(&folder.join("new.html"))), mode(&other), "as the umask says");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

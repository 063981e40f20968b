//! Which files are read and which are written: every picture under a folder, each with a thumbnail of its
//! own.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use walkdir::{DirEntry, WalkDir};

/// Why the pictures of a folder could not be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// There is no such folder.
    #[error("no folder {}: give a folder that holds JPEG or PNG pictures, or none for the photographs that come along", .0.display())]
    Missing(PathBuf),
    /// There is something of that name, but one cannot look for files in it.
    #[error("{} is not a folder: give the folder that holds it", .0.display())]
    NotAFolder(PathBuf),
    /// Thumbnails would lie between the pictures and be read as pictures the next time.
    #[error("{} is to be read and written at once: give another folder for the thumbnails", .0.display())]
    SameFolder(PathBuf),
    /// A folder below could not be listed.
    #[error("cannot read {}: {cause}; allow reading it or move it out of the folder", .path.display())]
    Unreadable {
        /// The folder or entry that could not be read.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The folder was read to the end and held nothing to do.
    #[error("no .jpg, .jpeg or .png file in {} or below it: give a folder that holds pictures", .0.display())]
    Empty(PathBuf),
}

/// Why a file or folder could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// A picture could not be read; whoever reports this names it.
    #[error("cannot read it: {0}; check that it is there, and that you may read it")]
    Read(io::Error),
    /// A file could not be written, or the folder above it not made.
    #[error("cannot write {}: {cause}; check that there is room, and that you may write there", .path.display())]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The folder for the thumbnails could not be made.
    #[error("cannot make the folder {}: {cause}; give another folder for the thumbnails", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// Returns every .jpg, .jpeg and .png file below `dir`, in any case and sorted by path, but none below `out`.
///
/// Links to files are followed, links to folders are not. A link that leads nowhere is listed, so that
/// reading it says what is wrong.
///
/// # Errors
/// When `dir` is missing, no folder, the same as `out`, or without pictures, or when any folder below cannot
/// be read: a summary over part of the pictures would look like one over all of them.
pub(crate) fn find_images(dir: &Path, out: &Path) -> Result<Vec<PathBuf>, FindError> {
    if !dir.exists() {
        return Err(FindError::Missing(dir.to_owned()));
    }
    if !dir.is_dir() {
        return Err(FindError::NotAFolder(dir.to_owned()));
    }
    // An `out` that does not exist yet holds nothing to keep away from.
    let out = fs::canonicalize(out).ok();
    let is_out = |path: &Path| out.is_some() && fs::canonicalize(path).ok() == out;
    if is_out(dir) {
        return Err(FindError::SameFolder(dir.to_owned()));
    }
    let mut images = Vec::new();
    let entries = WalkDir::new(dir).into_iter();
    for entry in entries.filter_entry(|entry| !(entry.file_type().is_dir() && is_out(entry.path()))) {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(dir).to_owned();
            let cause = error.into_io_error().expect("the other error is a loop of links, and links are not followed");
            FindError::Unreadable { path, cause }
        })?;
        if is_image(&entry) {
            images.push(entry.into_path());
        }
    }
    images.sort();
    if images.is_empty() { Err(FindError::Empty(dir.to_owned())) } else { Ok(images) }
}

fn is_image(entry: &DirEntry) -> bool {
    let file_type = entry.file_type();
    let is_file = file_type.is_file() || (file_type.is_symlink() && !entry.path().is_dir());
    let extension = entry.path().extension().unwrap_or_default();
    is_file && ["jpg", "jpeg", "png"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Returns where the thumbnail of `path` goes: its place below `dir`, below `out`, with `.jpg` added to the
/// name.
///
/// The name is added to and never shortened, so that no two pictures share a thumbnail: `a.png` becomes
/// `a.png.jpg` and `a.jpg` becomes `a.jpg.jpg`. The result is always below `out`, also for a `path` that is
/// not below `dir`.
pub(crate) fn thumbnail_path(out: &Path, dir: &Path, path: &Path) -> PathBuf {
    let below = path.strip_prefix(dir).unwrap_or(path);
    let below: PathBuf = below.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let mut name = OsString::from(below);
    name.push(".jpg");
    out.join(name)
}

/// Reads a whole file.
///
/// # Errors
/// When the file cannot be read.
pub(crate) async fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    tokio::fs::read(path).await.map_err(FileError::Read)
}

/// Writes a whole file, and the folders above it.
///
/// # Errors
/// When it cannot be written. Then there is no file: half a thumbnail would look like a damaged picture.
pub(crate) async fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let written = async {
        tokio::fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).await?;
        tokio::fs::write(path, bytes).await
    };
    let Err(cause) = written.await else { return Ok(()) };
    // That it cannot be removed either is of no use to anyone.
    let _ = tokio::fs::remove_file(path).await;
    Err(FileError::Write { path: path.to_owned(), cause })
}

/// Makes a folder, and those above it, unless it is there.
///
/// # Errors
/// When it cannot be made, for instance because a file has its name.
pub(crate) fn make_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|cause| FileError::Folder { path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pictures_share_a_thumbnail() {
        let (out, dir) = (Path::new("out"), Path::new("/in"));
        let thumbnail = |path: &str| thumbnail_path(out, dir, Path::new(path));
        assert_eq!(thumbnail("/in/a.jpg"), Path::new("out/a.jpg.jpg"));
        assert_eq!(thumbnail("/in/a.png"), Path::new("out/a.png.jpg"));
        assert_eq!(thumbnail("/in/b/a.jpg"), Path::new("out/b/a.jpg.jpg"));
        assert_eq!(thumbnail("/else/../a.jpg"), Path::new("out/else/a.jpg.jpg"));
    }

    #[test]
    fn pictures_are_found_in_any_case_and_below_but_not_in_the_output() {
        let dir = scratch("found");
        fs::create_dir_all(dir.join("sub/out")).expect("a temporary folder can be written");
        for name in ["b.JPG", "a.jpeg", "sub/c.Png", "sub/out/c.png.jpg", "notes.md", "jpg"] {
            fs::write(dir.join(name), b"").expect("a temporary folder can be written");
        }
        let found = find_images(&dir, &dir.join("sub/out")).expect("it holds three");
        assert_eq!(found, ["a.jpeg", "b.JPG", "sub/c.Png"].map(|name| dir.join(name)));
    }

    #[test]
    fn a_folder_without_pictures_is_named_with_what_to_do() {
        let dir = scratch("nothing");
        let error = |path: &Path| find_images(path, Path::new("out")).expect_err("nothing there").to_string();
        assert!(error(&dir.join("absent")).contains("absent: give a folder"), "{}", error(&dir.join("absent")));
        assert!(error(&dir).contains("nothing or below it: give a folder"), "{}", error(&dir));
        let same = find_images(&dir, &dir).expect_err("it would read its own thumbnails");
        assert!(same.to_string().contains("give another folder"), "{same}");
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("anabranch-thumbnails-{}", std::process::id())).join(name);
        fs::create_dir_all(&dir).expect("a temporary folder can be written");
        dir
    }
}

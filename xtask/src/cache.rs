//! The folder for what the tests need, and how a part of it comes to be.
//!
//! A part is built beside its place and renamed into it, with a stamp that says from which recipe:
//! an interrupted build leaves nothing that looks finished, a changed recipe builds anew.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// `${XDG_CACHE_HOME:-$HOME/.cache}/countersign`. `testkit` looks for the programs in the same place.
pub(crate) struct Cache {
    folder: PathBuf,
}

/// Held while parts are built: one builder at a time, whatever the number of checkouts.
#[must_use]
pub(crate) struct Builder<'a> {
    cache: &'a Cache,
    _lock: File,
}

impl Cache {
    pub(crate) fn of_the_user() -> Result<Self> {
        let base = env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
            .context("neither XDG_CACHE_HOME nor HOME is set: no cache folder")?;
        Ok(Self::at(base.join("countersign")))
    }

    fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Waits until no other process builds, and clears what interrupted builds left.
    pub(crate) fn builder(&self) -> Result<Builder<'_>> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot create {}", self.folder.display()))?;
        let path = self.folder.join("lock");
        let lock = File::create(&path)
            .and_then(|file| file.lock().map(|()| file))
            .with_context(|| format!("cannot lock {}", path.display()))?;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with(UNFINISHED_PREFIX)
            {
                fs::remove_dir_all(entry.path())
                    .with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        Ok(Builder {
            cache: self,
            _lock: lock,
        })
    }
}

impl Builder<'_> {
    /// A scratch folder that several parts share, such as a compiler's cache. It goes away with the builder.
    pub(crate) fn shared_scratch(&self, name: &str) -> Result<PathBuf> {
        let folder = self.cache.folder.join(SHARED_SCRATCH).join(name);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    /// Makes the part `name` unless it exists and was made from `recipe`. `make` gets an empty folder
    /// for the part and one for scratch, and has checked the result when it returns.
    pub(crate) fn ensure(
        &self,
        name: &str,
        recipe: &str,
        make: impl FnOnce(&Path, &Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let place = self.cache.part(name);
        if fs::read_to_string(place.join(STAMP)).is_ok_and(|stamp| stamp == recipe) {
            return Ok(place);
        }
        let unfinished = self.cache.folder.join(format!("{UNFINISHED_PREFIX}{name}"));
        let (part, scratch) = (unfinished.join("part"), unfinished.join("scratch"));
        for folder in [&part, &scratch] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let made = make(&part, &scratch)
            .and_then(|()| Ok(fs::write(part.join(STAMP), recipe)?))
            .and_then(|()| {
                if place.exists() {
                    fs::rename(&place, unfinished.join("replaced"))?;
                }
                Ok(fs::rename(&part, &place)?)
            });
        let cleared = fs::remove_dir_all(&unfinished);
        made.with_context(|| format!("cannot make {}", place.display()))?;
        cleared.with_context(|| format!("cannot remove {}", unfinished.display()))?;
        Ok(place)
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        // Mostly there is none; one that stays is cleared by the next builder.
        let _ = fs::remove_dir_all(self.cache.folder.join(SHARED_SCRATCH));
    }
}

const STAMP: &str = "stamp";
const UNFINISHED_PREFIX: &str = ".unfinished-";
const SHARED_SCRATCH: &str = ".unfinished-shared";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_made_once_per_recipe() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache"));
        let builder = cache.builder().unwrap();
        let write = |text: &'static str| {
            move |part: &Path, _: &Path| Ok(fs::write(part.join("file"), text)?)
        };
        let content = || fs::read_to_string(cache.part("tool").join("file")).unwrap();

        builder.ensure("tool", "v1", write("first")).unwrap();
        builder.ensure("tool", "v1", write("second")).unwrap();
        assert_eq!(content(), "first");
        builder.ensure("tool", "v2", write("third")).unwrap();
        assert_eq!(content(), "third");
        let left: Vec<_> = fs::read_dir(folder.path().join("cache"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with('.'))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_failed_build_keeps_the_old_part_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let builder = cache.builder().unwrap();
        builder
            .ensure("tool", "v1", |part, _| {
                Ok(fs::write(part.join("file"), "old")?)
            })
            .unwrap();
        let error = builder
            .ensure("tool", "v2", |part, _| {
                fs::write(part.join("file"), "half")?;
                anyhow::bail!("no network")
            })
            .unwrap_err();
        assert!(format!("{error:#}").contains("no network"));
        assert_eq!(
            fs::read_to_string(cache.part("tool").join("file")).unwrap(),
            "old"
        );
        assert!(!folder.path().join(".unfinished-tool").exists());
    }

    #[test]
    fn shared_scratch_lives_as_long_as_the_builder() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let builder = cache.builder().unwrap();
        let scratch = builder.shared_scratch("go").unwrap();
        fs::write(scratch.join("object"), "").unwrap();
        assert_eq!(builder.shared_scratch("go").unwrap(), scratch);
        assert!(scratch.join("object").exists());
        drop(builder);
        assert!(!scratch.exists());
    }

    #[test]
    fn what_an_interrupted_build_left_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".unfinished-tool/part");
        fs::create_dir_all(&left).unwrap();
        let _builder = Cache::at(folder.path().to_owned()).builder().map(|_| ());
        assert!(!left.exists());
    }
}

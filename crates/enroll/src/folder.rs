//! Folders that are held open while files are put into them. The folder may belong to somebody who is trusted with the files
//! and with nothing else: whatever they make of its entries meanwhile, we are not led elsewhere by it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, flock, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

/// An open folder.
pub(crate) struct Folder(File);

impl Folder {
    /// A folder that somebody named: links on the way to it are theirs. What is missing of it is made, and handed to
    /// `adopt`.
    pub(crate) fn named(path: &Path, adopt: &Adopt<'_>) -> io::Result<Self> {
        match openat(CWD, path, FOLDER, Mode::empty()) {
            Ok(open) => Ok(Self(File::from(open))),
            Err(Errno::NOENT) => {
                let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
                Self::named(crate::files::folder_of(path), adopt)?.below(name, adopt)
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// The folder of a file whose path begins at this one.
    pub(crate) fn holding(self, file: &Path, adopt: &Adopt<'_>) -> io::Result<Self> {
        let mut folder = self;
        let parts = file.parent().into_iter().flat_map(Path::components);
        for part in parts {
            let Component::Normal(name) = part else {
                return Err(io::ErrorKind::InvalidFilename.into());
            };
            folder = folder.below(name, adopt)?;
        }
        Ok(folder)
    }

    /// The folder of this name in it, which is made if it is missing, and is no link.
    fn below(&self, name: &OsStr, adopt: &Adopt<'_>) -> io::Result<Self> {
        let made = match mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(fault) => return Err(fault.into()),
        };
        let open = openat(&self.0, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
        let open = match open {
            Ok(open) => File::from(open),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(led_elsewhere(name, "folder")),
            Err(fault) => return Err(fault.into()),
        };
        // Somebody may have put another one into its place since.
        if made && open.metadata()?.uid() == rustix::process::geteuid().as_raw() {
            adopt(&open, name)?;
        }
        Ok(Self(open))
    }

    /// Waits until nobody else writes here. File systems without locks have one writer by other means, or take their chance.
    pub(crate) fn lock(&self) {
        let _unlocked_where_there_are_no_locks = flock(&self.0, FlockOperation::LockExclusive);
    }

    /// A file in it; `None` if there is nothing of that name.
    pub(crate) fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        // A pipe is not waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&self.0, name, flags, Mode::empty()) {
            Ok(open) => {
                let open = File::from(open);
                Ok(Some(match open.metadata()?.is_file() {
                    true => Entry::File(open),
                    false => Entry::Other,
                }))
            }
            Err(Errno::NOENT) => Ok(None),
            // A link, or a socket.
            Err(Errno::LOOP | Errno::NXIO) => Ok(Some(Entry::Other)),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Puts a file in the place of whatever has the name. `fill` writes it; until then it is for nobody else.
    pub(crate) fn replace(
        &self,
        name: &OsStr,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let draft: OsString = [OsStr::new("."), name, OsStr::new(".new")]
            .into_iter()
            .collect();
        // What a crash has left behind.
        self.remove(&draft)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.0, &draft, flags, Mode::RUSR | Mode::WUSR)?);
        let written = fill(&mut file).and_then(|()| file.sync_all());
        let placed = written.and_then(|()| Ok(renameat(&self.0, &draft, &self.0, name)?));
        if let Err(fault) = placed {
            let _told_below = self.remove(&draft);
            return Err(fault);
        }
        self.0.sync_all()
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }
}

/// What has a name in a folder.
pub(crate) enum Entry {
    File(File),
    /// A link, a folder, a pipe.
    Other,
}

impl Entry {
    /// Whether it is a file with this content and nothing more.
    pub(crate) fn has(&mut self, content: &[u8]) -> io::Result<bool> {
        let Self::File(file) = self else {
            return Ok(false);
        };
        let limit = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let mut found = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut found)?;
        Ok(found == content)
    }
}

/// Gives a new folder its mode and owner.
pub(crate) type Adopt<'a> = dyn Fn(&File, &OsStr) -> io::Result<()> + 'a;

/// Mode bits for an open file or folder.
pub(crate) fn set_mode(open: &File, mode: u32) -> io::Result<()> {
    open.set_permissions(Permissions::from_mode(mode))
}

/// What stands where a file or folder of ours should be.
pub(crate) fn led_elsewhere(name: &OsStr, what: &str) -> io::Error {
    io::Error::other(format!(
        "what is called {} there is no {what}, and symbolic links are followed only to folders that you name yourself: move it away, or name the place with --dir, \
         --cert-file, --key-file, --ca-out or --crl-out",
        name.display()
    ))
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

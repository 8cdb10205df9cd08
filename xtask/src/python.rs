//! Python environments, made in the target directory and kept for the next time.
//!
//! Several runs may share a target directory. An environment is therefore named after what is in it, made
//! under a lock, never changed once it is complete, and removed only when nobody uses it.

use crate::places;
use crate::step::{Outcome, execute, output};
use std::fs::{File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a step is skipped where there is no Python.
pub(crate) const NO_PYTHON: &str = "there is no python3 that can make an environment";

/// Installs packages some times faster than pip, which is used where there is no `uv`.
const UV: &str = "uv==0.13.7";

/// The file that says that an environment is complete.
const COMPLETE: &str = "complete";

/// An environment that stays as it is as long as this value lives.
pub(crate) struct Environment {
    folder: PathBuf,
    _used: File,
}

impl Environment {
    /// One of its programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        program(&self.folder, name)
    }

    /// Its interpreter, at the top of the source tree.
    pub(crate) fn python(&self) -> Command {
        python(&self.folder)
    }

    /// The folder of its packages.
    pub(crate) fn packages(&self) -> Result<PathBuf, String> {
        packages(&self.folder)
    }

    /// A new environment on top of this one, in a folder of the caller's, with one more package.
    pub(crate) fn with(&self, folder: &Path, package: &Path) -> Result<Command, String> {
        let installer = installer(&interpreter().ok_or(NO_PYTHON)?)?;
        installer.make(folder)?;
        let below = packages(folder)?.join("below.pth");
        let path = self.packages()?.display().to_string();
        std::fs::write(&below, path).map_err(|e| format!("{}: {e}", below.display()))?;
        installer.install(folder, |pip| pip.arg("--no-deps").arg(package))?;
        Ok(python(folder))
    }
}

/// The packages of an environment, by requirements files.
pub(crate) struct Packages {
    file: PathBuf,
    /// What the files say.
    text: String,
    /// Whether it lists all packages; otherwise the installer finds what else they need.
    complete: bool,
    /// A file with packages that are compiled here, where that is possible.
    from_source: Option<PathBuf>,
}

impl Packages {
    /// The packages of a file, and no others.
    pub(crate) fn complete(file: &str) -> Result<Self, String> {
        Ok(Self { complete: true, ..Self::of(file)? })
    }

    /// The packages of a file, and all that they need.
    pub(crate) fn of(file: &str) -> Result<Self, String> {
        let file = places::root().join(file);
        let text = read(&file)?;
        Ok(Self { file, text, complete: false, from_source: None })
    }

    /// And those of another file, compiled against the first ones. They are left out if that fails.
    pub(crate) fn and_from_source(self, file: &str) -> Result<Self, String> {
        let file = places::root().join(file);
        let text = self.text + &read(&file)?;
        Ok(Self { text, from_source: Some(file), ..self })
    }

    fn install(&self, installer: &Installer, folder: &Path) -> Outcome {
        installer.install(folder, |pip| {
            if self.complete {
                pip.arg("--no-deps");
            }
            pip.arg("-r").arg(&self.file)
        })?;
        if let Some(file) = &self.from_source {
            let built = installer
                .install(folder, |pip| pip.arg("--no-build-isolation").arg("-r").arg(file));
            built.unwrap_or_else(|reason| eprintln!("left out: {reason}"));
        }
        Ok(())
    }
}

/// The environment of this name with these packages, or `None` if there is no python3 that can make
/// one.
pub(crate) fn environment(name: &str, packages: &Packages) -> Result<Option<Environment>, String> {
    let Some(interpreter) = interpreter() else { return Ok(None) };
    let made = kept(name, &(&interpreter, &packages.text, packages.complete), |folder| {
        let installer = installer(&interpreter)?;
        installer.make(folder)?;
        packages.install(&installer, folder)
    });
    made.map(Some)
}

/// What tells one interpreter from another, if there is one that can make environments.
fn interpreter() -> Option<String> {
    let ask = "import sys, venv, ensurepip; print(sys.version, sys.executable)";
    output(Command::new("python3").args(["-c", ask])).ok()
}

/// The environment with pip and, where it can be had, uv.
struct Installer(Environment);

fn installer(interpreter: &str) -> Result<Installer, String> {
    let made = kept("installer", &(interpreter, UV), |folder| {
        execute(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let mut pip = python(folder);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        execute(pip.args(["--no-compile", UV])).unwrap_or_else(|reason| {
            eprintln!("without {UV}, which would be faster than pip: {reason}");
        });
        Ok(())
    });
    made.map(Installer)
}

impl Installer {
    /// Makes an environment without any package.
    fn make(&self, folder: &Path) -> Outcome {
        execute(self.0.python().args(["-m", "venv", "--without-pip"]).arg(folder))
    }

    /// Installs into an environment what the arguments say. Uses uv, and pip where that fails: they
    /// take their indices and certificates from different settings.
    fn install(&self, folder: &Path, arguments: impl Fn(&mut Command) -> &mut Command) -> Outcome {
        let into = program(folder, "python");
        let uv = self.0.program("uv");
        if uv.exists() {
            let mut command = Command::new(uv);
            command.args(["pip", "install", "--quiet", "--python"]).arg(&into);
            command.env("UV_PYTHON_DOWNLOADS", "never").current_dir(places::root());
            if std::env::var_os("UV_CACHE_DIR").is_none() {
                // On the same file system as the environments, whose files are then links.
                command.env("UV_CACHE_DIR", folder_of_all()?.join("uv-cache"));
            }
            match execute(arguments(&mut command)) {
                Ok(()) => return Ok(()),
                Err(reason) => eprintln!("uv failed, and pip is tried: {reason}"),
            }
        }
        let mut command = self.0.python();
        command.args(["-m", "pip", "--python"]).arg(&into);
        command.args(["install", "--quiet", "--disable-pip-version-check", "--no-compile"]);
        execute(arguments(&mut command))
    }
}

/// The folder that `make` fills, made unless it is there: one for each name and recipe.
fn kept(
    name: &str,
    recipe: &impl Hash,
    make: impl FnOnce(&Path) -> Outcome,
) -> Result<Environment, String> {
    let all = folder_of_all()?;
    std::fs::create_dir_all(&all).map_err(|e| format!("{}: {e}", all.display()))?;
    let mut hasher = DefaultHasher::new();
    recipe.hash(&mut hasher);
    let own = format!("{name}-{:016x}", hasher.finish());
    let folder = all.join(&own);
    let lock = open_lock(&all, &own)?;
    let failed = |e: std::io::Error| format!("the lock of {}: {e}", folder.display());
    lock.lock_shared().map_err(failed)?;
    let mut make = Some(make);
    while !folder.join(COMPLETE).exists() {
        let make = make.take().ok_or_else(|| format!("{}: was removed", folder.display()))?;
        lock.unlock().map_err(failed)?;
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            eprintln!("waiting for another run that makes {}", folder.display());
            lock.lock().map_err(failed)?;
        }
        if !folder.join(COMPLETE).exists() {
            let _ = std::fs::remove_dir_all(&folder);
            make(&folder)?;
            File::create(folder.join(COMPLETE)).map_err(failed)?;
            remove_others(&all, name, &own);
        }
        lock.unlock().map_err(failed)?;
        lock.lock_shared().map_err(failed)?;
    }
    Ok(Environment { folder, _used: lock })
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn folder_of_all() -> Result<PathBuf, String> {
    Ok(places::target()?.join("python"))
}

fn open_lock(all: &Path, own: &str) -> Result<File, String> {
    let path = all.join(format!("{own}.lock"));
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    file.map_err(|e| format!("{}: {e}", path.display()))
}

/// Removes environments of this name that were made from other recipes, unless a run uses them.
fn remove_others(all: &Path, name: &str, own: &str) {
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let found = entry.file_name().to_string_lossy().into_owned();
        let same = found.rsplit_once('-').is_some_and(|(start, _)| start == name);
        if same && found != own && entry.path().is_dir() {
            let lock = open_lock(all, &found);
            if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn program(folder: &Path, name: &str) -> PathBuf {
    let programs = if cfg!(windows) { "Scripts" } else { "bin" };
    folder.join(programs).join(places::program(name))
}

fn python(folder: &Path) -> Command {
    let mut command = Command::new(program(folder, "python"));
    command.current_dir(places::root());
    command
}

fn packages(folder: &Path) -> Result<PathBuf, String> {
    let ask = "import sysconfig; print(sysconfig.get_path('platlib'))";
    Ok(output(python(folder).args(["-I", "-X", "utf8", "-c", ask]))?.trim_end().into())
}

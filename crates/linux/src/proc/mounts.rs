//! Mounts, as /proc/PID/mountinfo lists them.
//!
//! Sources: proc(5); Documentation/admin-guide/mm/transhuge.rst of the kernel for `huge=`.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::root::Root;

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor device number of the file system.
    pub device: (u64, u64),
    /// The mounted part of the file system.
    pub root: String,
    /// The mount point, relative to the root.
    pub point: PathBuf,
    /// Type of the file system, for example `ext4`.
    pub kind: String,
    /// Whether it is read-only at this mount point.
    pub is_read_only: bool,
    /// Options of the file system, separated by commas.
    pub options: String,
}

impl Mount {
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|one| one == option)
    }

    /// The tmpfs; `None` for other file systems.
    pub fn tmpfs(&self) -> Option<Tmpfs> {
        let huge = self.options.split(',').rev().find_map(|option| option.strip_prefix("huge="));
        let tmpfs = Tmpfs { point: self.point.clone(), huge: Huge::of(huge.unwrap_or("never"))? };
        ["tmpfs", "devtmpfs"].contains(&self.kind.as_str()).then_some(tmpfs)
    }
}

/// A mounted tmpfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tmpfs {
    /// The mount point, relative to the root.
    pub point: PathBuf,
    pub huge: Huge,
}

/// The mount option `huge=` of a tmpfs. The kernel omits it where it is `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Huge {
    Never,
    Advise,
    WithinSize,
    Always,
}

impl Huge {
    fn of(word: &str) -> Option<Huge> {
        [Huge::Never, Huge::Advise, Huge::WithinSize, Huge::Always]
            .into_iter()
            .find(|huge| huge.to_string() == word)
    }
}

impl fmt::Display for Huge {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Huge::Never => "never",
            Huge::Advise => "advise",
            Huge::WithinSize => "within_size",
            Huge::Always => "always",
        })
    }
}

/// The mounts that a process sees; none if they cannot be read.
pub fn of_process(root: &Root, pid: &str) -> Vec<Mount> {
    parse(&root.read(format!("proc/{pid}/mountinfo")).unwrap_or_default()).collect()
}

/// The mounts in the text of a mountinfo file; lines in another format are skipped.
pub fn parse(mounts: &str) -> impl Iterator<Item = Mount> {
    mounts.lines().filter_map(parse_line)
}

/// `id parent major:minor ROOT POINT options [optional …] - KIND source OPTIONS`
fn parse_line(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (major, minor) = before.next()?.split_once(':')?;
    let mut after = after.split(' ');
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(before.next()?),
        point: Path::new(unescape(before.next()?).trim_start_matches('/')).to_owned(),
        is_read_only: before.next()?.split(',').any(|option| option == "ro"),
        kind: after.next()?.to_owned(),
        options: after.nth(1).unwrap_or_default().to_owned(),
    })
}

/// mountinfo escapes white space and backslashes as three octal digits: `\040`.
fn unescape(text: &str) -> String {
    let mut pieces = text.split('\\');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&piece[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(piece);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_of_a_tmpfs_is_read() {
        let text = "30 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24683656k\n\
                    31 25 0:41 / /mnt/a\\040b rw shared:1 - tmpfs t rw,huge=advise\n\
                    32 25 254:0 / / rw - ext4 /dev/vda rw\n";
        let mounts: Vec<Mount> = parse(text).collect();
        let tmpfs: Vec<Option<Tmpfs>> = mounts.iter().map(Mount::tmpfs).collect();
        let expected = |point: &str, huge| Some(Tmpfs { point: point.into(), huge });
        assert_eq!(tmpfs, [expected("dev/shm", Huge::Never), expected("mnt/a b", Huge::Advise), None]);
        assert_eq!((mounts[2].device, mounts[2].is_read_only), ((254, 0), false));
    }
}

//! Files of the form `Key: value`, such as /proc/meminfo and /proc/PID/status.

use std::path::PathBuf;

use crate::{
    reading::Reading,
    root::{ReadError, Root},
    units::Bytes,
};

/// The lines of such a file, or the error of reading it.
pub(crate) struct Fields<'a> {
    root: &'a Root,
    path: PathBuf,
    text: Result<String, ReadError>,
}

impl<'a> Fields<'a> {
    pub(crate) fn read(root: &'a Root, path: &str) -> Fields<'a> {
        Fields { root, path: PathBuf::from(path), text: root.read(path) }
    }

    /// The value of `key`, parsed by `parse`.
    pub(crate) fn get<T>(
        &self,
        key: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Reading<T> {
        let text = match &self.text {
            Ok(text) => text,
            Err(error) => return Reading::unknown(error),
        };
        let found = text.lines().enumerate().find_map(|(line, text)| {
            let value = text.strip_prefix(key)?.strip_prefix(':')?;
            Some((line + 1, value.trim()))
        });
        match found {
            None => Reading::unknown(format!("{} has no line '{key}'", self.root.path(&self.path).display())),
            Some((line, value)) => {
                parse(value).ok_or_else(|| self.root.content(&self.path, line, expected, value)).into()
            }
        }
    }

    /// The value of `key`, an amount with the unit `kB`.
    pub(crate) fn kib(&self, key: &str) -> Reading<Bytes> {
        self.get(key, "an amount in kB", |value| {
            value.strip_suffix("kB")?.trim().parse().ok().map(Bytes::from_kib)
        })
    }

    /// The same for a key that not every kernel has.
    pub(crate) fn kib_if_present(&self, key: &str) -> Reading<Option<Bytes>> {
        match &self.text {
            Ok(text)
                if !text
                    .lines()
                    .any(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'))) =>
            {
                Reading::Known(None)
            }
            _ => self.kib(key).map(Some),
        }
    }
}

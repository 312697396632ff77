//! The one place that writes a setting. Callers stand in this crate, and hold a journal.

use std::{fs, io};

use hugewise_linux::{root::Root, settings::Setting, tracefs};

/// Writes a value. The kernel may do less than it was asked for: read the setting back.
pub(crate) fn write(setting: Setting, root: &Root, value: &str) -> io::Result<()> {
    if let Setting::TraceInstance { id } = setting {
        return tracefs::make(root, id, value == tracefs::PRESENT);
    }
    // Never creates a file: a machine without the setting answers ENOENT.
    fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(root.path(setting.path()))
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
}

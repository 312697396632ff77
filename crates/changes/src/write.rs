//! The only function that writes a setting. Callers hold a journal.

use std::io;

use hugewise_linux::{root::Root, settings::Setting, sys::file, tracefs};

/// Writes a value. The kernel may apply only a part of it: read the setting back.
pub(crate) fn write(setting: Setting, root: &Root, value: &str) -> io::Result<()> {
    if let Setting::TraceInstance { id } = setting {
        return tracefs::set_presence(root, id, value == tracefs::PRESENT);
    }
    // Opened without create: a machine without the setting returns ENOENT.
    file::set(&root.path(setting.path()), value)
}

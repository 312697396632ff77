//! The content of the journal file, of which an entry may be damaged.

use hugewise_linux::{printable, settings::Setting};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, error::Category};

use super::{ChangedSetting, JvmLog, ProcessMemory, UnitChange};

/// Longest text of another process that is shown, in characters.
const MAX_SHOWN_CHARS: usize = 80;
/// Beginning of a damaged file in which entries are searched, in bytes.
const MAX_SALVAGED_BYTES: usize = 1 << 20;
/// Largest number of entries that are searched there.
const MAX_SALVAGED_ENTRIES: usize = 1000;
/// Longest text of an entry that is searched, in characters.
const MAX_ENTRY_CHARS: usize = 4096;

/// The content of the journal file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// The boot id when the settings were changed.
    pub boot_id: String,
    /// Unique id of this run; child processes carry it in `HUGEWISE_RUN`.
    pub run_id: String,
    /// The process id of the holder.
    pub owner: u32,
    /// The command of the holder, as text for messages.
    pub purpose: String,
    /// The changed settings, in the order of their first change.
    pub entries: Vec<ChangedSetting>,
    /// JVM logs switched on by this run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jvm_logs: Vec<JvmLog>,
    /// The pages of processes whose memory this run moves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<ProcessMemory>,
    /// The systemd services that this run stops, and whose drop-in it writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitChange>,
    /// Entries that could not be read, as they were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Value>,
}

impl Record {
    /// Whether nothing but logs of JVMs is to be undone.
    pub(super) fn has_only_logs(&self) -> bool {
        let others = self.entries.len() + self.memory.len() + self.units.len() + self.unreadable.len();
        others == 0 && !self.jvm_logs.is_empty()
    }

    /// A sentence on the run and the number of settings that are not restored.
    pub fn unfinished(&self) -> String {
        let entries = self.entries.len() + self.jvm_logs.len() + self.memory.len() + self.units.len();
        let changed = match entries + self.unreadable.len() {
            0 => "no setting was changed".to_owned(),
            1 => "1 setting is not restored".to_owned(),
            n => format!("{n} settings are not restored"),
        };
        format!(
            "an earlier hugewise (pid {}, {}) was ended before it could clean up; {changed}",
            self.owner,
            shown(&self.purpose)
        )
    }
}

/// A setting before its first change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The setting.
    pub setting: Setting,
    /// The value before the change.
    pub was: String,
    /// Pools only: the number of surplus pages before the change.
    #[serde(default)]
    pub surplus: u64,
}

/// Whether an entry of a list can be read.
type IsReadable = fn(&Value) -> bool;

/// A file whose lists may have damaged entries.
pub(super) trait Journalled: DeserializeOwned {
    /// The lists, by name.
    const LISTS: &'static [(&'static str, IsReadable)];
}

fn is<T: DeserializeOwned>(entry: &Value) -> bool {
    T::deserialize(entry).is_ok()
}

impl Journalled for Record {
    const LISTS: &'static [(&'static str, IsReadable)] = &[
        ("entries", is::<ChangedSetting>),
        ("jvm_logs", is::<JvmLog>),
        ("memory", is::<ProcessMemory>),
        ("units", is::<UnitChange>),
    ];
}

impl Journalled for super::AppliedSettings {
    const LISTS: &'static [(&'static str, IsReadable)] = &[("entries", is::<ChangedSetting>)];
}

/// Parses a file; entries that cannot be read are kept aside in it, so that the others can be restored. The error is the
/// reason why nothing of it can be used.
pub(super) fn parse<T: Journalled>(bytes: &[u8]) -> Result<T, String> {
    let error = match serde_json::from_slice(bytes) {
        Ok(whole) => return Ok(whole),
        Err(error) => in_words(&error),
    };
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(bytes) else { return Err(error) };
    let mut unreadable: Vec<Value> = match fields.remove("unreadable") {
        Some(Value::Array(entries)) => entries,
        other => other.into_iter().collect(),
    };
    for (list, is_readable) in T::LISTS {
        match fields.get_mut(*list) {
            Some(Value::Array(entries)) => {
                let (readable, others) = std::mem::take(entries).into_iter().partition(is_readable);
                *entries = readable;
                unreadable.extend::<Vec<Value>>(others);
            }
            Some(damaged) => unreadable.push(std::mem::replace(damaged, Value::Array(Vec::new()))),
            None => {}
        }
    }
    fields.insert("unreadable".to_owned(), Value::Array(unreadable));
    serde_json::from_value(Value::Object(fields)).map_err(|_| error)
}

/// The reason why a text cannot be parsed.
fn in_words(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        Category::Eof if line <= 1 && column == 0 => "it is empty".to_owned(),
        Category::Eof => format!("it ends in line {line}, before its end"),
        Category::Io | Category::Syntax | Category::Data => {
            format!("it is not a journal, or damaged in line {line}, column {column}")
        }
    }
}

/// The settings that can be read in a damaged file, whose other content is ignored.
pub(super) fn salvaged(bytes: &[u8]) -> Vec<Entry> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_SALVAGED_BYTES)]);
    let mut entries: Vec<Entry> = Vec::new();
    for (at, _) in text.match_indices("\"setting\"").take(MAX_SALVAGED_ENTRIES) {
        let Some(begin) = text[..at].rfind('{') else { continue };
        let piece: String = text[begin..].chars().take(MAX_ENTRY_CHARS).collect();
        let entry = serde_json::Deserializer::from_str(&piece).into_iter::<Entry>().next();
        if let Some(Ok(entry)) = entry {
            if entries.iter().all(|known| known.setting != entry.setting) {
                entries.push(entry);
            }
        }
    }
    entries
}

/// Text of another process for messages: cut off, and without characters that are not printable.
pub(super) fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    let mut shown = printable::plain(&beginning);
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

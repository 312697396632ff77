//! The backings of the JVMs of a script.

use hugewise_jvm::large_page_flags;
use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use hugewise_plan::backing_selection::{BackingRequest, BackingSupport, JvmAnswers};

/// What the JVMs of a script support; their demand is unknown until they start. `auto` takes no pool for them.
pub fn answers(wanted: &BackingRequest) -> JvmAnswers {
    let first = wanted.backing.filter(|backing| !matches!(backing, Backing::Thp | Backing::Base));
    let least = if wanted.backing == Some(Backing::Base) { None } else { Some(Backing::Thp) };
    let offer = |backing| BackingSupport {
        backing,
        options: large_page_flags::of_any_jvm(backing).map_err(String::from),
        pages: Vec::new(),
    };
    JvmAnswers {
        version: String::new(),
        collector: String::new(),
        max_heap: Bytes::ZERO,
        offers: first.into_iter().chain(least).chain([Backing::Base]).map(offer).collect(),
    }
}

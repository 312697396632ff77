//! The TLB as described by CPUID.
//!
//! Intel: leaf 0x18 (deterministic address translation parameters), and before it the descriptors of leaf 2.
//! AMD and Hygon: leaves 0x80000005, 0x80000006 and 0x80000019. In a virtual machine the hypervisor answers,
//! and most hypervisors hide these leaves.

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    reading::Reading,
    sys::cpuid::{self, Registers},
    units::{Bytes, PageSize},
};

/// A TLB for loads, as described by the CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tlb {
    /// The level, from 1.
    pub level: u32,
    /// The page sizes that it holds translations of.
    #[serde(rename = "page_sizes_bytes")]
    pub sizes: Vec<PageSize>,
    /// The number of entries, for all page sizes together.
    pub entries: u32,
    /// The CPUID leaf with this description.
    pub source: String,
}

/// All TLBs for loads that CPUID describes.
pub fn read() -> Reading<Vec<Tlb>> {
    if cfg!(target_arch = "x86_64") {
        reported(cpuid::leaf)
    } else {
        Reading::unknown("this architecture has no CPUID")
    }
}

/// The TLB of `level` for pages of `size`; `None` if CPUID does not describe one.
pub fn entries(tlbs: &[Tlb], level: u32, size: PageSize) -> Option<&Tlb> {
    tlbs.iter().find(|tlb| tlb.level == level && tlb.sizes.contains(&size))
}

/// All TLBs in the CPUID leaves that `leaf` returns.
fn reported(leaf: impl Fn(u32, u32) -> Option<Registers>) -> Reading<Vec<Tlb>> {
    let vendor = leaf(0, 0).map(|[_, b, c, d]| [b, d, c].map(u32::to_le_bytes).concat());
    let tlbs = match vendor.as_deref() {
        Some(b"AuthenticAMD" | b"HygonGenuine") => amd(&leaf),
        Some(b"GenuineIntel") => {
            let parameters = translation_parameters(&leaf);
            if parameters.is_empty() { descriptors(&leaf) } else { parameters }
        }
        _ => return Reading::unknown("no known CPUID leaf describes the TLB of this vendor's CPUs"),
    };
    // Bit 31 of leaf 1's ECX is set by hypervisors.
    let virtual_machine = leaf(1, 0).is_some_and(|[_, _, c, _]| c >> 31 == 1);
    match (tlbs.is_empty(), virtual_machine) {
        (false, _) => Reading::Known(tlbs),
        (true, true) => Reading::unknown("the hypervisor hides the TLB's leaves of CPUID"),
        (true, false) => Reading::unknown("the TLB's leaves of CPUID are empty"),
    }
}

fn sizes(bytes: &[u64]) -> Vec<PageSize> {
    bytes.iter().filter_map(|bytes| PageSize::new(Bytes(*bytes)).ok()).collect()
}

const SIZE_4K: u64 = 4 << 10;
const SIZE_2M: u64 = 2 << 20;
const SIZE_1G: u64 = 1 << 30;

/// Intel's leaf 0x18, with a sub-leaf for each TLB.
fn translation_parameters(leaf: &impl Fn(u32, u32) -> Option<Registers>) -> Vec<Tlb> {
    /// Highest sub-leaf that is read; larger values come from hypervisors, not from a CPU.
    const MAX_SUB_LEAF: u32 = 64;
    let last = leaf(0x18, 0).map_or(0, |[last, ..]| last.min(MAX_SUB_LEAF));
    let each = (0..=last).filter_map(|sub_leaf| {
        let [_, b, sets, d] = leaf(0x18, sub_leaf)?;
        // 0 is no TLB, 2 is for instructions, 5 for stores.
        let loads = matches!(d & 0x1f, 1 | 3 | 4);
        let entries = (b >> 16).checked_mul(sets)?;
        let held = [(0, SIZE_4K), (1, SIZE_2M), (3, SIZE_1G)].iter().filter(|(bit, _)| (b >> bit) & 1 == 1);
        let sizes = sizes(&held.map(|(_, size)| *size).collect::<Vec<_>>());
        (loads && entries > 0 && !sizes.is_empty()).then(|| Tlb {
            level: (d >> 5) & 7,
            sizes,
            entries,
            source: format!("leaf 0x18, sub-leaf {sub_leaf}"),
        })
    });
    each.collect()
}

/// Descriptors of leaf 2 for TLBs for loads: level, page sizes and entries. Intel 64 and IA-32 Architectures
/// Software Developer's Manual, volume 2, table "Encoding of CPUID Leaf 2 Descriptors".
const DESCRIPTORS: [(u8, u32, &[u64], u32); 12] = [
    (0x03, 1, &[SIZE_4K], 64),
    (0x57, 1, &[SIZE_4K], 16),
    (0x59, 1, &[SIZE_4K], 16),
    (0x5a, 1, &[SIZE_2M], 32),
    (0x63, 1, &[SIZE_2M], 32),
    (0x63, 1, &[SIZE_1G], 4),
    (0xb4, 2, &[SIZE_4K], 256),
    (0xc1, 2, &[SIZE_4K, SIZE_2M], 1024),
    (0xc2, 1, &[SIZE_4K, SIZE_2M], 16),
    (0xc3, 2, &[SIZE_4K, SIZE_2M], 1536),
    (0xc3, 2, &[SIZE_1G], 16),
    (0xca, 2, &[SIZE_4K], 512),
];

fn descriptors(leaf: &impl Fn(u32, u32) -> Option<Registers>) -> Vec<Tlb> {
    let Some(registers) = leaf(2, 0) else { return Vec::new() };
    // The lowest byte of EAX is a count; a register with its highest bit set is invalid.
    let valid = registers.iter().enumerate().filter(|(_, register)| **register >> 31 == 0);
    let bytes = valid
        .flat_map(|(number, register)| register.to_le_bytes().into_iter().skip(usize::from(number == 0)));
    let found = bytes.flat_map(|byte| DESCRIPTORS.iter().filter(move |known| known.0 == byte));
    found
        .map(|&(byte, level, held, entries)| Tlb {
            level,
            sizes: sizes(held),
            entries,
            source: format!("leaf 2, descriptor {byte:02X}h"),
        })
        .collect()
}

/// AMD's leaves. AMD64 Architecture Programmer's Manual, volume 3, appendix E.
fn amd(leaf: &impl Fn(u32, u32) -> Option<Registers>) -> Vec<Tlb> {
    let mut tlbs = Vec::new();
    let mut add = |from: u32, level, size, entries| {
        if entries > 0 {
            tlbs.push(Tlb { level, sizes: sizes(&[size]), entries, source: format!("leaf {from:#x}") });
        }
    };
    if let Some([medium, base, ..]) = leaf(0x8000_0005, 0) {
        add(0x8000_0005, 1, SIZE_4K, (base >> 16) & 0xff);
        add(0x8000_0005, 1, SIZE_2M, (medium >> 16) & 0xff);
    }
    // In these, four bits above the count are the associativity; 0 is a disabled TLB.
    let held = |register: u32| if register >> 28 == 0 { 0 } else { (register >> 16) & 0xfff };
    if let Some([medium, base, ..]) = leaf(0x8000_0006, 0) {
        add(0x8000_0006, 2, SIZE_4K, held(base));
        add(0x8000_0006, 2, SIZE_2M, held(medium));
    }
    if let Some([first, second, ..]) = leaf(0x8000_0019, 0) {
        add(0x8000_0019, 1, SIZE_1G, held(first));
        add(0x8000_0019, 2, SIZE_1G, held(second));
    }
    tlbs
}

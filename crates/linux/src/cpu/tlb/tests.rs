//! Leaves recorded on CPUs, and constructed ones.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A CPU with these leaves only.
fn cpu(leaves: &[(u32, u32, Registers)]) -> impl Fn(u32, u32) -> Option<Registers> {
    let leaves: BTreeMap<(u32, u32), Registers> =
        leaves.iter().map(|(leaf, sub_leaf, registers)| ((*leaf, *sub_leaf), *registers)).collect();
    move |leaf, sub_leaf| leaves.get(&(leaf, sub_leaf)).copied()
}

const INTEL: (u32, u32, Registers) = (0, 0, [0x20, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]);
const AMD: (u32, u32, Registers) = (0, 0, [0x10, 0x6874_7541, 0x444d_4163, 0x6974_6e65]);

/// Level, size and entries.
fn in_short(reading: &Reading<Vec<Tlb>>) -> Vec<(u32, String, u32)> {
    let tlbs = reading.known().cloned().unwrap_or_default();
    let each = tlbs.iter().flat_map(|tlb| {
        tlb.sizes.iter().map(|size| (tlb.level, size.to_string(), tlb.entries)).collect::<Vec<_>>()
    });
    each.collect()
}

fn expected(expected: &[(u32, &str, u32)]) -> Vec<(u32, String, u32)> {
    expected.iter().map(|(level, size, entries)| (*level, (*size).to_owned(), *entries)).collect()
}

/// Recorded in a KVM guest on a third-generation EPYC, with leaf 0x80000005 hidden.
#[test]
fn amd_shows_the_second_level_in_a_guest() {
    let reported = reported(cpu(&[
        AMD,
        (1, 0, [0x0003_06f2, 0x0002_0800, 0xfffa_3203, 0x178b_fbff]),
        (0x8000_0005, 0, [0; 4]),
        (0x8000_0006, 0, [0x4800_2200, 0x6800_4200, 0x0200_6140, 0x0600_9140]),
        (0x8000_0019, 0, [0xf040_f040, 0xf040_0000, 0, 0]),
    ]));
    assert_eq!(
        in_short(&reported),
        expected(&[(2, "4KiB", 2048), (2, "2MiB", 2048), (1, "1GiB", 64), (2, "1GiB", 64)])
    );
    let of_2m = reported.known().zip("2m".parse().ok()).and_then(|(tlbs, size)| entries(tlbs, 2, size));
    assert_eq!(of_2m.map(|tlb| tlb.source.as_str()), Some("leaf 0x80000006"));
}

/// The descriptors of the Skylake generation: 63h, 03h and C3h are TLBs for loads.
#[test]
fn older_intel_cpus_have_descriptors() {
    let reported = reported(cpu(&[INTEL, (2, 0, [0x7603_6301, 0x00f0_b5ff, 0, 0x00c3_0000])]));
    assert_eq!(
        in_short(&reported),
        expected(&[
            (1, "2MiB", 32),
            (1, "1GiB", 4),
            (1, "4KiB", 64),
            (2, "4KiB", 1536),
            (2, "2MiB", 1536),
            (2, "1GiB", 16),
        ])
    );
}

/// Constructed from the manual: sub-leaves for instructions, loads, stores and both; one is empty.
#[test]
fn newer_intel_cpus_have_sub_leaves() {
    let reported = reported(cpu(&[
        INTEL,
        (0x18, 0, [4, 0, 0, 0]),
        (0x18, 1, [0, 0x0008_0001, 32, 0x22]),
        (0x18, 2, [0, 0x0006_0001, 16, 0x24]),
        (0x18, 3, [0, 0x0010_0001, 1, 0x25]),
        (0x18, 4, [0, 0x0010_000b, 128, 0x43]),
    ]));
    assert_eq!(
        in_short(&reported),
        expected(&[(1, "4KiB", 96), (2, "4KiB", 2048), (2, "2MiB", 2048), (2, "1GiB", 2048)])
    );
}

/// Recorded in a KVM guest: leaf 2 refers to leaf 0x18, which is empty.
#[test]
fn a_hypervisor_that_hides_them_is_named() {
    let hidden = [INTEL, (1, 0, [0, 0, 1 << 31, 0]), (2, 0, [0x00fe_ff01, 0xf0, 0, 0]), (0x18, 0, [0; 4])];
    let reason = |leaves: &[_]| reported(cpu(leaves)).reason().map(str::to_owned);
    assert!(reason(&hidden).is_some_and(|why| why.contains("the hypervisor hides")));
    assert!(reason(&[INTEL]).is_some_and(|why| why.contains("are empty")));
    assert!(reason(&[]).is_some_and(|why| why.contains("this vendor's CPUs")));
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        amd: bool,
        leaves in prop::collection::vec(
            (prop::sample::select(vec![1u32, 2, 0x18, 0x8000_0005, 0x8000_0006, 0x8000_0019]), 0u32..70,
             any::<[u32; 4]>()),
            0..80,
        ),
    ) {
        let mut all = leaves;
        all.push(if amd { AMD } else { INTEL });
        for tlb in reported(cpu(&all)).known().into_iter().flatten() {
            prop_assert!(tlb.entries > 0 && !tlb.sizes.is_empty());
        }
    }
}

#[test]
fn this_machine_answers() {
    match read() {
        Reading::Known(tlbs) => assert!(!tlbs.is_empty()),
        Reading::Unknown { unknown } => assert!(!unknown.is_empty()),
    }
}

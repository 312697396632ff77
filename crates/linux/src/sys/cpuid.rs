//! The `cpuid` instruction.

pub type Registers = [u32; 4];

/// A leaf of the `cpuid` instruction; `None` above the CPU's highest leaf, and on other architectures.
#[cfg(target_arch = "x86_64")]
pub fn leaf(leaf: u32, sub_leaf: u32) -> Option<Registers> {
    use std::arch::x86_64::__cpuid_count;
    const EXTENDED: u32 = 0x8000_0000;
    #[allow(unused_unsafe)] // Safe in later versions of Rust.
    let ask = |leaf, sub_leaf| {
        // SAFETY: every x86-64 CPU has the instruction; it accesses no memory and changes only the registers
        // with the result.
        unsafe { __cpuid_count(leaf, sub_leaf) }
    };
    let highest = ask(leaf & EXTENDED, 0).eax;
    (leaf <= highest).then(|| {
        let answer = ask(leaf, sub_leaf);
        [answer.eax, answer.ebx, answer.ecx, answer.edx]
    })
}

/// A leaf of the `cpuid` instruction, which this architecture does not have.
#[cfg(not(target_arch = "x86_64"))]
pub fn leaf(_leaf: u32, _sub_leaf: u32) -> Option<Registers> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn leaves_end_where_the_cpu_says() {
        let highest = leaf(0, 0).map(|[eax, ..]| eax);
        assert!(highest.is_some_and(|highest| highest >= 1 && leaf(highest, 0).is_some()));
        assert_eq!(highest.and_then(|highest| leaf(highest + 1, 0)), None);
        assert_eq!(leaf(0x8fff_ffff, 0), None);
    }
}

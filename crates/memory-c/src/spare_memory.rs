//! Memory of this library for a program that has none left.
//!
//! Rust aborts a process whose allocation fails; a C program that checks malloc goes on. Where malloc fails, for example
//! at RLIMIT_AS, calls use slots of static memory, which suffice to fail with a reason. Pages of it that were never used
//! take no memory.

#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

/// Sizes of slots in bytes. There are 64 of each, for each of its words.
const SIZES: [(usize, usize); 4] = [(64, 8), (512, 4), (4 << 10, 2), (16 << 10, 1)];
const WORDS: usize = 15;
const BYTES: usize = 64 * (8 * 64 + 4 * 512 + 2 * (4 << 10) + (16 << 10));
/// Alignment of the memory, and largest of a slot, in bytes.
const ALIGNMENT: usize = 64;

#[repr(align(64))]
struct Memory(UnsafeCell<[u8; BYTES]>);

// SAFETY: a slot has one user at a time.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; BYTES]));
/// A set bit is a slot in use.
static USED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// malloc, and spare memory where it fails.
struct Allocator;

// SAFETY: memory of malloc, or a slot that is large enough, aligned, and not in use. Not inlined: each drop would have a
// copy.
unsafe impl GlobalAlloc for Allocator {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { take(layout) } else { memory }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match slot_at(memory) {
            Some((word, bit)) => drop(USED[word].fetch_and(!bit, Ordering::Release)),
            // SAFETY: guaranteed by the caller.
            None => unsafe { System.dealloc(memory, layout) },
        }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = take(layout);
        if !memory.is_null() {
            // SAFETY: a slot of at least this size.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    #[inline(never)]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if slot_at(memory).is_none() {
            // SAFETY: guaranteed by the caller.
            let grown = unsafe { System.realloc(memory, layout, size) };
            if !grown.is_null() {
                return grown;
            }
        }
        let Ok(new) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
        // SAFETY: both have at least the smaller size, and the old one is freed once.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(memory, moved, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

fn start() -> *mut u8 {
    MEMORY.0.get().cast()
}

/// A free slot; NULL if there is none.
fn take(layout: Layout) -> *mut u8 {
    let (mut word, mut offset) = (0, 0);
    for (size, words) in SIZES {
        for used in USED.iter().skip(word).take(words) {
            while layout.size() <= size && layout.align() <= ALIGNMENT {
                let now = used.load(Ordering::Relaxed);
                let slot = now.trailing_ones() as usize;
                if slot == 64 {
                    break;
                }
                let taken = now | 1 << slot;
                if used.compare_exchange(now, taken, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return start().wrapping_add(offset + slot * size);
                }
            }
            offset += 64 * size;
        }
        word += words;
    }
    ptr::null_mut()
}

/// The word and the bit of the slot at an address; `None` for memory of malloc.
fn slot_at(memory: *mut u8) -> Option<(usize, u64)> {
    let mut offset = memory.addr().checked_sub(start().addr()).filter(|offset| *offset < BYTES)?;
    let mut word = 0;
    for (size, words) in SIZES {
        if offset < words * 64 * size {
            let slot = offset / size;
            return Some((word + slot / 64, 1 << (slot % 64)));
        }
        offset -= words * 64 * size;
        word += words;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slots_do_not_overlap_and_are_free_again(sizes in proptest::collection::vec(1usize..20_000, 1..400)) {
            let mut taken: Vec<(*mut u8, Layout)> = Vec::new();
            for size in sizes {
                let layout = Layout::from_size_align(size, 16).map_err(|e| TestCaseError::fail(e.to_string()))?;
                let slot = take(layout);
                prop_assert!(slot.is_null() == (size > 16 << 10) || taken.len() > 60);
                if !slot.is_null() {
                    prop_assert!(slot.addr() % 64 == 0 && slot_at(slot).is_some());
                    let clear = |(other, of): &(*mut u8, Layout)| {
                        slot.addr() + size <= other.addr() || other.addr() + of.size() <= slot.addr()
                    };
                    prop_assert!(taken.iter().all(clear));
                    prop_assert!(slot.addr() + size <= start().addr() + BYTES);
                    taken.push((slot, layout));
                }
            }
            for (slot, layout) in taken {
                // SAFETY: taken above, once.
                unsafe { ALLOCATOR.dealloc(slot, layout) };
            }
            prop_assert!(USED.iter().all(|used| used.load(Ordering::Relaxed) == 0));
        }
    }
}

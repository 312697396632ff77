//! Metaspace and class space: lists of nodes, found by their names.
//!
//! HotSpot's tables do not contain their addresses. A list begins with a pointer to its name, a string in
//! libjvm.so, and each node contains the base and size of its reservation.

use std::ops::Range;

use memchr::memmem;

use super::{
    RegionKind,
    claims::{Claims, PAGE},
    is_libjvm,
    vm_structs::Image,
};

const NON_CLASS: &[u8] = b"non-class-space\0";
const CLASS: &[u8] = b"class-space\0";
const MOST_NODES: usize = 1 << 14;
/// Maximum size of a library's text that is searched.
const MAX_TEXT_BYTES: u64 = 64 << 20;

pub(super) fn claim(image: &Image, claims: &mut Claims) -> Option<()> {
    let names = names(image, claims);
    let statics = super::reserved::static_words(image, claims);
    let mut found = None;
    for object in statics {
        if object % 8 != 0 || !is_data(claims, object) {
            continue;
        }
        // A context begins with its name, followed by a pointer to its list. The list begins with the name as
        // well, possibly after a vtable pointer, followed by a pointer to its first node.
        let Some(list) = image.memory.u64(object.wrapping_add(8)) else { continue };
        for list in [list, object] {
            let Some(head) = image.memory.words(list, 3) else { continue };
            let listed = head.windows(2).find_map(|pair| {
                let (_, name, kind) = names.iter().find(|(at, ..)| *at == pair[0])?;
                Some((pair[1], *name, *kind))
            });
            let Some((node, name, kind)) = listed else { continue };
            found = claim_nodes(image, claims, node, name, kind).or(found);
        }
    }
    found
}

fn is_data(claims: &Claims, address: u64) -> bool {
    claims.vma(address).is_some_and(|vma| vma.is_anonymous() && vma.permissions.starts_with("rw"))
}

/// Claims the nodes of a list: `[next, …, base, bytes, …]`.
fn claim_nodes(image: &Image, claims: &mut Claims, first: u64, name: &str, kind: RegionKind) -> Option<()> {
    let (mut node, mut found) = (first, None);
    for _ in 0..MOST_NODES {
        if node == 0 || !is_data(claims, node) {
            break;
        }
        let words = image.memory.words(node, 12)?;
        let described = words[1..].windows(2).find_map(|pair| reservation(claims, pair[0], pair[1]));
        if let Some(range) = described {
            claims.claim(range, name, kind);
            found = Some(());
        }
        node = words[0];
    }
    found
}

fn reservation(claims: &Claims, base: u64, bytes: u64) -> Option<Range<u64>> {
    let range = base..base.checked_add(bytes)?;
    (base % PAGE == 0 && bytes % PAGE == 0 && bytes >= 64 << 10 && claims.is_free(&range)).then_some(range)
}

/// Addresses of the names in libjvm.so. A linker may merge the shorter name into the longer, and put strings
/// into the same segment as code.
fn names(image: &Image, claims: &Claims) -> Vec<(u64, &'static str, RegionKind)> {
    let found = names_in(image, claims, "r--");
    if found.is_empty() { names_in(image, claims, "r-x") } else { found }
}

fn names_in(image: &Image, claims: &Claims, permissions: &str) -> Vec<(u64, &'static str, RegionKind)> {
    let mut found = Vec::new();
    let texts =
        claims.vmas().iter().filter(|vma| is_libjvm(&vma.name) && vma.permissions.starts_with(permissions));
    for vma in texts {
        let bytes = (vma.addresses.end - vma.addresses.start).min(MAX_TEXT_BYTES);
        let mut text = vec![0; bytes as usize];
        if image.memory.read(vma.addresses.start, &mut text).is_none() {
            continue;
        }
        for at in memmem::find_iter(&text, CLASS) {
            let address = vma.addresses.start + at as u64;
            let longer = at.checked_sub(NON_CLASS.len() - CLASS.len());
            if let Some(longer) = longer.filter(|longer| text[*longer..].starts_with(NON_CLASS)) {
                found.push((vma.addresses.start + longer as u64, "metaspace", RegionKind::Metaspace));
            }
            found.push((address, "class space", RegionKind::ClassSpace));
        }
    }
    found
}

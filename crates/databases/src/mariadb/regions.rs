//! The buffers of a server, recognised by the order and the sizes of its requests.

use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    rehearsal::HugetlbRequest,
    units::{Bytes, PageSize},
};

use super::Settings;

/// Name of the buffer that depends on its address.
pub const BUFFER_POOL: &str = "InnoDB buffer pool";

/// Buffers of one purpose on pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub name: &'static str,
    pub page_size: PageSize,
    pub bytes: Bytes,
}

/// The buffers that are held, in the order of their requests.
pub(super) fn regions(requests: &[HugetlbRequest], settings: &Settings, sizes: &PageSizes) -> Vec<Region> {
    let purposes = purposes(settings);
    let smallest = sizes.hugetlb.iter().min();
    let (mut regions, mut next) = (Vec::<Region>::new(), 0);
    for request in requests {
        let is_possible = |(_, most): &(&str, Option<Bytes>)| {
            let most = most.map(|most| most.align_up(request.page_size).unwrap_or(most));
            most.is_none_or(|most| request.asked <= most)
        };
        let left = &purposes[next.min(purposes.len())..];
        let at = left.iter().position(is_possible);
        let name = at.map_or(BUFFER_POOL, |at| left[at].0);
        next += at.unwrap_or(0);
        // A request that fails is repeated with smaller pages, and a buffer pool at a wrong address is released.
        let is_held = request.held > Bytes::ZERO;
        let is_last = !request.granted && Some(&request.page_size) == smallest;
        next += usize::from(at.is_some() && (is_held || is_last));
        if is_held {
            add(&mut regions, Region { name, page_size: request.page_size, bytes: request.held });
        }
    }
    regions
}

/// The buffers in the order in which the server requests them, and the largest size of each; `None` if it has none.
fn purposes(settings: &Settings) -> Vec<(&'static str, Option<Bytes>)> {
    let key_buffers = settings.key_buffers.iter().map(|&most| ("MyISAM key buffer", Some(most)));
    let others = [
        ("Aria page cache", Some(settings.aria_pagecache)),
        (BUFFER_POOL, None),
        // InnoDB writes one while it fills the other.
        ("InnoDB log buffers", Some(settings.log_buffer)),
        ("InnoDB log buffers", Some(settings.log_buffer)),
    ];
    key_buffers.chain(others).collect()
}

/// Adds a region, or merges it into one of the same purpose and page size.
fn add(regions: &mut Vec<Region>, region: Region) {
    let is_same = |other: &&mut Region| (other.name, other.page_size) == (region.name, region.page_size);
    match regions.iter_mut().find(is_same) {
        Some(known) => known.bytes += region.bytes,
        None => regions.push(region),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_linux::{rehearsal::HugetlbCall, units::SizeError};

    use super::*;

    /// A request, and the bytes that it still holds.
    fn request(page_size: &str, asked: &str, held: &str) -> Result<HugetlbRequest, SizeError> {
        let held: Bytes = held.parse()?;
        Ok(HugetlbRequest {
            process: 7,
            page_size: page_size.parse()?,
            means: HugetlbCall::Anonymous,
            start: None,
            asked: asked.parse()?,
            executable: false,
            granted: held > Bytes::ZERO,
            held,
            limit: None,
        })
    }

    fn found(key_buffers: &[&str], requests: &[HugetlbRequest]) -> Result<Vec<String>, Box<dyn Error>> {
        let settings = Settings {
            key_buffers: key_buffers.iter().map(|size| size.parse()).collect::<Result<_, _>>()?,
            aria_pagecache: "128m".parse()?,
            log_buffer: "16m".parse()?,
            ..Settings::default()
        };
        let hugetlb = vec!["2m".parse()?, "1g".parse()?];
        let sizes = PageSizes { base: "4k".parse()?, thp: None, hugetlb, default_hugetlb: None };
        let regions = regions(requests, &settings, &sizes);
        Ok(regions
            .iter()
            .map(|found| format!("{} {} {}", found.name, found.bytes, found.page_size))
            .collect())
    }

    #[test]
    fn a_buffer_pool_at_another_address_replaces_the_first_one() -> Result<(), Box<dyn Error>> {
        let released = HugetlbRequest { granted: true, ..request("2m", "128m", "0")? };
        let requests = [
            request("2m", "106m", "106m")?,
            request("2m", "124m", "124m")?,
            released,
            request("2m", "134m", "134m")?,
            request("2m", "16m", "16m")?,
            request("2m", "16m", "16m")?,
        ];
        assert_eq!(
            found(&["128m"], &requests)?,
            [
                "MyISAM key buffer 106MiB 2MiB",
                "Aria page cache 124MiB 2MiB",
                "InnoDB buffer pool 134MiB 2MiB",
                "InnoDB log buffers 32MiB 2MiB"
            ]
        );
        Ok(())
    }

    #[test]
    fn a_buffer_without_pages_is_none() -> Result<(), Box<dyn Error>> {
        let requests = [
            request("2m", "106m", "0")?,
            request("2m", "124m", "124m")?,
            request("1g", "1g", "0")?,
            request("2m", "1g", "1g")?,
            request("2m", "16m", "0")?,
            request("2m", "16m", "16m")?,
        ];
        assert_eq!(
            found(&["128m"], &requests)?,
            ["Aria page cache 124MiB 2MiB", "InnoDB buffer pool 1GiB 2MiB", "InnoDB log buffers 16MiB 2MiB"]
        );
        assert_eq!(found(&["128m"], &[])?, [""; 0]);
        Ok(())
    }

    #[test]
    fn key_buffers_may_be_missing_or_several() -> Result<(), Box<dyn Error>> {
        let rest = [request("2m", "124m", "124m")?, request("1g", "1g", "1g")?];
        // One below the size of a page requests none.
        assert_eq!(found(&["1m"], &rest)?, ["Aria page cache 124MiB 2MiB", "InnoDB buffer pool 1GiB 1GiB"]);
        let two = [&[request("2m", "54m", "54m")?, request("2m", "26m", "26m")?], &rest[..]].concat();
        assert_eq!(found(&["64m", "32m"], &two)?[0], "MyISAM key buffer 80MiB 2MiB");
        // Versions that map the buffer pool in parts.
        let parts = [&rest[..1], &[request("2m", "64m", "64m")?, request("2m", "64m", "64m")?]].concat();
        assert_eq!(found(&[], &parts)?[1], "InnoDB buffer pool 128MiB 2MiB");
        Ok(())
    }
}

//! Plans for tests, for each kind of backing.

use hugewise_plan::plan::Plan;
use serde_json::{Value, json};

/// All samples, with their names.
pub fn all() -> serde_json::Result<Vec<(&'static str, Plan)>> {
    Ok(vec![
        ("hugetlb", hugetlb()?),
        ("nodes", nodes()?),
        ("thp", thp()?),
        ("shm", shm()?),
        ("base", base()?),
        ("opaque", opaque()?),
    ])
}

/// Two instances on the pool of the default size.
pub fn hugetlb() -> serde_json::Result<Plan> {
    plan(json!({
        "backing": "hugetlb",
        "instances": 2,
        "options": ["-XX:+UseLargePages"],
        "command": ["java", "-Xmx1g", "-jar", "server.jar"],
        "demand": [
            {"name": "heap", "page_size_bytes": 2 << 20, "at_start_bytes": 1 << 30, "bytes": 1 << 30},
            {"name": "code cache", "page_size_bytes": 2 << 20, "at_start_bytes": 240 << 20, "bytes": 240 << 20},
            {"name": "card table", "page_size_bytes": 4096, "at_start_bytes": 1 << 20, "bytes": 1 << 20},
        ],
        "pools": [pool(2 << 20, None, 1264, 10)],
    }))
}

/// Pages of 1 GiB on two nodes, and some of 2 MiB.
pub fn nodes() -> serde_json::Result<Plan> {
    plan(json!({
        "backing": "hugetlb:1GiB",
        "options": ["-XX:+UseLargePages", "-XX:LargePageSizeInBytes=1g"],
        "command": ["java", "-Xmx4g", "-jar", "server.jar"],
        "demand": [
            {"name": "heap", "page_size_bytes": 1 << 30, "at_start_bytes": 4u64 << 30, "bytes": 4u64 << 30},
            {"name": "code cache", "page_size_bytes": 2 << 20, "at_start_bytes": 240 << 20, "bytes": 240 << 20},
        ],
        "pools": [pool(2 << 20, None, 120, 0), pool(1 << 30, Some(0), 2, 0), pool(1 << 30, Some(1), 2, 0)],
    }))
}

/// Transparent huge pages, with `enabled` and `shmem_enabled` at `never`.
pub fn thp() -> serde_json::Result<Plan> {
    plan(json!({
        "backing": "thp",
        "options": ["-XX:+UseTransparentHugePages"],
        "command": ["java", "-Xmx1g", "-jar", "server.jar"],
        "demand": [{"name": "heap", "page_size_bytes": 2 << 20, "at_start_bytes": 1 << 30, "bytes": 1 << 30}],
        "settings": [
            setting(json!({"thp_enabled": {"page_size": null}}), "never", "madvise"),
            setting(json!({"shmem_enabled": {"page_size": null}}), "never", "advise"),
        ],
    }))
}

/// SysV shared memory.
pub fn shm() -> serde_json::Result<Plan> {
    let mut plan = hugetlb()?;
    plan.backing = hugewise_linux::hugepages::backing::Backing::Shm(None);
    plan.options = vec!["-XX:+UseLargePages".to_owned(), "-XX:+UseSHM".to_owned()];
    plan.instances = 1;
    plan.pools = vec![serde_json::from_value(pool(2 << 20, None, 632, 10))?];
    Ok(plan)
}

/// Base pages: nothing is needed.
pub fn base() -> serde_json::Result<Plan> {
    plan(json!({"backing": "base", "command": ["java", "-jar", "server.jar"]}))
}

/// A command line into which no option can be inserted.
pub fn opaque() -> serde_json::Result<Plan> {
    let mut plan = hugetlb()?;
    plan.command = vec!["java".to_owned(), "@options".to_owned(), "Main".to_owned()];
    Ok(plan)
}

fn plan(parts: Value) -> serde_json::Result<Plan> {
    let mut whole = json!({
        "schema": "hugewise.plan/2",
        "command": [],
        "options": [],
        "instances": 1,
        "java": {"path": "java", "version": "17.0.15", "collector": "G1"},
        "heap": {"initial_bytes": 1 << 30, "max_bytes": 1 << 30},
        "demand": [],
        "off_heap": null,
        "pools": [],
        "settings": [],
        "memory": null,
        "direct_memory_bytes": 1 << 30,
        "target": {
            "source": "given",
            "memory_bytes": 8_u64 << 30,
            "cpus": 4,
            "architecture": "x86_64",
            "base_page_size_bytes": 4096,
            "nodes": null,
            "commit_limit_bytes": null,
        },
        "default_page_size_bytes": 2 << 20,
        "verdict": "unknown",
        "detail": "",
        "predicted_regions": [],
        "jvm_messages": [],
        "actions": [],
        "notes": [],
    });
    for (key, value) in parts.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    serde_json::from_value(whole)
}

fn pool(size: u64, node: Option<u32>, needed: u64, in_pool: u64) -> Value {
    json!({
        "page_size_bytes": size,
        "node": node,
        "pages_needed": needed,
        "pages_at_start": needed,
        "pages_available": in_pool,
        "pages_in_pool": in_pool,
        "pages_to_add": needed - in_pool,
        "obtainable": if size > 2 << 20 { "not_contiguous" } else { "yes" },
        "why": "",
    })
}

fn setting(setting: Value, from: &str, to: &str) -> Value {
    json!({"setting": setting, "from": from, "to": to, "why": ""})
}

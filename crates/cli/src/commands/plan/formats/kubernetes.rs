//! A Pod, or a Deployment for several instances.

use hugewise_linux::units::Bytes;
use hugewise_plan::{plan::Plan, target::TargetSource};
use serde_json::{Map, Value, json};

use super::{
    FormatError, IMAGE, VARIABLE_NOTE, header, is_shm, launch, of_one, same_java, short, targets,
    thp_settings, unexpanded, yaml,
};

/// Estimate of the memory that the plan does not include: metaspace, stacks, malloc and direct buffers.
const MARGIN: Bytes = Bytes(512 << 20);

pub fn render(plan: &Plan) -> Result<String, FormatError> {
    if plan.backing.is_explicit() && targets(plan).is_empty() {
        let why = "the plan has no pool, and a pod must request all huge pages that it uses";
        return FormatError::instead(why, "make a new plan");
    }
    let launch = launch(plan);
    let (beside, memory) = memory(plan);
    let mut limits = Map::from_iter([("memory".to_owned(), Value::from(quantity(memory)))]);
    for (size, bytes) in of_one(plan) {
        limits.insert(format!("hugepages-{}", short(size, "B")), quantity(bytes).into());
    }
    let mut requests = limits.clone();
    let cpus = plan.target.as_ref().filter(|target| target.source == TargetSource::Given);
    let cpus = cpus.and_then(|target| target.cpus.known().copied()).unwrap_or(1);
    requests.insert("cpu".to_owned(), cpus.to_string().into());
    let mut container = json!({
        "name": "jvm",
        "image": IMAGE,
        "resources": {"requests": requests, "limits": limits},
    });
    if !launch.command.is_empty() {
        let words: Vec<String> = launch.command.iter().map(|word| unexpanded(word)).collect();
        container["command"] = words.into();
    }
    if let Some((name, value)) = &launch.variable {
        container["env"] = json!([{"name": name, "value": unexpanded(value)}]);
    }
    if is_shm(plan) {
        container["securityContext"] = json!({"capabilities": {"add": ["IPC_LOCK"]}});
    }
    let pod = json!({"containers": [container]});
    let object = if plan.instances > 1 {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "jvm"},
            "spec": {
                "replicas": plan.instances,
                "selector": {"matchLabels": {"app": "jvm"}},
                "template": {"metadata": {"labels": {"app": "jvm"}}, "spec": pod},
            },
        })
    } else {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "jvm"}, "spec": pod})
    };
    let direct = plan.direct_memory_bytes.map_or(String::new(), |most| format!(" (buffers: up to {most})"));
    let mut paragraphs = vec![
        "Load it  kubectl apply -f FILE\n\
         Undo it  kubectl delete -f FILE"
            .to_owned(),
        format!(
            "Set the image, cpu and memory. The memory here is {beside} for regions outside of pools, and\n\
             {MARGIN} as an estimate for metaspace, stacks, malloc and direct buffers{direct}."
        ),
    ];
    paragraphs.extend(notes(plan));
    paragraphs.extend(launch.variable.map(|_| VARIABLE_NOTE.to_owned()));
    Ok(header(plan, &paragraphs) + &yaml::document(&object))
}

/// Requirements of the nodes and of the pod.
fn notes(plan: &Plan) -> Vec<String> {
    let mut notes: Vec<String> = same_java(plan).into_iter().collect();
    if !targets(plan).is_empty() {
        notes.push(
            "Huge pages are those of one instance. A node needs its pool (--format kernel or tmpfiles) before\n\
             its kubelet starts; after a change, restart the kubelet, or the pages are not allocatable.\n\
             Requests of huge pages equal limits: they cannot be overcommitted, and a page fault beyond the\n\
             limit is a SIGBUS."
                .to_owned(),
        );
        if !is_shm(plan) {
            notes.push("Huge pages need no volume (medium HugePages) and no privilege.".to_owned());
        }
    }
    if is_shm(plan) {
        notes.push(
            "IPC_LOCK is effective in containers that run as root. Otherwise add the group of the node's\n\
             vm.hugetlb_shm_group to supplementalGroups of the pod's securityContext. No volume is needed."
                .to_owned(),
        );
    }
    let settings: Vec<String> =
        thp_settings(plan).map(|(setting, to)| format!("\n  {} = {to}", super::file(setting))).collect();
    if !settings.is_empty() {
        notes.push(format!(
            "A pod cannot set these; set them on the node (--format tmpfiles, tuned or kernel):{}",
            settings.concat()
        ));
    }
    notes
}

/// Memory of one instance for regions outside of pools, without and with the margin, in whole MiB.
fn memory(plan: &Plan) -> (Bytes, Bytes) {
    let on_pool = |size| targets(plan).iter().any(|target| target.size == size);
    let regions = plan.regions.iter().map(|region| (region.page_size_bytes, region.bytes));
    let off_heap = plan.off_heap.iter().map(|memory| (memory.page_size_bytes, memory.bytes));
    let beside: Bytes =
        regions.chain(off_heap).filter(|(size, _)| !on_pool(*size)).map(|(_, bytes)| bytes).sum();
    let mib = |bytes: Bytes| Bytes(bytes.0.div_ceil(1 << 20).saturating_mul(1 << 20));
    (mib(beside), mib(beside + MARGIN))
}

/// An exact amount, in the largest unit in which it is a whole number.
fn quantity(bytes: Bytes) -> String {
    let units = [("Gi", 30), ("Mi", 20), ("Ki", 10)];
    match units.iter().find(|(_, shift)| bytes.0 % (1 << shift) == 0) {
        Some((name, shift)) => format!("{}{name}", bytes.0 >> shift),
        None => bytes.0.to_string(),
    }
}

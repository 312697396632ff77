//! A Docker Compose file.

use hugewise_plan::plan::Plan;
use serde_json::json;

use super::{IMAGE, VARIABLE_NOTE, docker, header, is_shm, launch, unexpanded, yaml};

pub fn render(plan: &Plan) -> String {
    let launch = launch(plan);
    let mut service = json!({"image": IMAGE});
    if !launch.command.is_empty() {
        let words: Vec<String> = launch.command.iter().map(|word| unexpanded(word)).collect();
        service["entrypoint"] = words.into();
    }
    if let Some((name, value)) = &launch.variable {
        service["environment"] = json!([unexpanded(&format!("{name}={value}"))]);
    }
    if is_shm(plan) {
        service["cap_add"] = json!(["IPC_LOCK"]);
    }
    if plan.instances > 1 {
        service["deploy"] = json!({"replicas": plan.instances});
    }
    let mut paragraphs = vec![
        "Put it into  compose.yaml, with your image\n\
         Load it      docker compose up -d\n\
         Undo it      docker compose down"
            .to_owned(),
    ];
    paragraphs.extend(docker::notes(plan));
    paragraphs.extend(launch.variable.map(|_| VARIABLE_NOTE.to_owned()));
    header(plan, &paragraphs) + &yaml::document(&json!({"services": {"jvm": service}}))
}

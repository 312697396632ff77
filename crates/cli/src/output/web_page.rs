//! Renders HTML pages from templates that share one style sheet. A page loads no other file.

use anyhow::Context;
use minijinja::{Environment, syntax::SyntaxConfig, value::Serde};
use serde::Serialize;

/// The name must end with `.html`: this enables escaping in minijinja.
const PAGE: &str = "page.html";

/// Renders a template. All text in `content` is escaped.
pub fn render(template: &str, content: impl Serialize) -> anyhow::Result<String> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_template("page.css", include_str!("page.css"))?;
    environment.add_template(PAGE, template)?;
    environment.get_template(PAGE)?.render(Serde(content)).context("cannot render the report")
}

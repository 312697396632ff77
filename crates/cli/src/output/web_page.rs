//! Pages that need nothing else: templates, and the style that they share.

use anyhow::Context;
use minijinja::{Environment, syntax::SyntaxConfig, value::Serde};
use serde::Serialize;

/// The name ends with `.html`, which is what switches escaping on.
const PAGE: &str = "page.html";

/// The page of this template. All text in `content` is escaped.
pub fn render(template: &str, content: impl Serialize) -> anyhow::Result<String> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_template("page.css", include_str!("page.css"))?;
    environment.add_template(PAGE, template)?;
    environment.get_template(PAGE)?.render(Serde(content)).context("the report could not be rendered")
}

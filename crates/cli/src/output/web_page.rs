//! Renders HTML pages from templates that share one style sheet. A page loads no other file.

use anyhow::Context;
use hugewise_linux::printable;
use minijinja::{Environment, syntax::SyntaxConfig, value::Serde};
use serde::Serialize;

/// The name must end with `.html`: this enables escaping in minijinja.
const PAGE: &str = "page.html";

/// Renders a template. All text in `content` is escaped; what is not printable in it is replaced.
pub fn render(template: &str, content: impl Serialize) -> anyhow::Result<String> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_template("page.css", include_str!("page.css"))?;
    environment.add_template(PAGE, template)?;
    let page = environment.get_template(PAGE)?.render(Serde(content)).context("cannot render the report")?;
    Ok(printable::lines(&page))
}

//! The committed header is that of the code: `HUGEWISE_WRITE_HEADER=1 cargo test` writes it anew.

use std::{env, error::Error, fs, path::Path};

use cbindgen::{Builder, Config, DocumentationStyle, Language, SortKey, Style};

type Tested = Result<(), Box<dyn Error>>;

/// What is written above the declarations.
const HEADER: &str = "\
/* Memory on huge pages: reserve it, make it present, prove what it got, give it back.
 *
 * Written by the tests of libhugewise from its source: change it there.
 *
 * Sizes and lengths are in bytes, times in nanoseconds, texts in UTF-8. Every function may be called by
 * any number of threads at the same time, also for the same region; what each may not do is said there.
 * A pointer must be NULL or as the function says: NULL, a misaligned one and a wrong handle are errors,
 * not crashes; what a pointer leads to cannot be checked.
 *
 * SPDX-License-Identifier: Apache-2.0 */";

/// What C sees, in this order.
const FILES: [&str; 3] = ["error.rs", "region.rs", "pretouch.rs"];

/// Names that are prefixed in C; the functions have theirs.
const NAMES: [(&str, &str); 13] = [
    ("ABI_VERSION", "HUGEWISE_ABI_VERSION"),
    ("OK", "HUGEWISE_OK"),
    ("FAILED", "HUGEWISE_FAILED"),
    ("COULD_NOT_TELL", "HUGEWISE_COULD_NOT_TELL"),
    ("Region", "hugewise_region"),
    ("ReserveOptions", "hugewise_reserve_options"),
    ("PageBytes", "hugewise_page_bytes"),
    ("WAY_ANY", "HUGEWISE_WAY_ANY"),
    ("WAY_POPULATE", "HUGEWISE_WAY_POPULATE"),
    ("WAY_TOUCH", "HUGEWISE_WAY_TOUCH"),
    ("UNKNOWN", "HUGEWISE_UNKNOWN"),
    ("PretouchOptions", "hugewise_pretouch_options"),
    ("Pretouched", "hugewise_pretouched"),
];

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> Result<String, Box<dyn Error>> {
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        cpp_compat: true,
        header: Some(HEADER.to_owned()),
        include_guard: Some("HUGEWISE_H".to_owned()),
        no_includes: true,
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        usize_is_size_t: true,
        line_length: 110,
        sort_by: SortKey::None,
        documentation_style: DocumentationStyle::Doxy,
        ..Config::default()
    };
    for (rust, c) in NAMES {
        config.export.rename.insert(rust.to_owned(), c.to_owned());
    }
    let builder = FILES.iter().fold(Builder::new().with_config(config), |builder, file| {
        builder.with_src(crate_folder().join("src").join(file))
    });
    let mut header = Vec::new();
    builder.generate()?.write(&mut header);
    Ok(String::from_utf8(header)?)
}

#[test]
fn the_header_is_that_of_the_code() -> Tested {
    let path = crate_folder().join("include/hugewise.h");
    let generated = generated()?;
    if env::var_os("HUGEWISE_WRITE_HEADER").is_some() {
        fs::write(&path, &generated)?;
    }
    assert!(
        fs::read_to_string(&path)? == generated,
        "{} is not that of the code: HUGEWISE_WRITE_HEADER=1 cargo test -p hugewise-memory-c writes it",
        path.display()
    );
    Ok(())
}

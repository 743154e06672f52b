use tokio_postgres::Error;

use crate::doctor::finding::Finding;
use crate::doctor::postgres::{Look, Seen};

pub(super) const LOOKS: &[Look] = &[
    Look { check: "fsync", sql: "SELECT current_setting('fsync')", judge: fsync },
    Look {
        check: "full_page_writes",
        sql: "SELECT current_setting('full_page_writes')",
        judge: full_page_writes,
    },
    Look {
        check: "synchronous_commit",
        sql: "SELECT current_setting('synchronous_commit')",
        judge: synchronous_commit,
    },
];

fn fsync(seen: &Seen<'_>) -> Result<Vec<Finding>, Error> {
    let found: String = seen.row().try_get(0)?;
    Ok(vec![match found.as_str() {
        "on" => Finding::ok("fsync", found),
        _ => Finding::problem("fsync", found, "turn it on: a power failure loses commits"),
    }])
}

fn full_page_writes(seen: &Seen<'_>) -> Result<Vec<Finding>, Error> {
    const CHECK: &str = "full_page_writes";
    let found: String = seen.row().try_get(0)?;
    Ok(vec![match found.as_str() {
        "on" => Finding::ok(CHECK, found),
        _ => {
            let advice = "turn it on, unless the file system never tears pages (ZFS)";
            Finding::warning(CHECK, found, advice)
        }
    }])
}

fn synchronous_commit(seen: &Seen<'_>) -> Result<Vec<Finding>, Error> {
    let found: String = seen.row().try_get(0)?;
    let found = match found.as_str() {
        "off" => "off; engines turn it on for their commits".to_owned(),
        _ => found,
    };
    Ok(vec![Finding::ok("synchronous_commit", found)])
}

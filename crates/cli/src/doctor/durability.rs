use tokio_postgres::Error;

use crate::doctor::finding::Finding;
use crate::doctor::postgres::{QueryCheck, QueryResult};

pub(super) const CHECKS: &[QueryCheck] = &[
    QueryCheck { check: "fsync", sql: "SELECT current_setting('fsync')", judge: fsync },
    QueryCheck {
        check: "full_page_writes",
        sql: "SELECT current_setting('full_page_writes')",
        judge: full_page_writes,
    },
    QueryCheck {
        check: "synchronous_commit",
        sql: "SELECT current_setting('synchronous_commit')",
        judge: synchronous_commit,
    },
];

fn fsync(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let found: String = result.row().try_get(0)?;
    Ok(vec![match found.as_str() {
        "on" => Finding::ok("fsync", found),
        _ => Finding::problem("fsync", found, "turn it on: a power failure loses commits"),
    }])
}

fn full_page_writes(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    const CHECK: &str = "full_page_writes";
    let found: String = result.row().try_get(0)?;
    Ok(vec![match found.as_str() {
        "on" => Finding::ok(CHECK, found),
        _ => {
            let advice = "turn it on, unless the file system never tears pages (ZFS)";
            Finding::warning(CHECK, found, advice)
        }
    }])
}

fn synchronous_commit(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let found: String = result.row().try_get(0)?;
    let found = match found.as_str() {
        "off" => "off; engines turn it on for their commits".to_owned(),
        _ => found,
    };
    Ok(vec![Finding::ok("synchronous_commit", found)])
}

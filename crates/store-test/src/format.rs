//! Downgrades a database to an earlier format.

/// What each format added to the previous one: tables, and columns and indexes of existing tables.
struct Step {
    tables: &'static [&'static str],
    indexes: &'static [&'static str],
    columns: &'static [(&'static str, &'static str)],
}

const STEPS: &[Step] = &[
    Step { tables: &["node"], indexes: &[], columns: &[] },
    Step {
        tables: &[
            "mailbox",
            "message",
            "waitpoint",
            "keyring",
            "children",
            "gate",
            "worker",
            "bookmark",
        ],
        indexes: &["task_line", "task_open_parent", "task_parent"],
        columns: &[
            ("task", "line"),
            ("task", "since"),
            ("task", "parent"),
            ("task", "open_parent"),
        ],
    },
    Step { tables: &["effect", "limiter"], indexes: &[], columns: &[] },
    Step { tables: &["execution", "note"], indexes: &[], columns: &[] },
    Step { tables: &["gone"], indexes: &[], columns: &[] },
];

/// The highest format that can be downgraded.
pub const LAST: i64 = STEPS.len() as i64 + 1;

/// The same for a store with a single writer, which lacks the last step.
pub const LAST_OF_ONE_WRITER: i64 = LAST - 1;

/// Statements that downgrade a database from the last format to `format`, in SQL that every store
/// supports. `schema` precedes each name: empty, or a name and a dot.
pub fn back_to(format: i64, schema: &str) -> String {
    let kept = usize::try_from(format - 1).unwrap_or(0);
    let mut text = String::new();
    for step in STEPS.iter().skip(kept).rev() {
        let tables =
            step.tables.iter().map(|table| format!("DROP TABLE IF EXISTS {schema}{table};"));
        let indexes = step.indexes.iter().map(|index| format!("DROP INDEX {schema}{index};"));
        let column = |(table, column)| format!("ALTER TABLE {schema}{table} DROP COLUMN {column};");
        text.extend(tables.chain(indexes).chain(step.columns.iter().copied().map(column)));
    }
    text + &format!("UPDATE {schema}meta SET format = {format};")
}

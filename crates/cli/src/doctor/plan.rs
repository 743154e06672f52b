//! The schema that migrations create, parsed from their text, so that no second list is needed.

use std::collections::BTreeMap;

/// The tables, and the statements that create the indexes other than primary keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<String>,
    pub(crate) indexes: BTreeMap<String, String>,
}

impl Plan {
    pub(crate) fn of(migrations: &[&str]) -> Self {
        let mut plan = Self::default();
        for migration in migrations {
            let lines = migration.lines().map(|line| line.split("--").next().unwrap_or_default());
            let text = lines.collect::<Vec<_>>().join(" ");
            text.split(';').for_each(|statement| plan.follow(statement));
        }
        plan
    }

    fn follow(&mut self, statement: &str) {
        let words: Vec<&str> = statement.split_whitespace().collect();
        match words[..] {
            ["CREATE", "TABLE", name, ..] | ["CREATE", "UNLOGGED", "TABLE", name, ..] => {
                let name = name.split('(').next().unwrap_or(name);
                self.tables.push(name.to_owned());
            }
            ["DROP", "TABLE", name, ..] => self.tables.retain(|table| table != name),
            ["CREATE", "INDEX", name, "ON", ..] | ["CREATE", "UNIQUE", "INDEX", name, "ON", ..] => {
                self.indexes.insert(name.to_owned(), words.join(" "));
            }
            ["DROP", "INDEX", name, ..] => drop(self.indexes.remove(name)),
            _ => {}
        }
    }
}

/// The columns in the first parentheses, with single spaces.
pub(crate) fn columns(definition: &str) -> String {
    let inner = definition.split_once('(').map_or("", |(_, rest)| rest);
    let inner = inner.split_once(')').map_or(inner, |(inner, _)| inner);
    inner.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_parsed_in_order() {
        let plan = Plan::of(&[
            "-- CREATE TABLE no (a);\nCREATE TABLE a (\n  x int, -- one; two\n  y int\n);\n\
             CREATE TABLE b(z int);\nCREATE INDEX a_x ON a (x,\n  y)\nWHERE x IS NOT NULL;",
            "DROP TABLE b; CREATE UNIQUE INDEX a_y ON a (y); DROP INDEX a_x;",
            "CREATE UNLOGGED TABLE c (z int);",
        ]);
        assert_eq!(plan.tables, ["a", "c"]);
        assert_eq!(
            plan.indexes,
            BTreeMap::from([("a_y".into(), "CREATE UNIQUE INDEX a_y ON a (y)".into())])
        );
        assert_eq!(columns("CREATE INDEX i ON s.t USING btree (a, b) WHERE (a > 1)"), "a, b");
    }

    #[test]
    fn the_stores_have_the_tables_of_the_core() {
        for migrations in [windlass_store_postgres::MIGRATIONS, windlass_store_sqlite::MIGRATIONS] {
            let plan = Plan::of(migrations);
            for table in windlass_core::Table::ALL {
                let name = table.spec().name;
                assert!(plan.tables.iter().any(|table| table == name), "{name}: {plan:?}");
            }
            assert!(plan.indexes.contains_key("task_ready_at"), "{plan:?}");
        }
    }
}

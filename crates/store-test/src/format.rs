//! Databases of unreleased formats, which every store must reject.

/// The formats that unreleased versions wrote.
pub const UNRELEASED: std::ops::RangeInclusive<i64> = 1..=6;

/// Statements that create the tables by which a store recognises an unreleased format, in SQL that
/// every store supports. `schema` precedes each name: empty, or a name and a dot.
pub fn unreleased(format: i64, schema: &str) -> String {
    format!(
        "CREATE TABLE {schema}meta (id BIGINT PRIMARY KEY, format BIGINT, lowest BIGINT, \
             incarnation TEXT);
         INSERT INTO {schema}meta VALUES (1, {format}, 1, 'unreleased');
         CREATE TABLE {schema}task (tenant TEXT, id TEXT, line TEXT, PRIMARY KEY (tenant, id));
         CREATE TABLE {schema}queue (tenant TEXT, lane TEXT, route TEXT);"
    )
}

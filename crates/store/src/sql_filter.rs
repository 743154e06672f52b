use windlass_core::Value;

/// Builds a SQL statement condition by condition, with the values of its parameters `$1`, `$2`..
/// Column names are constants; values never become part of the text.
#[derive(Debug)]
pub struct SqlFilter<'v> {
    pub text: String,
    pub values: Vec<&'v Value>,
}

impl<'v> SqlFilter<'v> {
    /// Starts with a text that ends in a condition.
    pub fn new(text: String) -> Self {
        Self { text, values: Vec::new() }
    }

    fn mark(&mut self, value: &'v Value) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    /// Compares each column with its value.
    pub fn compare(&mut self, columns: &[&str], how: &str, values: &'v [Value]) {
        for (column, value) in columns.iter().zip(values) {
            let condition = match value {
                Value::Null => "IS NULL".into(),
                value => format!("{how} {}", self.mark(value)),
            };
            self.text += &format!(r#" AND "{column}" {condition}"#);
        }
    }

    /// Compares all columns with a position, as one row value.
    pub fn compare_all(&mut self, columns: &[&str], how: &str, position: &'v [Value]) {
        let marks: Vec<_> = position.iter().map(|value| self.mark(value)).collect();
        let names: Vec<_> = columns.iter().map(|name| format!(r#""{name}""#)).collect();
        self.text += &format!(" AND ({}) {how} ({})", names.join(", "), marks.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        let values = [Value::from("x"), Value::Null, Value::from(3)];
        let mut search = SqlFilter::new("SELECT 1 WHERE true".into());
        search.compare(&["a", "b", "c"], "=", &values);
        let position = [values[0].clone(), values[2].clone()];
        search.compare_all(&["a", "c"], ">", &position);
        let expected = r#"SELECT 1 WHERE true AND "a" = $1 AND "b" IS NULL AND "c" = $2"#;
        let expected = format!(r#"{expected} AND ("a", "c") > ($3, $4)"#);
        assert_eq!((search.text, search.values.len()), (expected, 4));
    }
}

use std::fmt;

/// One of several parts: every row is in exactly one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// From one to `of`.
    pub(crate) number: usize,
    pub(crate) of: usize,
}

impl Part {
    pub(crate) const WHOLE: Self = Self { number: 1, of: 1 };

    /// Reads `2/5`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| {
            Some(Self { number: number.parse().ok()?, of: of.parse().ok()? })
        });
        match numbers {
            Some(part) if (1..=part.of).contains(&part.number) => Ok(part),
            _ => Err(format!("--part needs a part such as 2/5, from 1/5 to 5/5: {text}")),
        }
    }

    pub(crate) fn has(self, row: usize) -> bool {
        row % self.of == self.number - 1
    }

    pub(crate) fn is_last(self) -> bool {
        self.number == self.of
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_parsed_or_rejected() {
        assert_eq!(Part::parse("2/5"), Ok(Part { number: 2, of: 5 }));
        assert_eq!(Part::parse("1/1"), Ok(Part::WHOLE));
        for text in ["0/3", "4/3", "x", "", "1", "1/", "/3", "1/0", "0/0", "1/x", "-1/3", "1/2/3"] {
            let expected = format!("--part needs a part such as 2/5, from 1/5 to 5/5: {text}");
            assert_eq!(Part::parse(text), Err(expected));
        }
    }

    #[test]
    fn every_row_is_in_exactly_one_part() {
        for of in 1..=9 {
            let parts: Vec<Part> = (1..=of).map(|number| Part { number, of }).collect();
            for row in 0..40 {
                assert_eq!(parts.iter().filter(|part| part.has(row)).count(), 1, "{row} of {of}");
            }
            assert_eq!(parts.iter().filter(|part| part.is_last()).count(), 1);
        }
        let second = Part::parse("2/5").unwrap();
        let rows: Vec<usize> = (0..12).filter(|row| second.has(*row)).collect();
        assert_eq!(rows, [1, 6, 11]);
    }
}

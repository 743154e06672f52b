use crate::Failure;

/// The `--name N`, `--name=N` and, for flags, `--name` of a command line.
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    pub(crate) fn parse(args: &[String], allowed: &[&str]) -> Result<Self, Failure> {
        Self::parse_with_flags(args, allowed, &[])
    }

    pub(crate) fn parse_with_flags(
        args: &[String],
        allowed: &[&str],
        flags: &[&str],
    ) -> Result<Self, Failure> {
        let mut found = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if flags.contains(&arg.as_str()) {
                found.push((arg.clone(), String::new()));
                continue;
            }
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (arg.as_str(), None),
            };
            if !allowed.contains(&name) {
                return Err(Failure::Usage(format!("no such option: {arg}")));
            }
            let Some(value) = value.or_else(|| args.next().cloned()) else {
                return Err(Failure::Usage(format!("{name} needs a value")));
            };
            found.push((name.to_owned(), value));
        }
        Ok(Self(found))
    }

    /// For a command without options.
    pub(crate) fn none(args: &[String]) -> Result<(), Failure> {
        Self::parse(args, &[]).map(|_| ())
    }

    /// Whether a flag was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.text(flag).is_some()
    }

    /// The last value given.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(allowed, _)| allowed == name).map(|(_, value)| value.as_str())
    }

    /// A number above zero; the last one given counts.
    pub(crate) fn number(&self, name: &str, otherwise: u64) -> Result<u64, Failure> {
        match self.text(name) {
            None => Ok(otherwise),
            Some(value) => match value.parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(Failure::Usage(format!("{name} needs a number above zero: {value}"))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(line: &str) -> Result<u64, String> {
        let args: Vec<String> = line.split_whitespace().map(String::from).collect();
        let parsed = Options::parse(&args, &["--seeds"]).and_then(|o| o.number("--seeds", 7));
        parsed.map_err(|failure| match failure {
            Failure::Usage(message) | Failure::Failed(message) => message,
        })
    }

    #[test]
    fn options_are_parsed_or_rejected() {
        for (line, expected) in [
            ("", Ok(7)),
            ("--seeds 20", Ok(20)),
            ("--seeds=30", Ok(30)),
            ("--seeds 20 --seeds 40", Ok(40)),
            ("--seeds", Err("--seeds needs a value")),
            ("--seeds x", Err("--seeds needs a number above zero: x")),
            ("--seeds 0", Err("--seeds needs a number above zero: 0")),
            ("--sedes 1", Err("no such option: --sedes")),
            ("20", Err("no such option: 20")),
        ] {
            assert_eq!(seeds(line), expected.map_err(String::from), "{line}");
        }
    }

    #[test]
    fn flags_take_no_value() {
        let args = ["--again", "--part", "2/5", "--part=3/5"].map(String::from);
        let parsed = Options::parse_with_flags(&args, &["--part"], &["--again", "--report"]);
        let options = parsed.unwrap_or_else(|_| panic!("all options are known"));
        assert!(options.has("--again") && !options.has("--report"));
        assert_eq!((options.text("--part"), options.text("--seeds")), (Some("3/5"), None));
        assert!(Options::parse_with_flags(&args, &["--part"], &["--report"]).is_err());
    }
}

use crate::Failure;
use crate::options::Options;

use super::part::Part;

/// The options of a proof.
pub(crate) struct Request {
    pub(crate) part: Part,
    /// Whether rows with a result on this tree are run again.
    pub(crate) again: bool,
    /// Whether nothing is run, and only the results on this tree are shown.
    pub(crate) report: bool,
}

impl Request {
    pub(crate) const VALUES: [&str; 1] = ["--part"];
    pub(crate) const FLAGS: [&str; 2] = ["--again", "--report"];

    pub(crate) fn read(options: &Options) -> Result<Self, Failure> {
        let part = options.text("--part").map_or(Ok(Part::WHOLE), Part::parse);
        Ok(Self {
            part: part.map_err(Failure::Usage)?,
            again: options.has("--again"),
            report: options.has("--report"),
        })
    }
}

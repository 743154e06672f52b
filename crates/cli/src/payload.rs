//! The payload options of a task or a message.

use std::fs::File;
use std::io::{Read as _, stdin};
use std::path::{Path, PathBuf};

use clap::Args;
use windlass::{Payload, Problem, limits};

use crate::error::CliError;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Payload")]
pub(crate) struct PayloadArgs {
    /// The payload, as JSON.
    #[arg(long, value_name = "JSON", value_parser = json_payload, conflicts_with = "payload_file")]
    payload: Option<String>,
    /// A file with the payload bytes; - is standard input.
    #[arg(long, value_name = "PATH")]
    payload_file: Option<PathBuf>,
    /// The content type of the payload [default: application/json; of a file,
    /// application/octet-stream unless its name ends in .json]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
}

impl PayloadArgs {
    /// Whether the payload is read from standard input.
    pub(crate) fn is_standard_input(&self) -> bool {
        self.payload_file.as_deref() == Some(Path::new("-"))
    }

    pub(crate) fn read(&self) -> Result<Option<Payload>, CliError> {
        let content_type = |unsaid: &str| self.content_type.as_deref().unwrap_or(unsaid).to_owned();
        if let Some(text) = &self.payload {
            return Ok(Some(Payload::new(content_type("application/json"), text.as_bytes())));
        }
        let Some(path) = &self.payload_file else { return Ok(None) };
        let bytes = read_bytes(path, "--payload-file")?;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let unsaid = if is_json { "application/json" } else { "application/octet-stream" };
        Ok(Some(Payload::new(content_type(unsaid), bytes)))
    }
}

/// Reads the file given by this option; - is standard input.
pub(crate) fn read_bytes(path: &Path, option: &'static str) -> Result<Vec<u8>, CliError> {
    let failed = |error| CliError::PayloadFile { path: path.to_owned(), error };
    let bytes = read(path).map_err(failed)?;
    let max_bytes = usize::try_from(limits::PAYLOAD_BYTES.max).unwrap_or(usize::MAX);
    if bytes.len() > max_bytes {
        let (field, problem) = (limits::PAYLOAD_BYTES.field, Problem::TooLong { max_bytes });
        return Err(CliError::Invalid { name: option, field, problem });
    }
    Ok(bytes)
}

/// Reads one byte more than the limit, to detect a payload that is too long.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let most = limits::PAYLOAD_BYTES.max.unsigned_abs() + 1;
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn json_payload(text: &str) -> Result<String, String> {
    json_text(text).map_err(|error| format!("{error}; use --payload-file for other bytes"))
}

pub(crate) fn json_text(text: &str) -> Result<String, String> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("this is not JSON: {error}")),
    }
}

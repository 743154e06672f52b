use std::fmt::{self, Write};

/// The trace of a run: always as a digest, and as lines if requested.
#[derive(Debug)]
pub(crate) struct Trace {
    digest: Digest,
    lines: Option<Vec<String>>,
}

/// FNV-1a over everything written to it.
#[derive(Debug)]
struct Digest(u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

impl Trace {
    pub(crate) fn new(in_words: bool) -> Self {
        let lines = in_words.then(Vec::new);
        Self { digest: Digest(0xcbf2_9ce4_8422_2325), lines }
    }

    pub(crate) fn note(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.digest, "{line}").expect("a digest takes everything");
        if let Some(lines) = &mut self.lines {
            lines.push(line.to_string());
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.0
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

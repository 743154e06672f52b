//! The external service, for the proofs that a call to it is made once.
//!
//! `bank BOOKS` listens on a local port, which it prints, and answers one line of JSON with one
//! line of JSON: `{"invoke": {"id", "order", "cents"}}` and `{"lookup": {"id"}}`. It does not
//! deduplicate: each invoke adds a line to its books and has a separate receipt. It exits when
//! its input ends.
//!
//! A lookup without a record must be certain. A killed process has written its bytes to a local
//! socket, perhaps on a connection that is not accepted yet. So a lookup is answered only after
//! reading all bytes that had arrived when it was read. This needs no delay, except for the
//! kernel to move bytes between sockets; a request of a killed process stays in flight for a
//! second, which is far longer.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BankRequest {
    Invoke { id: String, order: String, cents: u64 },
    Lookup { id: String },
}

#[derive(Clone, Debug, Serialize)]
struct Entry {
    id: String,
    order: String,
    cents: u64,
    receipt: String,
}

struct Line {
    stream: TcpStream,
    /// The bytes of an incomplete line.
    rest: Vec<u8>,
    /// The ids to look up.
    lookups: Vec<String>,
    is_open: bool,
}

struct Bank {
    listener: TcpListener,
    lines: Vec<Line>,
    books: File,
    entries: Vec<Entry>,
}

fn main() -> io::Result<()> {
    let books = std::env::args().nth(1).expect("bank BOOKS");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    let books = File::options().create(true).append(true).open(books)?;
    let mut bank = Bank { listener, lines: Vec::new(), books, entries: Vec::new() };
    loop {
        bank.wait()?;
        bank.hear()?;
        let heard = bank.take_lookups();
        if !heard.is_empty() {
            bank.hear()?;
            bank.answer(heard);
        }
        bank.lines.retain(|line| line.is_open);
    }
}

impl Bank {
    /// Waits until a socket is readable.
    fn wait(&self) -> io::Result<()> {
        if self.lines.iter().any(|line| !line.lookups.is_empty()) {
            return Ok(());
        }
        let mut sockets = vec![PollFd::new(&self.listener, PollFlags::IN)];
        sockets.extend(self.lines.iter().map(|line| PollFd::new(&line.stream, PollFlags::IN)));
        poll(&mut sockets, None::<&Timespec>)?;
        Ok(())
    }

    /// Reads all pending bytes of every connection, and executes the commands.
    fn hear(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    let (rest, lookups) = (Vec::new(), Vec::new());
                    self.lines.push(Line { stream, rest, lookups, is_open: true });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        for line in &mut self.lines {
            for asked in line.read()? {
                match asked {
                    BankRequest::Lookup { id } => line.lookups.push(id),
                    BankRequest::Invoke { id, order, cents } => {
                        let receipt = format!("receipt {} for {order}", self.entries.len() + 1);
                        let entry = Entry { id, order, cents, receipt };
                        writeln!(self.books, "{}", serde_json::to_string(&entry)?)?;
                        line.say(&Some(&entry.receipt));
                        self.entries.push(entry);
                    }
                }
            }
        }
        Ok(())
    }

    fn take_lookups(&mut self) -> Vec<(usize, String)> {
        let lines = self.lines.iter_mut().enumerate();
        let asked = lines.flat_map(|(nth, line)| line.lookups.drain(..).map(move |id| (nth, id)));
        asked.collect()
    }

    fn answer(&mut self, lookups: Vec<(usize, String)>) {
        for (line, id) in lookups {
            let found = self.entries.iter().find(|entry| entry.id == id);
            self.lines[line].say(&found.map(|entry| &entry.receipt));
        }
    }
}

impl Line {
    fn read(&mut self) -> io::Result<Vec<BankRequest>> {
        let mut bytes = [0; 4_096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    self.is_open = false;
                    break;
                }
                Ok(count) => self.rest.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Its process was killed before it read an answer.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    self.is_open = false;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let whole = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.rest.drain(..whole).collect();
        let lines = whole.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(serde_json::from_slice).collect::<Result<_, _>>()?)
    }

    /// Writes a few bytes, which fit in the socket buffer. Ignores errors of a dead client.
    fn say(&mut self, receipt: &Option<&String>) {
        let text = serde_json::to_string(receipt).expect("a receipt is serializable");
        self.is_open &= writeln!(self.stream, "{text}").is_ok();
    }
}

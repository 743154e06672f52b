//! A proxy between a process and its server. It parses the messages and holds them at a chosen
//! one, so that the progress of the process is known exactly.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

const SOCKET: &str = ".s.PGSQL.5432";

/// Where messages are held. The text is part of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Nowhere,
    /// The statement does not arrive, nor anything after it.
    Before(&'static str),
    /// The statement arrives whole, and nothing after it.
    After(&'static str),
    /// The statement is executed; the process receives no answer.
    Response(&'static str),
}

#[derive(Debug)]
pub(crate) struct Proxy {
    folder: TempDir,
    barrier: Arc<Barrier>,
}

#[derive(Debug)]
struct Barrier {
    cut: Cut,
    used: AtomicBool,
    reached: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Barrier {
    /// Only the first statement that matches is held.
    fn is_here(&self, cut: Cut) -> bool {
        self.cut == cut && !self.used.swap(true, Ordering::SeqCst)
    }

    async fn hold(&self) {
        self.reached.send_replace(true);
        // The wait ends with the proxy.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

impl Proxy {
    pub(crate) fn to(server: &Path, cut: Cut) -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (reached, open) = (watch::Sender::new(false), watch::Sender::new(false));
        let barrier = Arc::new(Barrier { cut, used: AtomicBool::new(false), reached, open });
        let listener = UnixListener::bind(folder.path().join(SOCKET))?;
        let (server, held) = (server.join(SOCKET), barrier.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // An unavailable server is unavailable to the process as well.
                if let Ok(server) = UnixStream::connect(&server).await {
                    carry(client, server, held.clone());
                }
            }
        });
        Ok(Self { folder, barrier })
    }

    pub(crate) fn socket(&self) -> &Path {
        self.folder.path()
    }

    /// Returns when a message is held.
    pub(crate) async fn reached(&self) {
        let _ = self.barrier.reached.subscribe().wait_for(|reached| *reached).await;
    }

    /// Releases all messages.
    pub(crate) fn open(&self) {
        self.barrier.open.send_replace(true);
    }
}

fn carry(client: UnixStream, server: UnixStream, barrier: Arc<Barrier>) {
    let ((requests, to_client), (responses, to_server)) =
        (client.into_split(), server.into_split());
    let hold_response = Arc::new(AtomicBool::new(false));
    tokio::spawn(carry_responses(responses, to_client, barrier.clone(), hold_response.clone()));
    tokio::spawn(async move {
        let mut connection = Connection::default();
        // When either side closes, so does the other.
        let _ = connection.carry(requests, to_server, &barrier, &hold_response).await;
    });
}

async fn carry_responses(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    barrier: Arc<Barrier>,
    hold_response: Arc<AtomicBool>,
) {
    let mut bytes = vec![0; 65_536];
    while let Ok(read) = from.read(&mut bytes).await {
        if hold_response.swap(false, Ordering::SeqCst) {
            barrier.hold().await;
        }
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// The state of one connection.
#[derive(Debug, Default)]
struct Connection {
    bytes: Vec<u8>,
    greeted: bool,
    /// Its prepared statements, by name.
    statements: BTreeMap<Vec<u8>, String>,
    /// Whether the present transaction writes to the log.
    writes: bool,
}

impl Connection {
    async fn carry(
        &mut self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        barrier: &Barrier,
        hold_response: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut ends_with_this = false;
        while from.read_buf(&mut self.bytes).await? > 0 {
            while let Some(message) = self.next() {
                let text = self.statement(&message).unwrap_or_default();
                if let Some(cut) = cut_at(barrier.cut, &text, self.writes) {
                    match cut {
                        Cut::Before(_) if barrier.is_here(cut) => barrier.hold().await,
                        Cut::After(_) => ends_with_this |= barrier.is_here(cut),
                        Cut::Response(_) if barrier.is_here(cut) => {
                            hold_response.store(true, Ordering::SeqCst);
                        }
                        _ => {}
                    }
                }
                self.writes = match text.as_str() {
                    "" => self.writes,
                    "BEGIN" | "COMMIT" => false,
                    text => self.writes || text.contains("pg_advisory_xact_lock"),
                };
                to.write_all(&message).await?;
                // A statement ends with its sync.
                if message[0] == b'S' && std::mem::take(&mut ends_with_this) {
                    barrier.hold().await;
                }
            }
        }
        Ok(())
    }

    /// The next whole message. The first of a connection has no type byte.
    fn next(&mut self) -> Option<Vec<u8>> {
        let kind = usize::from(self.greeted);
        let length: [u8; 4] = self.bytes.get(kind..kind + 4)?.try_into().ok()?;
        let end = kind + usize::try_from(u32::from_be_bytes(length)).ok()?;
        if self.bytes.len() < end {
            return None;
        }
        self.greeted = true;
        let rest = self.bytes.split_off(end);
        Some(std::mem::replace(&mut self.bytes, rest))
    }

    /// The statement that a message executes, if any.
    fn statement(&mut self, message: &[u8]) -> Option<String> {
        let words: Vec<&[u8]> = message.get(5..)?.splitn(3, |byte| *byte == 0).collect();
        let [first, second, ..] = words[..] else { return None };
        match message[0] {
            b'P' => {
                let text = String::from_utf8_lossy(second).into_owned();
                self.statements.insert(first.to_owned(), text);
                None
            }
            b'B' => self.statements.get(second).cloned(),
            b'Q' => Some(String::from_utf8_lossy(first).into_owned()),
            _ => None,
        }
    }
}

/// The cut, if the statement matches it. Read-only transactions end with COMMIT too.
fn cut_at(cut: Cut, statement: &str, writes: bool) -> Option<Cut> {
    let fits = match cut {
        Cut::Nowhere => false,
        Cut::Before(part) | Cut::After(part) | Cut::Response(part) => match part {
            "BEGIN" => statement == part,
            "COMMIT" => statement == part && writes,
            part => statement.contains(part),
        },
    };
    fits.then_some(cut)
}

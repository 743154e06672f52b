use std::path::Path;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, oneshot};

const SOCKET: &str = ".s.PGSQL.5432";
/// Occurs only in the last round trip of a batch: the name of the NOTIFY channel.
const LAST_FLIGHT: &[u8] = b"windlass_windlass";
/// The server's completion message of COMMIT.
const DONE: &[u8] = b"COMMIT\0";

/// What is lost of the next commit. The connection is cut at that point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The COMMIT does not arrive at the server.
    Request,
    /// The COMMIT takes effect, and its response does not arrive.
    Response,
}

/// A planned loss of a commit, which waits for permission.
#[derive(Debug)]
struct Ambush {
    loss: Loss,
    reached: oneshot::Sender<()>,
    leave: Arc<Notify>,
}

/// A proxy between a store and its server that can lose a commit.
pub(crate) struct Proxy {
    folder: TempDir,
    ambush: Arc<Mutex<Option<Ambush>>>,
}

/// The point at which a commit is lost: reached first, then passed.
pub(crate) struct Moment {
    reached: oneshot::Receiver<()>,
    leave: Arc<Notify>,
}

impl Moment {
    pub(crate) async fn reached(&mut self) {
        (&mut self.reached).await.unwrap();
    }

    /// Cuts the connection.
    pub(crate) fn pass(self) {
        self.leave.notify_one();
    }
}

impl Proxy {
    pub(crate) fn to(server: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ambush = Arc::default();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let proxy = Self { folder, ambush: Arc::clone(&ambush) };
        let server = server.join(SOCKET);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // The client must see an unreachable server as such.
                if let Ok(server) = UnixStream::connect(&server).await {
                    tokio::spawn(carry(client, server, Arc::clone(&ambush)));
                }
            }
        });
        proxy
    }

    pub(crate) fn socket(&self) -> &Path {
        self.folder.path()
    }

    /// Loses the next commit, at the returned point.
    pub(crate) fn lose(&self, loss: Loss) -> Moment {
        let (reached, is_reached) = oneshot::channel();
        let leave = Arc::new(Notify::new());
        let ambush = Ambush { loss, reached, leave: leave.clone() };
        *self.ambush.lock().unwrap() = Some(ambush);
        Moment { reached: is_reached, leave }
    }
}

/// Forwards data in both directions until one side closes, or a commit is lost.
async fn carry(
    mut client: UnixStream,
    mut server: UnixStream,
    ambush: Arc<Mutex<Option<Ambush>>>,
) -> Option<()> {
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut request, mut answer) = (Words::default(), Words::default());
    let mut caught: Option<Ambush> = None;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let read = &asked[..read.ok().filter(|read| *read > 0)?];
                if request.say(read, LAST_FLIGHT) && caught.is_none() {
                    caught = ambush.lock().unwrap().take();
                }
                if caught.as_ref().is_some_and(|ambush| ambush.loss == Loss::Request) {
                    break;
                }
                server.write_all(read).await.ok()?;
            }
            read = server.read(&mut answered) => {
                let read = &answered[..read.ok().filter(|read| *read > 0)?];
                match caught {
                    None => client.write_all(read).await.ok()?,
                    Some(_) if answer.say(read, DONE) => break,
                    Some(_) => {}
                }
            }
        }
    }
    let Ambush { reached, leave, .. } = caught?;
    reached.send(()).ok()?;
    leave.notified().await;
    Some(())
}

/// The end of the forwarded data, for words that arrive in two parts.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    /// Whether the data contains the word.
    fn say(&mut self, bytes: &[u8], word: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        let found = self.0.windows(word.len()).any(|said| said == word);
        let keep = if found { 0 } else { word.len() - 1 };
        self.0.drain(..self.0.len().saturating_sub(keep));
        found
    }
}

use std::path::Path;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, oneshot};

const SOCKET: &str = ".s.PGSQL.5432";
/// Only the last flight of a batch has this word in it: the channel that it tells of its commit.
const LAST_FLIGHT: &[u8] = b"windlass_windlass";
/// With this word the server says that it is done.
const DONE: &[u8] = b"COMMIT\0";

/// What is lost of the next commit. The connection is cut at that point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The COMMIT never arrives at the server.
    Request,
    /// The COMMIT takes effect, and the word of it never arrives.
    Answer,
}

/// A commit that is about to be lost, and waits for leave to be.
#[derive(Debug)]
struct Ambush {
    loss: Loss,
    reached: oneshot::Sender<()>,
    leave: Arc<Notify>,
}

/// Stands between a store and its server, and can lose a commit on its way.
pub(crate) struct Proxy {
    folder: TempDir,
    ambush: Arc<Mutex<Option<Ambush>>>,
}

/// The moment in which a commit is lost: reached first, then gone through.
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
                // A server that is not there is what the client is to find.
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

    /// Loses the next commit, in the moment that is returned.
    pub(crate) fn lose(&self, loss: Loss) -> Moment {
        let (reached, is_reached) = oneshot::channel();
        let leave = Arc::new(Notify::new());
        let ambush = Ambush { loss, reached, leave: leave.clone() };
        *self.ambush.lock().unwrap() = Some(ambush);
        Moment { reached: is_reached, leave }
    }
}

/// Carries what is said between the two until one of them ends, or a commit is lost.
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

/// The end of what was said, for words that come in two pieces.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    /// Whether the word is among what is said here.
    fn say(&mut self, bytes: &[u8], word: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        let found = self.0.windows(word.len()).any(|said| said == word);
        let keep = if found { 0 } else { word.len() - 1 };
        self.0.drain(..self.0.len().saturating_sub(keep));
        found
    }
}

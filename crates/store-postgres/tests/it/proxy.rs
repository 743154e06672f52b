use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

const SOCKET: &str = ".s.PGSQL.5432";

/// Stands between a store and its server, and can lose what the server answers.
pub(crate) struct Proxy {
    folder: TempDir,
    deaf: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn to(server: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let deaf = Arc::new(AtomicBool::new(false));
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let (server, lost) = (server.join(SOCKET), deaf.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&server).await.unwrap();
                tokio::spawn(carry(client, server, lost.clone()));
            }
        });
        Self { folder, deaf }
    }

    pub(crate) fn socket(&self) -> &Path {
        self.folder.path()
    }

    /// From here on nothing that the server says arrives, and after a commit the connection is cut.
    pub(crate) fn lose_answers(&self, lose: bool) {
        self.deaf.store(lose, Ordering::SeqCst);
    }
}

async fn carry(mut client: UnixStream, mut server: UnixStream, deaf: Arc<AtomicBool>) {
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            Ok(read) = client.read(&mut asked) => {
                if read == 0 || server.write_all(&asked[..read]).await.is_err() {
                    return;
                }
            }
            Ok(read) = server.read(&mut answered) => {
                if read == 0 {
                    return;
                }
                if deaf.load(Ordering::SeqCst) {
                    // With this word the server says that it is done.
                    if answered[..read].windows(7).any(|word| word == b"COMMIT\0") {
                        return;
                    }
                } else if client.write_all(&answered[..read]).await.is_err() {
                    return;
                }
            }
            else => return,
        }
    }
}

//! A PgBouncer for tests.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::postgres::{Server, as_server};

const PORT: u16 = 6432;

/// A PgBouncer in front of a server, in the server's folder. Killed on drop.
#[derive(Debug)]
pub struct Bouncer {
    folder: PathBuf,
    process: Child,
}

impl Bouncer {
    /// `mode` is `transaction` or `session`; `pool` is its number of server connections.
    ///
    /// # Panics
    /// If PgBouncer cannot be started, for example because it is not installed.
    pub fn start(server: &Server, mode: &str, pool: usize) -> Self {
        let folder = server.socket().to_owned();
        let (at, port) = (folder.display(), server.port());
        let settings = format!(
            "[databases]\n\
             postgres = host={at} port={port} user=windlass\n\
             [pgbouncer]\n\
             listen_addr =\n\
             unix_socket_dir = {at}\n\
             listen_port = {PORT}\n\
             auth_type = any\n\
             pool_mode = {mode}\n\
             default_pool_size = {pool}\n\
             max_client_conn = 500\n\
             logfile = {at}/pgbouncer.log\n"
        );
        std::fs::write(folder.join("pgbouncer.ini"), settings).expect("the folder exists");
        let process = spawn(&folder);
        Self { folder, process }
    }

    /// Kills it without a clean shutdown, like a machine failure.
    pub fn kill(&mut self) {
        self.process.kill().expect("the process can be killed");
        self.process.wait().expect("the process can be waited for");
    }

    pub fn restart(&mut self) {
        self.process = spawn(&self.folder);
    }

    /// The URL without `prepare=off`: see [`Bouncer::url`].
    pub fn plain_url(&self) -> String {
        let folder = self.folder.display();
        format!("postgres:///postgres?user=windlass&host={folder}&port={PORT}")
    }

    pub fn url(&self) -> String {
        format!("{}&prepare=off", self.plain_url())
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        // The process may have been killed before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns when it accepts connections.
fn spawn(folder: &Path) -> Child {
    let socket = folder.join(format!(".s.PGSQL.{PORT}"));
    // A killed PgBouncer leaves its socket behind.
    let _ = std::fs::remove_file(&socket);
    let mut command = as_server(Path::new("pgbouncer"));
    // Debian installs it in a folder that is only in root's path.
    command.env("PATH", "/usr/sbin:/usr/local/sbin:/usr/bin:/bin:/usr/local/bin");
    command.arg(folder.join("pgbouncer.ini")).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn().expect("PgBouncer is installed");
    while UnixStream::connect(&socket).is_err() {
        let ended = process.try_wait().expect("the process can be waited for");
        assert!(ended.is_none(), "PgBouncer ended: see pgbouncer.log in {}", folder.display());
        std::thread::yield_now();
    }
    process
}

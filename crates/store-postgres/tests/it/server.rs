use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A Postgres of the test's own, in a temporary directory, reached through a socket in it.
pub(crate) struct Server {
    folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let server = Self { folder: folder() };
        let auth = ["-A", "trust", "-U", "windlass", "-E", "UTF8", "--locale=C"];
        run(program("initdb").arg("-D").arg(server.data()).args(auth));
        server.control("start");
        server
    }

    pub(crate) fn control(&self, action: &str) {
        let folder = self.folder.path().display();
        let options = format!(
            "-c listen_addresses='' -c unix_socket_directories={folder} -c max_connections=200"
        );
        let mut control = program("pg_ctl");
        control.arg("-D").arg(self.data()).arg("-w").arg("-o").arg(options);
        run(control.arg("-l").arg(self.folder.path().join("log")).arg(action));
    }

    /// Runs a statement as an operator would; what it answers.
    pub(crate) fn sql(&self, text: &str) -> String {
        let mut psql = program("psql");
        psql.args(["-At", "-U", "windlass", "-d", "postgres", "-c", text]);
        let output = psql.arg("-h").arg(self.socket()).output().unwrap();
        assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Asks until the answer is yes.
    pub(crate) async fn until(&self, question: &str) {
        while self.sql(question) != "t" {
            tokio::task::yield_now().await;
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The folder of the socket.
    pub(crate) fn socket(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        url(self.socket())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut control = program("pg_ctl");
        control.arg("-D").arg(self.data()).args(["-m", "immediate", "stop"]);
        let _ = control.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

pub(crate) fn url(socket: &Path) -> String {
    format!("postgres://windlass@localhost/postgres?host={}", socket.display())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n")
}

/// A folder that the user who runs Postgres may write to.
fn folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("windlass-pg").tempdir_in("/tmp").unwrap();
    if is_root() {
        run(Command::new("chown").arg("postgres").arg(folder.path()));
    }
    folder
}

/// Postgres does not run as root: as root, its programs run as the user `postgres`.
fn program(name: &str) -> Command {
    let path = newest_binaries().map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(path);
    command
}

/// Where Debian keeps them.
fn newest_binaries() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<PathBuf> = versions.flatten().map(|it| it.path().join("bin")).collect();
    folders.sort();
    folders.pop().filter(|folder| Path::exists(folder))
}

/// What a server writes goes to its log: a pipe to here would stay open as long as it runs.
fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

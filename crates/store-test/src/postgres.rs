//! A temporary Postgres for tests: needs no running server, and leaves nothing behind.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The port in the name of a Unix socket without TCP.
const USUAL_PORT: u16 = 5432;
/// Longer than any test has to wait.
const NEVER: Duration = Duration::from_secs(60);

/// A Postgres of one test, in a temporary folder, with a Unix socket in it.
#[derive(Debug)]
pub struct Server {
    folder: TempDir,
    /// Settings that differ from the defaults, as `name=value`.
    settings: Vec<String>,
    port: u16,
}

impl Server {
    /// # Panics
    /// If Postgres cannot be started, for example because it is not installed.
    pub fn start() -> Self {
        Self::start_with(&["max_connections=200"])
    }

    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_on(USUAL_PORT, settings)
    }

    /// A server that also accepts TCP, on a free port.
    pub fn start_on_tcp(settings: &[&str]) -> Self {
        Self::start_on(free_port(), &[&["listen_addresses=localhost"], settings].concat())
    }

    fn start_on(port: u16, settings: &[&str]) -> Self {
        let settings = settings.iter().map(ToString::to_string).collect();
        let server = Self { folder: folder(), settings, port };
        let auth = ["-A", "trust", "-U", "windlass", "-E", "UTF8", "--locale=C"];
        run(program("initdb").arg("-D").arg(server.data()).args(auth));
        server.control("start");
        server
    }

    /// Runs a `pg_ctl` action: `start`, `stop -m immediate`, `restart -m fast`.
    pub fn control(&self, action: &str) {
        let folder = self.folder.path().display();
        let mut options = format!("-c listen_addresses='' -c unix_socket_directories={folder}");
        options += &format!(" -c port={}", self.port);
        for setting in &self.settings {
            options += &format!(" -c {setting}");
        }
        let mut control = program("pg_ctl");
        control.args(action.split(' ')).arg("-D").arg(self.data()).arg("-w");
        run(control.arg("-o").arg(options).arg("-l").arg(self.log()));
    }

    /// The log file of the server.
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Runs a statement like an operator; returns its output.
    pub fn sql(&self, text: &str) -> String {
        let mut psql = program("psql");
        psql.args(["-At", "-U", "windlass", "-d", "postgres", "-c", text]);
        psql.arg("-p").arg(self.port.to_string());
        let output = psql.arg("-h").arg(self.socket()).output().expect("psql runs");
        assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("the output is UTF-8").trim().to_owned()
    }

    /// Polls until the query returns true.
    ///
    /// # Panics
    /// After a timeout.
    pub async fn until(&self, question: &str) {
        let asked = Instant::now();
        while self.sql(question) != "t" {
            assert!(asked.elapsed() < NEVER, "this never becomes true: {question}");
            tokio::task::yield_now().await;
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The folder of the socket.
    pub fn socket(&self) -> &Path {
        self.folder.path()
    }

    pub fn url(&self) -> String {
        format!("{}&port={}", url(self.socket()), self.port)
    }

    /// The TCP URL, if it was started with TCP.
    pub fn tcp_url(&self) -> String {
        format!("postgres://windlass@localhost:{}/postgres", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Enables TLS with a self-signed certificate; returns its file.
    pub fn encrypt(&self, certificate: Certificate) -> PathBuf {
        let made = self.certificate("server", certificate);
        for (name, file) in [("ssl_cert_file", "server.crt"), ("ssl_key_file", "server.key")] {
            let file = self.folder.path().join(file);
            self.sql(&format!("ALTER SYSTEM SET {name} = '{}'", file.display()));
        }
        self.sql("ALTER SYSTEM SET ssl = on");
        self.sql("SELECT pg_reload_conf()");
        while self.sql("SHOW ssl") != "on" {
            std::thread::yield_now();
        }
        made
    }

    /// Creates a self-signed certificate for `localhost`, in the folder of the server.
    pub fn certificate(&self, name: &str, form: Certificate) -> PathBuf {
        let path = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        let openssl = || as_server(Path::new("openssl"));
        let subject = format!("/CN=windlass test {name}");
        let subject = ["-subj", &subject, "-days", "2"];
        let request = ["req", "-newkey", "rsa:2048", "-nodes", "-keyout"];
        match form {
            Certificate::Usual => {
                let names = ["-x509", "-addext", "subjectAltName=DNS:localhost"];
                let leaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
                let mut make = openssl();
                make.args(request).arg(path("key")).args(subject).args(names).args(leaf);
                run(make.arg("-out").arg(path("crt")).stderr(Stdio::null()));
            }
            Certificate::Old => {
                let mut ask = openssl();
                ask.args(request).arg(path("key")).args(&subject[..2]);
                run(ask.arg("-out").arg(path("csr")).stderr(Stdio::null()));
                let mut sign = openssl();
                sign.args(["x509", "-req", "-in"]).arg(path("csr")).args(&subject[2..]);
                sign.arg("-signkey").arg(path("key")).arg("-out").arg(path("crt"));
                run(sign.stderr(Stdio::null()));
            }
        }
        path("crt")
    }
}

/// The form of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    Usual,
    /// Without extensions, as in the manual of Postgres: it has no host name.
    Old,
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut control = program("pg_ctl");
        control.arg("-D").arg(self.data()).args(["-m", "immediate", "stop"]);
        let _ = control.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

pub fn url(socket: &Path) -> String {
    format!("postgres:///postgres?user=windlass&host={}", socket.display())
}

/// Another process may take the port first, but rarely does.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("localhost:0").expect("a port is free");
    listener.local_addr().expect("the listener is bound").port()
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n")
}

/// A folder that the user of Postgres may write to.
fn folder() -> TempDir {
    // The length of a socket path is limited, so the folder's path must be short.
    let folder = tempfile::Builder::new().prefix("windlass-pg").tempdir_in("/tmp");
    let folder = folder.expect("a folder can be created in /tmp");
    if is_root() {
        run(Command::new("chown").arg("postgres").arg(folder.path()));
    }
    folder
}

fn program(name: &str) -> Command {
    let path = newest_binaries().map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
    as_server(&path)
}

/// Postgres does not run as root: as root, its programs run as the user `postgres`.
pub fn as_server(path: &Path) -> Command {
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(path);
    command
}

/// The folder of Debian packages.
fn newest_binaries() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<PathBuf> = versions.flatten().map(|it| it.path().join("bin")).collect();
    folders.sort();
    folders.pop().filter(|folder| Path::exists(folder))
}

/// Output is discarded: a pipe would stay open as long as the server runs.
fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.expect("the programs of Postgres are installed");
    assert!(status.success(), "{command:?}: {status}");
}

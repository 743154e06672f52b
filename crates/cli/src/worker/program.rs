use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::timeout;
use windlass::{Context, StoreUrl};

use crate::error::CliError;
use crate::worker::group::Group;
use crate::worker::start_backoff::StartBackoff;
use crate::worker::streams::{StreamError, output, stderr_tail, write_payload};

/// How long the output may stay open after the program has exited.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// A program that runs tasks.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    name: OsString,
    arguments: Vec<OsString>,
    store: StoreUrl,
    pub(crate) starts: Arc<StartBackoff>,
}

/// The result of one run.
#[derive(Debug)]
pub(crate) enum ProgramResult {
    Ended {
        status: ExitStatus,
        printed: Vec<u8>,
        stderr_tail: String,
    },
    /// The task is retried after the pause: the next one would fail too.
    NotStarted {
        error: io::Error,
        pause: Duration,
    },
    /// The environment of the task is too large to start a program with.
    Unfit(io::Error),
    StreamError(StreamError),
    /// It has exited, but one of its children holds its output open.
    Abandoned,
    /// It was asked to stop, and did.
    Stopped,
}

impl Program {
    /// Looks up the program and checks that it is executable.
    pub(crate) fn find(command: Vec<OsString>, store: StoreUrl) -> Result<Self, CliError> {
        let mut arguments = command.into_iter();
        let name = arguments.next().unwrap_or_default();
        let there = if name.as_encoded_bytes().contains(&b'/') {
            may_run(Path::new(&name))
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| may_run(&folder.join(&name)))
        };
        if !there {
            return Err(CliError::NoProgram(name.to_string_lossy().into_owned()));
        }
        let starts = Arc::new(StartBackoff::default());
        Ok(Self { name, arguments: arguments.collect(), store, starts })
    }

    pub(crate) fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Runs it for a task. Dropping the future kills its process group.
    pub(crate) async fn run(&self, context: &Context) -> ProgramResult {
        let child = match self.command(context).spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                return ProgramResult::Unfit(error);
            }
            Err(error) => {
                let pause = self.starts.failed(error.to_string());
                return ProgramResult::NotStarted { error, pause };
            }
        };
        self.starts.succeeded();
        let group = Group::of(&child);
        let mut ending = Box::pin(follow(child, &group, context));
        let ran = tokio::select! {
            biased;
            ran = &mut ending => ran,
            () = context.cancelled() => {
                group.terminate();
                // Its exit code is ignored: it was interrupted.
                ending.as_mut().await;
                ProgramResult::Stopped
            }
        };
        drop(ending);
        group.ended();
        ran
    }

    fn command(&self, context: &Context) -> Command {
        let fence = context.fence();
        let labels = serde_json::to_string(context.labels()).unwrap_or_default();
        let content_type = context.payload().map_or("", |payload| &payload.content_type);
        let mut command = Command::new(&self.name);
        command
            .args(&self.arguments)
            .env("WINDLASS_STORE", self.store.to_string())
            .env("WINDLASS_TENANT", fence.task.tenant.as_str())
            .env("WINDLASS_TASK", fence.task.id.as_str())
            .env("WINDLASS_KIND", context.kind().as_str())
            .env("WINDLASS_LANE", context.lane().as_str())
            .env("WINDLASS_ATTEMPT", context.attempt().to_string())
            .env("WINDLASS_EPOCH", fence.epoch.to_string())
            .env("WINDLASS_LABELS", labels)
            .env("WINDLASS_CONTENT_TYPE", content_type)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C at the terminal goes to the worker, which lets its programs finish.
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

fn may_run(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Waits for a program to exit. No process of its group is left then.
async fn follow(mut child: Child, group: &Group, context: &Context) -> ProgramResult {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        unreachable!("every stream is piped");
    };
    let streams = async {
        tokio::try_join!(
            write_payload(stdin, context.payload()),
            output(stdout),
            stderr_tail(stderr)
        )
    };
    let mut streams = Box::pin(streams);
    let (followed, status) = tokio::select! {
        followed = &mut streams => {
            if followed.is_err() {
                group.kill();
            }
            (Some(followed), child.wait().await)
        }
        status = child.wait() => (timeout(LAST_OUTPUT, &mut streams).await.ok(), status),
    };
    match (followed, status) {
        (None, _) => {
            group.kill();
            ProgramResult::Abandoned
        }
        (Some(Err(error)), _) => ProgramResult::StreamError(error),
        (_, Err(error)) => ProgramResult::StreamError(StreamError::Io(error)),
        (Some(Ok(((), printed, stderr_tail))), Ok(status)) => {
            ProgramResult::Ended { status, printed, stderr_tail }
        }
    }
}

//! Checks of a SQLite file.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access, statfs, statvfs};
use windlass_store_sqlite::{FORMAT, MIGRATIONS, SqliteStore};

use crate::doctor::finding::Finding;
use crate::doctor::plan::Plan;
use crate::doctor::records;
use crate::doctor::tables::{of_format, of_unreleased};

/// Magic numbers of file systems on which a database is not safe.
const UNSAFE: &[(i64, &str, &str)] = &[
    (0x6969, "NFS", "file locks are not reliable there"),
    (0xff53_4d42, "CIFS", "file locks are not reliable there"),
    (0xfe53_4d42, "SMB", "file locks are not reliable there"),
    (0x0102_1997, "9p", "file locks are not reliable there"),
    (0x0102_1994, "tmpfs", "it is lost when the machine restarts"),
    (0x794c_7630, "overlay", "it is lost with its container"),
];
const LITTLE_BYTES: u64 = 100 * 1024 * 1024;
const LARGE_LOG_BYTES: u64 = 512 * 1024 * 1024;

type FileCheck = fn(&Connection, &Path) -> rusqlite::Result<Finding>;

const CHECKS: &[(&str, FileCheck)] = &[
    ("journal", journal),
    ("format", format),
    ("tables", tables),
    ("integrity", integrity),
    ("records", |conn, _| records::of_file(conn)),
];

pub(super) fn examine(path: &Path) -> Vec<Finding> {
    let found = SqliteStore::format(path);
    if let Some(finding) = of_unreleased(&found) {
        return vec![finding];
    }
    if matches!(found, Ok(None)) {
        let found = format!("there is no database at {}", path.display());
        return vec![Finding::problem("file", found, "create it: windlass migrate")];
    }
    let mut findings = vec![file(path), file_system(path), space(path), log(path)];
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match Connection::open_with_flags(path, flags) {
        Ok(conn) => findings.extend(CHECKS.iter().map(|(name, check)| {
            check(&conn, path).unwrap_or_else(|error| {
                let advice = "restore the file from a backup, if it is from Windlass";
                Finding::problem(name, format!("cannot be checked: {error}"), advice)
            })
        })),
        Err(error) => findings.push(Finding::problem("file", error.to_string(), "check rights")),
    }
    findings
}

fn file(path: &Path) -> Finding {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let closed = [path, folder].into_iter().find(|path| access(*path, Access::WRITE_OK).is_err());
    match closed {
        None => Finding::ok("file", "it and its folder can be written to"),
        Some(path) => {
            let found = format!("{} cannot be written to", path.display());
            Finding::problem("file", found, "give the user of the engine write permission")
        }
    }
}

fn file_system(path: &Path) -> Finding {
    const CHECK: &str = "file system";
    let number = match statfs(path) {
        // The width of this number depends on the platform.
        #[allow(clippy::unnecessary_cast, reason = "the type depends on the platform")]
        Ok(found) => (found.f_type as i64) & 0xffff_ffff,
        Err(error) => {
            let found = format!("not checked: {error}");
            return Finding::warning(CHECK, found, "check that it is a local disk");
        }
    };
    match UNSAFE.iter().find(|(unsafe_type, ..)| *unsafe_type == number) {
        Some((_, name, why)) => {
            Finding::warning(CHECK, format!("{name}: {why}"), "move the file to a local disk")
        }
        None => Finding::ok(CHECK, format!("a local one, by its number {number:#x}")),
    }
}

fn space(path: &Path) -> Finding {
    let free = match statvfs(path) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => {
            let found = format!("not checked: {error}");
            return Finding::warning("space", found, "check that some is free");
        }
    };
    let found = format!("{} MiB are free", free / 1_048_576);
    if free < LITTLE_BYTES {
        let advice = "free some: no writes are possible on a full disk";
        Finding::warning("space", found, advice)
    } else {
        Finding::ok("space", found)
    }
}

fn log(path: &Path) -> Finding {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let bytes = Path::new(&log).metadata().map_or(0, |found| found.len());
    let found = format!("{} MiB", bytes / 1_048_576);
    if bytes > LARGE_LOG_BYTES {
        let advice = "end long read transactions: they prevent checkpoints";
        Finding::warning("write-ahead log", found, advice)
    } else {
        Finding::ok("write-ahead log", found)
    }
}

fn journal(conn: &Connection, _: &Path) -> rusqlite::Result<Finding> {
    let mode: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    Ok(match mode.as_str() {
        "wal" => Finding::ok("journal", "wal; engines open it with synchronous=FULL"),
        _ => {
            let advice = "let no other program change it; the next engine turns on wal";
            Finding::warning("journal", format!("{mode} instead of wal"), advice)
        }
    })
}

fn format(conn: &Connection, _: &Path) -> rusqlite::Result<Finding> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (format, lowest) =
        conn.query_row("SELECT format, lowest_compatible FROM meta", [], read)?;
    Ok(of_format(format, lowest, FORMAT))
}

fn tables(conn: &Connection, _: &Path) -> rusqlite::Result<Finding> {
    let mut statement = conn.prepare("SELECT name FROM sqlite_schema")?;
    let there: Vec<String> =
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let plan = Plan::of(MIGRATIONS);
    let planned: Vec<&String> = plan.tables.iter().chain(plan.indexes.keys()).collect();
    let missing: Vec<&str> =
        planned.iter().filter(|name| !there.contains(name)).map(|name| name.as_str()).collect();
    Ok(if missing.is_empty() {
        Finding::ok("tables", format!("all {} tables and indexes", planned.len()))
    } else {
        let found = format!("missing: {}", missing.join(", "));
        let advice = "windlass migrate; if that does not help, restore the file from a backup";
        Finding::problem("tables", found, advice)
    })
}

fn integrity(conn: &Connection, path: &Path) -> rusqlite::Result<Finding> {
    let outcome: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok(match outcome.as_str() {
        "ok" => Finding::ok("integrity", "a quick check found no problem"),
        _ => {
            let advice = format!("restore {} from a backup", path.display());
            Finding::problem("integrity", outcome, advice)
        }
    })
}

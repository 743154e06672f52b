use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use tokio_postgres::config::Host;
use tokio_postgres::{Config, Error};
use windlass_store_postgres::Trust;

use crate::doctor::finding::Finding;
use crate::doctor::postgres::{QueryCheck, QueryResult};

/// The first version that reports the status of a transaction by its id.
const OLDEST: i64 = 13;
const TESTED: i64 = 15;

pub(super) const CHECKS: &[QueryCheck] = &[
    QueryCheck {
        check: "version",
        sql: "SELECT current_setting('server_version_num')::bigint, \
              current_setting('server_version')",
        judge: version,
    },
    QueryCheck {
        check: "role of the server",
        sql: "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')",
        judge: role,
    },
    QueryCheck {
        check: "encoding",
        sql: "SELECT current_setting('server_encoding')",
        judge: encoding,
    },
    QueryCheck {
        check: "connections",
        sql: "SELECT current_setting('max_connections')::bigint \
              - current_setting('superuser_reserved_connections')::bigint, \
              (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL)",
        judge: connections,
    },
    QueryCheck {
        check: "clock",
        sql: "SELECT extract(epoch FROM clock_timestamp())::float8",
        judge: clock,
    },
    QueryCheck {
        check: "TLS",
        sql: "SELECT coalesce((SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() \
              AND ssl), '')",
        judge: tls,
    },
];

fn version(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let (number, name): (i64, String) = (result.row().try_get(0)?, result.row().try_get(1)?);
    let found = format!("{name}; {OLDEST} and later are supported, tests run on {TESTED}");
    Ok(vec![match number / 10_000 {
        major if major < OLDEST => {
            Finding::problem("version", found, "move the database to a newer server")
        }
        _ => Finding::ok("version", found),
    }])
}

fn role(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    const CHECK: &str = "role of the server";
    let (standby, read_only): (bool, String) = (result.row().try_get(0)?, result.row().try_get(1)?);
    Ok(vec![if standby {
        let advice =
            "name the primary in the URL, or all hosts and target_session_attrs=read-write";
        Finding::problem(CHECK, "a standby, which accepts no writes", advice)
    } else if read_only == "on" {
        let advice = "turn default_transaction_read_only off for this role";
        Finding::problem(CHECK, "transactions are read only", advice)
    } else {
        Finding::ok(CHECK, "a primary, which accepts writes")
    }])
}

fn encoding(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let found: String = result.row().try_get(0)?;
    Ok(vec![match found.as_str() {
        "UTF8" => Finding::ok("encoding", found),
        _ => Finding::problem("encoding", found, "use a database created with UTF8"),
    }])
}

fn connections(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let (most, used): (i64, i64) = (result.row().try_get(0)?, result.row().try_get(1)?);
    // A store has one more connection, for LISTEN.
    let needed = i64::try_from(result.options.connections).unwrap_or(i64::MAX).saturating_add(1);
    let found = format!("{used} of {most} are used; an engine with this URL uses up to {needed}");
    Ok(vec![if most - used < needed {
        let advice = "raise max_connections, lower connections= in the URL, or use PgBouncer";
        Finding::warning("connections", found, advice)
    } else {
        Finding::ok("connections", found)
    }])
}

fn clock(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    const FINE: f64 = 1.0;
    let server: f64 = result.row().try_get(0)?;
    let seconds = |at: SystemTime| {
        at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    };
    let trip = result.after.duration_since(result.before).unwrap_or(Duration::ZERO).as_secs_f64();
    let skew = server - (seconds(result.before) + trip / 2.0);
    let found = format!("the server is {skew:+.3} s from this machine, give or take {trip:.3} s");
    Ok(vec![if skew.abs() > FINE + trip {
        let advice = "synchronize both clocks (NTP): engines use that of the server";
        Finding::warning("clock", found, advice)
    } else {
        Finding::ok("clock", found)
    }])
}

fn tls(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let version: String = result.row().try_get(0)?;
    let verified = result.options.trust != Trust::AnyCertificate;
    Ok(vec![match location(result.config) {
        ServerLocation::Socket => Finding::ok("TLS", "a socket, where none is needed"),
        _ if verified => Finding::ok("TLS", "encrypted, and the server is verified"),
        ServerLocation::ThisMachine if version.is_empty() => {
            Finding::ok("TLS", "none; the server is this machine")
        }
        ServerLocation::ThisMachine => {
            Finding::ok("TLS", format!("{version}; the server is this machine"))
        }
        ServerLocation::Remote if version.is_empty() => Finding::warning(
            "TLS",
            "none: payloads can be read on the way",
            "turn on ssl on the server, and set sslmode=verify-full in the URL",
        ),
        ServerLocation::Remote => Finding::warning(
            "TLS",
            format!("{version}, but the server is not verified"),
            "set sslmode=verify-full in the URL, and sslrootcert=FILE for your own certificates",
        ),
    }])
}

enum ServerLocation {
    Socket,
    ThisMachine,
    Remote,
}

fn location(config: &Config) -> ServerLocation {
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
        Host::Unix(_) => true,
    };
    let hosts = config.get_hosts();
    if hosts.iter().all(|host| matches!(host, Host::Unix(_))) {
        ServerLocation::Socket
    } else if hosts.iter().all(is_local) {
        ServerLocation::ThisMachine
    } else {
        ServerLocation::Remote
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_location_of_a_server_follows_from_its_hosts() {
        for (url, expected) in [
            ("postgres:///d?host=/tmp", "socket"),
            ("postgres://localhost/d", "this machine"),
            ("postgres://127.0.0.1/d", "this machine"),
            ("postgres://localhost,db.example/d", "remote"),
            ("postgres://10.0.0.1/d", "remote"),
        ] {
            let found = match location(&url.parse().unwrap()) {
                ServerLocation::Socket => "socket",
                ServerLocation::ThisMachine => "this machine",
                ServerLocation::Remote => "remote",
            };
            assert_eq!(found, expected, "{url}");
        }
    }
}

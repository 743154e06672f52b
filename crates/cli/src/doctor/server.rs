use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use tokio_postgres::config::Host;
use tokio_postgres::{Config, Error};
use windlass_store_postgres::Trust;

use crate::doctor::finding::Finding;
use crate::doctor::postgres::{Look, Seen};

/// The first version that reports the status of a transaction by its id.
const OLDEST: i64 = 13;
const TESTED: i64 = 15;

pub(super) const LOOKS: &[Look] = &[
    Look {
        check: "version",
        sql: "SELECT current_setting('server_version_num')::bigint, \
              current_setting('server_version')",
        judge: version,
    },
    Look {
        check: "role of the server",
        sql: "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')",
        judge: role,
    },
    Look { check: "encoding", sql: "SELECT current_setting('server_encoding')", judge: encoding },
    Look {
        check: "connections",
        sql: "SELECT current_setting('max_connections')::bigint \
              - current_setting('superuser_reserved_connections')::bigint, \
              (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL)",
        judge: connections,
    },
    Look {
        check: "clock",
        sql: "SELECT extract(epoch FROM clock_timestamp())::float8",
        judge: clock,
    },
    Look {
        check: "TLS",
        sql: "SELECT coalesce((SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() \
              AND ssl), '')",
        judge: tls,
    },
];

fn version(seen: &Seen<'_>) -> Result<Vec<Finding>, Error> {
    let (number, name): (i64, String) = (seen.row().try_get(0)?, seen.row().try_get(1)?);
    let found = format!("{name}; {OLDEST} and later are supported, tests run on {TESTED}");
    Ok(vec![match number / 10_000 {
        major if major < OLDEST => {
            Finding::problem("version", found, "move the database to a newer server")
        }
        _ => Finding::ok("version", found),
    }])
}

fn role(seen: &Seen<'_>) -> Result<Vec<Finding>, Error> {
    const CHECK: &str = "role of the server";
    let (standby, read_only): (bool, String) = (seen.row().try_get(0)?, seen.row().try_get(1)?);
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

fn encoding(seen: &Seen<'_>) -> Result<Vec<Finding>, Error> {
    let found: String = seen.row().try_get(0)?;
    Ok(vec![match found.as_str() {
        "UTF8" => Finding::ok("encoding", found),
        _ => Finding::problem("encoding", found, "use a database created with UTF8"),
    }])
}

fn connections(seen: &Seen<'_>) -> Result<Vec<Finding>, Error> {
    let (most, used): (i64, i64) = (seen.row().try_get(0)?, seen.row().try_get(1)?);
    // A store has one more connection, for LISTEN.
    let wanted = i64::try_from(seen.options.connections).unwrap_or(i64::MAX).saturating_add(1);
    let found = format!("{used} of {most} are used; an engine with this URL uses up to {wanted}");
    Ok(vec![if most - used < wanted {
        let advice = "raise max_connections, lower connections= in the URL, or use PgBouncer";
        Finding::warning("connections", found, advice)
    } else {
        Finding::ok("connections", found)
    }])
}

fn clock(seen: &Seen<'_>) -> Result<Vec<Finding>, Error> {
    const FINE: f64 = 1.0;
    let server: f64 = seen.row().try_get(0)?;
    let seconds = |at: SystemTime| {
        at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    };
    let trip = seen.after.duration_since(seen.before).unwrap_or(Duration::ZERO).as_secs_f64();
    let skew = server - (seconds(seen.before) + trip / 2.0);
    let found = format!("the server is {skew:+.3} s from this machine, give or take {trip:.3} s");
    Ok(vec![if skew.abs() > FINE + trip {
        let advice = "synchronize both clocks (NTP): engines use that of the server";
        Finding::warning("clock", found, advice)
    } else {
        Finding::ok("clock", found)
    }])
}

fn tls(seen: &Seen<'_>) -> Result<Vec<Finding>, Error> {
    let version: String = seen.row().try_get(0)?;
    let verified = seen.options.trust != Trust::Anybody;
    Ok(vec![match place(seen.config) {
        Place::Socket => Finding::ok("TLS", "a socket, where none is needed"),
        _ if verified => Finding::ok("TLS", "encrypted, and the server is verified"),
        Place::Here if version.is_empty() => Finding::ok("TLS", "none; the server is this machine"),
        Place::Here => Finding::ok("TLS", format!("{version}; the server is this machine")),
        Place::Elsewhere if version.is_empty() => Finding::warning(
            "TLS",
            "none: payloads can be read on the way",
            "turn on ssl on the server, and set sslmode=verify-full in the URL",
        ),
        Place::Elsewhere => Finding::warning(
            "TLS",
            format!("{version}, but the server is not verified"),
            "set sslmode=verify-full in the URL, and sslrootcert=FILE for your own certificates",
        ),
    }])
}

enum Place {
    Socket,
    Here,
    Elsewhere,
}

fn place(config: &Config) -> Place {
    let is_here = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
        Host::Unix(_) => true,
    };
    let hosts = config.get_hosts();
    if hosts.iter().all(|host| matches!(host, Host::Unix(_))) {
        Place::Socket
    } else if hosts.iter().all(is_here) {
        Place::Here
    } else {
        Place::Elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        for (url, expected) in [
            ("postgres:///d?host=/tmp", "socket"),
            ("postgres://localhost/d", "here"),
            ("postgres://127.0.0.1/d", "here"),
            ("postgres://localhost,db.example/d", "elsewhere"),
            ("postgres://10.0.0.1/d", "elsewhere"),
        ] {
            let found = match place(&url.parse().unwrap()) {
                Place::Socket => "socket",
                Place::Here => "here",
                Place::Elsewhere => "elsewhere",
            };
            assert_eq!(found, expected, "{url}");
        }
    }
}

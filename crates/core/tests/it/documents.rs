//! Checks that the guides are true: links resolve, the tests they name exist, the limits are those
//! of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use windlass_core::limits;

const WIDEST: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every guide, with its text.
fn guides() -> Vec<(PathBuf, String)> {
    let mut folders = vec![root().join("docs")];
    let mut guides = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder exists") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = read(&path);
                guides.push((path, text));
            }
        }
    }
    guides.sort();
    assert!(!guides.is_empty(), "guides exist");
    guides
}

/// The text without its blocks of code.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The text between single backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let characters = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    characters.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut dead = Vec::new();
    for (guide, text) in guides() {
        for rest in prose(&text).split("](").skip(1) {
            let target = rest.split(')').next().unwrap();
            let (file, part) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => guide.clone(),
                _ => guide.parent().unwrap().join(file),
            };
            let there = path.exists() && (part.is_empty() || anchors(&read(&path)).contains(part));
            if !there {
                dead.push(format!("{}: {target}", guide.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

#[test]
fn files_that_are_named_exist() {
    let mut missing = Vec::new();
    for (guide, text) in guides() {
        let prose = prose(&text);
        let files = quoted(&prose).filter(|word| word.starts_with("crates/"));
        let gone = files.filter(|file| !root().join(file).exists());
        missing.extend(gone.map(|file| format!("{}: {file}", guide.display())));
    }
    assert!(missing.is_empty(), "no such files:\n{}", missing.join("\n"));
}

#[test]
fn lines_fit() {
    let mut long = Vec::new();
    for (guide, text) in guides() {
        for (at, line) in text.lines().enumerate() {
            if line.chars().count() > WIDEST {
                long.push(format!("{}:{}", guide.display(), at + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than {WIDEST}:\n{}", long.join("\n"));
}

/// The guarantees say "Shown by", then names of tests, each group followed by its file.
#[test]
fn the_tests_that_are_named_exist() {
    let guides = ["README.md", "requests.md", "waiting.md", "workflows.md"];
    let guides = guides.map(|name| root().join("docs/guarantees").join(name));
    let text: String = guides.iter().map(|guide| prose(&read(guide))).collect();
    // Lines may be wrapped anywhere.
    let text = text.replace("Shown\n  by ", "Shown by ").replace("Shown by\n  ", "Shown by ");
    let mut missing = Vec::new();
    let mut shown = 0;
    for passage in text.split("Shown by ").skip(1) {
        let passage = passage.split("\n\n").next().unwrap().split("\n* ").next().unwrap();
        let mut names = Vec::new();
        for word in quoted(passage) {
            if !word.starts_with("crates/") {
                names.push(word);
                continue;
            }
            assert!(!names.is_empty(), "a file without a test: {word}");
            let source = read(&root().join(word));
            shown += names.len();
            let gone = names.drain(..).filter(|name| !source.contains(&format!("fn {name}(")));
            missing.extend(gone.map(|name| format!("{name} in {word}")));
        }
        assert!(names.is_empty(), "tests without a file: {names:?}");
    }
    assert!(missing.is_empty(), "no such tests:\n{}", missing.join("\n"));
    assert!(shown > 0, "the guarantees name their tests");
}

/// For each limit: its name, and its numbers as people read them.
type Limits = BTreeMap<String, Vec<String>>;

macro_rules! limits {
    ($show:expr => $($NAME:ident),* $(,)?) => {
        [$((stringify!($NAME).to_owned(), $show(stringify!($NAME), limits::$NAME))),*]
    };
}

fn texts() -> Limits {
    let show = |_: &str, limit: limits::TextLimit| vec![bytes(limit.max_bytes as i64)];
    Limits::from(limits!(show =>
        TENANT, TASK_ID, KIND, LANE, WORKER, NODE_ID, NODE_NAME, NODE_VERSION, TAG, CAPABILITY,
        CONTENT_TYPE, IDEMPOTENCY_KEY,
        SUBSCRIPTION, INCARNATION, CONCURRENCY_KEY, KEY_ID, LABEL_NAME, LABEL_VALUE,
        MESSAGE_NAME, MESSAGE_SOURCE,
        OPERATOR, PARENT, PROGRESS, LIMITER, PROVIDER, EFFECT, REQUEST_ID, PRINCIPAL, ACCOUNT,
        OWNER, REASON, SESSION, WAITPOINT_ID, WORKFLOW_ID, VERSION, PROPERTY_NAME, PROPERTY_VALUE,
        STATUS,
        RUNTIME_METADATA,
    ))
}

fn ranges() -> Limits {
    let show = |name: &str, limit: limits::RangeLimit| {
        vec![readable(name, limit.min), readable(name, limit.max)]
    };
    Limits::from(limits!(show =>
        PRIORITY, CAPABILITIES, CAPABILITIES_BYTES, ROUTE_BYTES, LABELS, PAYLOAD_BYTES, CREATE_TASKS,
        CLAIM_TASKS,
        CLAIM_LANES, LEASE_MS, TIMEOUT_MS, DELAY_MS, DEADLINE_MS, BACKOFF_MS, PERCENT, JITTER,
        ATTEMPTS, LOST_LEASES, REPLAYS, RETENTION_MS, WINDOW_MS, LANE_LIMIT, HELD_LEASES,
        HEARTBEAT_MS, PAGE,
        CONDITION_COUNT, CONDITION_DEPTH, CONDITION_PARTS, GRACE_MS, GRANT_MS, UNITS,
        SPEND_CHARGES,
        REPLAY_MS, IN_FLIGHT_MS, TOMBSTONE_MS, RETRY_AFTER_MS, MESSAGE_BYTES, SEND_MESSAGES, QUOTA,
        RATE_LIMIT, RATE_WINDOW_MS, SECRET_BYTES, SEQ, SESSION_IDLE_MS, SESSION_LOCK_MS, SUSPEND_MS,
        SUSPEND_WAITPOINTS, CONSUME_MESSAGES, WAITPOINT_MS, TURN_COMMANDS, TURN_BYTES, TURN_MESSAGES, BUFFER_MS,
        CLEAR_STICKY, RENEW_WORKERS,
    ))
}

fn others() -> Limits {
    let show = |name: &str, number: u32| vec![readable(name, number.into())];
    let show_ms =
        |name: &str, ms: u64| vec![readable(name, i64::try_from(ms).expect("a short while"))];
    let mut others = Limits::from(limits!(show =>
        ROUTES_PER_LANE, DEFAULT_MAX_LOST_LEASES, DEFAULT_TURN_LOST_LEASES, DEFAULT_MAX_REPLAYS,
        MAILBOX_MESSAGES, MAILBOX_BYTES, EXTENDED_MAILBOX_MESSAGES, EXTENDED_MAILBOX_BYTES, WAITPOINTS_PER_TASK,
        KEYS_PER_TENANT, MIN_REQUEST_KEY_LENGTH,
        BUFFERED_MESSAGES_PER_ID, TENANT_BUFFERED_MESSAGES, TENANT_BUFFERED_BYTES,
    ));
    others.extend(limits!(show_ms =>
        DEFAULT_RETENTION_MS, DEFAULT_WINDOW_MS, DEFAULT_SESSION_IDLE_MS,
    ));
    others
}

fn readable(name: &str, number: i64) -> String {
    if name.ends_with("_MS") {
        duration(number)
    } else if name.ends_with("_BYTES") {
        bytes(number)
    } else {
        grouped(number)
    }
}

fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

fn bytes(number: i64) -> String {
    match number {
        mebibytes if mebibytes > 0 && mebibytes % (1 << 20) == 0 => {
            format!("{} MiB", grouped(mebibytes >> 20))
        }
        bytes => format!("{} bytes", grouped(bytes)),
    }
}

fn duration(ms: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    match ms {
        DAY_MS => "1 day".into(),
        days if days > 0 && days % DAY_MS == 0 => format!("{} days", grouped(days / DAY_MS)),
        seconds if seconds > 0 && seconds % 1_000 == 0 => format!("{} s", grouped(seconds / 1_000)),
        ms => format!("{} ms", grouped(ms)),
    }
}

/// The limits in the table under a heading: the first column names them, the last are numbers.
fn written(page: &str, heading: &str) -> Limits {
    let part = page.split(&format!("## {heading}\n")).nth(1).expect("the heading exists");
    let part = part.split("\n## ").next().unwrap_or(part);
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    let limits = rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let name = cells[0].trim_matches('`').to_owned();
        (name, cells[2..].iter().map(|&cell| cell.to_owned()).collect())
    });
    limits.collect()
}

#[test]
fn the_table_of_limits_is_that_of_the_code() {
    let page = read(&root().join("docs/guarantees/limits.md"));
    assert_eq!(written(&page, "Texts"), texts());
    assert_eq!(written(&page, "Numbers"), ranges());
    assert_eq!(written(&page, "Others"), others());
}

#[test]
fn no_limit_is_left_out() {
    let source = read(&root().join("crates/core/src/limits.rs"));
    let declared = source.lines().filter_map(|line| line.strip_prefix("pub const "));
    let declared: BTreeSet<&str> = declared.map(|line| line.split(':').next().unwrap()).collect();
    let listed: Limits = texts().into_iter().chain(ranges()).chain(others()).collect();
    let listed: BTreeSet<&str> = listed.keys().map(String::as_str).collect();
    assert_eq!(listed, declared);
}

/// The texts of a column in the first table after this text, without backticks.
fn column(page: &str, after: &str, column: usize) -> BTreeSet<String> {
    let part = page.split(after).nth(1).expect("the text exists");
    let rows = part.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cell = |row: &str| row.trim_matches('|').split('|').nth(column).map(str::to_owned);
    rows.filter_map(cell).map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
}

/// The stable texts that a function of a source file returns, one per line.
fn texts_of(path: &str, function: &str) -> BTreeSet<String> {
    let source = read(&root().join(path));
    let body = source.split(&format!("fn {function}(")).nth(1).expect("the function exists");
    let body = body.split("\n    }\n").next().unwrap_or(body);
    let texts = body.lines().filter_map(|line| line.split_once("=> \"")?.1.split('"').next());
    texts.map(str::to_owned).collect()
}

#[test]
fn every_state_event_and_rejection_is_documented() {
    let page = |path: &str| read(&root().join(path));
    let states = windlass_core::PublicState::ALL.iter().map(|state| state.as_str().to_owned());
    assert_eq!(column(&page("docs/learn/tasks.md"), "## Every state\n", 0), states.collect());
    let events = texts_of("crates/core/src/event.rs", "name");
    assert_eq!(column(&page("docs/learn/log.md"), "## Every event\n", 1), events);
    let codes = texts_of("crates/core/src/rejection.rs", "code");
    assert_eq!(column(&page("docs/learn/README.md"), "## Rejection codes\n", 0), codes);
    assert!(events.len() > 30 && codes.len() > 30, "{events:?} {codes:?}");
}

/// The obstacles of a ready task, and the column `why` of every state.
#[test]
fn every_why_code_is_documented() {
    let source = read(&root().join("crates/core/src/why.rs"));
    let body = source.split("pub enum Why {").nth(1).and_then(|rest| rest.split("\n}").next());
    let is_variant =
        |line: &&str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
    let name = |line: &str| line.trim().split([' ', ',', '(']).next().map(snake_case);
    let codes: BTreeSet<String> =
        body.expect("the enum").lines().filter(is_variant).filter_map(name).collect();
    let page = read(&root().join("docs/learn/tasks.md"));
    let mut documented = column(&page, "## Every state\n", 3);
    documented.retain(|cell| !cell.contains(' '));
    documented.extend(column(&page, "obstacle in this order:", 0));
    assert!(page.contains("has the code `granted`"), "the sentence before the second table");
    documented.insert("granted".into());
    assert_eq!(documented, codes);
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

#[test]
fn the_documented_format_is_the_number_of_migrations() {
    let formats = ["store-sqlite", "store-postgres"].map(|store| {
        let folder = root().join("crates").join(store).join("migrations");
        fs::read_dir(&folder).expect("the folder of migrations").count()
    });
    assert_eq!(formats[0], formats[1], "the documents name one format for both");
    for path in ["docs/operate/upgrade.md", "CHANGELOG.md"] {
        let text = read(&root().join(path)).replace('\n', " ");
        assert!(text.contains(&format!("format {}", formats[0])), "{path}");
    }
}

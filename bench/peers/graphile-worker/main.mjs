// Jobs that do nothing, added and drained through graphile-worker on Postgres.

import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { parseArgs } from "node:util";

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

// How many jobs are done before anything is measured: the code is compiled by then.
const WARM_UP = 5_000;
const MAIL = { to: "customer@example.com", subject: "hello", template: "welcome" };

const { values: given } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    url: { type: "string" },
    jobs: { type: "string", default: "50000" },
    push: { type: "string", default: "one-by-one" }, // or bulk
    bulk: { type: "string", default: "500" },
    callers: { type: "string", default: "64" },
    connections: { type: "string" }, // 16, or 10 in bulk
    queue: { type: "string", default: "500" },
    concurrent: { type: "string", default: "24" },
    "batch-delay": { type: "string", default: "0" },
  },
});

const settings = {
  url: given.url ?? fail("--url says where Postgres is"),
  jobs: number("jobs"),
  bulk: number("bulk"),
  callers: number("callers"),
  connections: number("connections", given.push === "bulk" ? 10 : 16),
  queue: number("queue"),
  concurrent: number("concurrent"),
  delay: number("batch-delay"),
  oneByOne: { "one-by-one": true, bulk: false }[given.push] ?? fail(`--push ${given.push}`),
};

function fail(message) {
  throw new Error(message);
}

function number(option, otherwise) {
  const value = Number(given[option] ?? otherwise);
  return Number.isInteger(value) ? value : fail(`--${option} ${given[option]}: not a number`);
}

// A pool whose connections are the same from start to end.
function open() {
  const pool = new pg.Pool({
    connectionString: settings.url,
    max: settings.connections,
    min: settings.connections,
    idleTimeoutMillis: 0,
  });
  const lost = (error) => {
    throw error;
  };
  pool.on("error", lost);
  pool.on("connect", (client) => client.on("error", lost));
  return pool;
}

// Holds every connection at the same time, so that none is missed.
async function all(pool) {
  return Promise.all(Array.from({ length: settings.connections }, () => pool.connect()));
}

// How durable a commit is, by every connection there is, and which connections these are.
async function durability(pool) {
  const clients = await all(pool);
  const text =
    "SELECT current_setting('fsync') AS fsync, pg_backend_pid() AS pid, " +
    "current_setting('synchronous_commit') AS commit";
  const rows = await Promise.all(clients.map(async (client) => (await client.query(text)).rows[0]));
  clients.forEach((client) => client.release());
  const said = rows.map((row) => `fsync=${row.fsync}, synchronous_commit=${row.commit}`);
  const pids = rows.map((row) => row.pid).sort((a, b) => a - b);
  return { words: [...new Set(said)].join(" / "), pids: pids.join(" ") };
}

// Every call is answered when its job is committed.
async function addOneByOne(utils, jobs) {
  let pushed = 0;
  const caller = async () => {
    while (pushed++ < jobs) {
      await utils.addJob("mail", MAIL);
    }
  };
  await Promise.all(Array.from({ length: settings.callers }, caller));
}

async function addInBulk(utils, jobs) {
  for (let left = jobs; left > 0; left -= settings.bulk) {
    const spec = { identifier: "mail", payload: MAIL };
    await utils.addJobs(Array(Math.min(left, settings.bulk)).fill(spec));
  }
}

// Returns when every job is handled and its completion is committed: a stop waits for both.
async function drain(pool, preset, jobs) {
  let handled = 0;
  let last;
  const allHandled = new Promise((resolve) => (last = resolve));
  const mail = async () => {
    if (++handled === jobs) {
      last();
    }
  };
  const runner = await run({ preset, pgPool: pool, taskList: { mail }, noHandleSignals: true });
  await allHandled;
  await runner.stop();
  if (handled !== jobs) {
    fail(`${handled} jobs of ${jobs} were handled`);
  }
}

async function left(pool) {
  const { rows } = await pool.query("SELECT count(*)::int AS jobs FROM graphile_worker.jobs");
  return rows[0].jobs;
}

function batching() {
  const push = settings.oneByOne
    ? `${settings.callers} callers, 1 an addJob`
    : `1 producer, ${settings.bulk} an addJobs`;
  const { queue, concurrent, delay, connections } = settings;
  return (
    `${push}; localQueue ${queue}, ${concurrent} concurrentJobs, ` +
    `completeJobBatchDelay ${delay} ms, ${connections} connections`
  );
}

async function cycle(pool, utils, preset, jobs, oneByOne) {
  const started = performance.now();
  await (oneByOne ? addOneByOne(utils, jobs) : addInBulk(utils, jobs));
  const added = performance.now();
  const waiting = await left(pool);
  if (waiting !== jobs) {
    fail(`${waiting} jobs of ${jobs} were added`);
  }
  const draining = performance.now();
  await drain(pool, preset, jobs);
  const drained = performance.now();
  const undone = await left(pool);
  if (undone !== 0) {
    fail(`${undone} jobs of ${jobs} are left`);
  }
  return { add: added - started, drain: drained - draining };
}

async function main() {
  const pool = open();
  const before = await durability(pool);
  // It logs every job otherwise.
  const logger = new Logger(() => (level, message) => {
    if (level === "error") {
      console.error(message);
    }
  });
  const preset = {
    worker: {
      logger,
      maxPoolSize: settings.connections,
      concurrentJobs: settings.concurrent,
      localQueue: { size: settings.queue },
      completeJobBatchDelay: settings.delay,
      failJobBatchDelay: settings.delay,
    },
  };
  const utils = await makeWorkerUtils({ preset, pgPool: pool });
  await utils.migrate();
  await cycle(pool, utils, preset, WARM_UP, false);
  const took = await cycle(pool, utils, preset, settings.jobs, settings.oneByOne);
  const after = await durability(pool);
  if (before.words !== after.words || before.pids !== after.pids) {
    fail(`the connections changed: ${before.words}, then ${after.words}`);
  }
  await utils.release();
  await pool.end();
  const perSecond = (ms) => Math.round((settings.jobs * 1_000) / ms);
  const report = {
    peer: "graphile-worker",
    version: version("graphile-worker"),
    node: process.version,
    tasks: settings.jobs,
    push: given.push,
    fill_per_s: perSecond(took.add),
    tasks_per_s: perSecond(took.drain),
    end_to_end_per_s: perSecond(took.add + took.drain),
    durability: before.words,
    connections: settings.connections,
    batching: batching(),
  };
  console.log(JSON.stringify(report, null, given.json ? 0 : 2));
}

// From the lock file that was installed.
function version(name) {
  const lock = JSON.parse(readFileSync(new URL("package-lock.json", import.meta.url), "utf8"));
  return lock.packages[`node_modules/${name}`].version;
}

await main();

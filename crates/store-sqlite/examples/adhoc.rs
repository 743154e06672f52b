use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::command::*;
use windlass_core::*;
use windlass_store::*;
use windlass_store_sqlite::SqliteStore;

#[derive(Default, Debug)]
struct T { begin: Duration, load: Duration, commit: Duration, decide: Duration, finish: Duration, n: usize, rounds: usize }

async fn batch(store: &SqliteStore, commands: &[Command], hints: &mut Hints, t: &mut T) -> Vec<Outcome> {
    let a = Instant::now();
    let mut tx = store.begin().await.unwrap();
    t.begin += a.elapsed();
    let mut world = World::new(tx.now(), std::mem::take(hints));
    let mut done: Vec<Option<Outcome>> = commands.iter().map(|_| None).collect();
    loop {
        let a = Instant::now();
        for (c, d) in commands.iter().zip(&mut done) {
            if d.is_none() {
                if let Decided::Ready(r) = decide(&mut world, c) { *d = Some(r.unwrap()); }
            }
        }
        t.rounds += 1;
        let w = world.wanted();
        t.decide += a.elapsed();
        let Some(w) = w else { break };
        let w = Arc::new(w);
        let a = Instant::now();
        let l = tx.load(w.clone()).await.unwrap();
        t.load += a.elapsed();
        let a = Instant::now();
        world.learn(&w, l);
        t.decide += a.elapsed();
    }
    let a = Instant::now();
    let (c, h) = world.finish();
    *hints = h;
    t.finish += a.elapsed();
    let a = Instant::now();
    tx.commit(Arc::new(c)).await.unwrap();
    t.commit += a.elapsed();
    t.n += commands.len();
    done.into_iter().map(|d| d.unwrap()).collect()
}

fn show(name: &str, t: &T, wall: Duration) {
    let us = |d: Duration| d.as_secs_f64() * 1e6 / t.n as f64;
    println!("{name:10} {:8.0}/s  per cmd us: begin {:.2} load {:.2} commit {:.2} | decide {:.2} finish {:.2} rounds/batch {:.2}",
        t.n as f64 / wall.as_secs_f64(), us(t.begin), us(t.load), us(t.commit), us(t.decide), us(t.finish), t.rounds as f64 / (t.n as f64/256.0));
}

fn rss() -> u64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap();
    s.lines().find(|l| l.starts_with("VmHWM")).unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let path = &args[1];
    let pre: usize = args[2].parse().unwrap();
    let n: usize = args[3].parse().unwrap();
    let store = SqliteStore::open(path).unwrap();
    let mut hints = Hints::default();
    let create = |_| -> Command { let mut t = NewTask::new(uuid::Uuid::now_v7().to_string(), "email"); t.payload = Some(Payload::json(format!("{{\"to\":\"{}\"}}", "x".repeat(100)))); Create::one(t).into() };
    let mut t = T::default();
    let w = Instant::now();
    for _ in 0..pre / 256 {
        let c: Vec<Command> = (0..256).map(create).collect();
        batch(&store, &c, &mut hints, &mut t).await;
    }
    if pre > 0 { show("preload", &t, w.elapsed()); }
    let (mut tc, mut tl, mut td) = (T::default(), T::default(), T::default());
    let (mut wc, mut wl, mut wd) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for _ in 0..n / 256 {
        let c: Vec<Command> = (0..256).map(create).collect();
        let a = Instant::now();
        batch(&store, &c, &mut hints, &mut tc).await;
        wc += a.elapsed();
        let c: Vec<Command> = (0..256).map(|i| Claim::new(format!("w{i}")).into()).collect();
        let a = Instant::now();
        let out = batch(&store, &c, &mut hints, &mut tl).await;
        wl += a.elapsed();
        let c: Vec<Command> = out.iter().map(|o| { let Outcome::Claimed(ts) = o else { panic!() }; let x = &ts[0]; Complete { fence: Fence { task: x.task_key(), epoch: x.epoch }, result: Some(Payload::json("{\"ok\":true}")) }.into() }).collect();
        let a = Instant::now();
        batch(&store, &c, &mut hints, &mut td).await;
        wd += a.elapsed();
    }
    show("create", &tc, wc); show("claim", &tl, wl); show("complete", &td, wd);
    let total = wc + wl + wd;
    println!("cycles/s {:.0} commands/s {:.0} peak rss {} MiB, file {} MiB", tc.n as f64 / total.as_secs_f64(), 3.0 * tc.n as f64 / total.as_secs_f64(), rss(), std::fs::metadata(path).unwrap().len() >> 20);
}

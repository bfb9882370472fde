//! Runs the targets without a fuzzer: every seed, and seeds with some of their bytes changed.

use std::path::Path;

use super::*;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 6] = [
    ("csv", csv),
    ("json", json),
    ("access_log", access_log),
    ("syslog", syslog),
    ("logfmt", logfmt),
    ("feed", feed),
];

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Runs a target and reports the failing input.
fn run(name: &str, target: Target, bytes: &[u8]) {
    if let Err(panic) = std::panic::catch_unwind(|| target(bytes)) {
        eprintln!("{name}: {:?}", String::from_utf8_lossy(bytes));
        eprintln!("{name}: {bytes:?}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn seeds_hold() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(seeds.len() >= 3, "{name}");
        for bytes in seeds {
            run(name, target, &bytes);
        }
    }
}

/// `ROUNDS=100000` runs more rounds.
#[test]
fn changed_seeds_hold() {
    let rounds = std::env::var("ROUNDS").map_or(500, |rounds| rounds.parse().unwrap());
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    let special = b",\"\n\r\\#= \t{}[]:<>0123456789.-+eEtrufalsn\x00\x1f\xc3\xa9\xff";
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        let mut random = Cuts(seed);
        for _ in 0..rounds {
            let mut bytes = seeds[random.below(seeds.len())].clone();
            for _ in 0..random.below(12) {
                let (at, to) = (random.below(bytes.len()), random.below(bytes.len()));
                match random.below(7) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 | 2 => bytes[at] = special[random.below(special.len())],
                    3 => bytes.insert(at, special[random.below(special.len())]),
                    4 if bytes.len() > 4 => drop(bytes.remove(at)),
                    5 if bytes.len() < 4000 => {
                        let part = bytes[at.min(to)..at.max(to)].to_vec();
                        bytes.splice(at..at, part);
                    }
                    _ => {
                        let other = &seeds[random.below(seeds.len())];
                        let from = random.below(other.len());
                        bytes.extend_from_slice(&other[from..]);
                    }
                }
            }
            run(name, target, &bytes);
        }
    }
}

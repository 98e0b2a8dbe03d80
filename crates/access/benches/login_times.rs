//! The time of a refused login, which must not reveal if the user exists or how much of the
//! password matches: `cargo bench -p holdall-access`, or with `TRIES=n`. It fails if a difference
//! of 100 nanoseconds cannot be excluded with 99 % confidence.
//!
//! Tries of the three cases are made in random order. The slowest twentieth of all tries, those
//! that the system interrupted, is left out before means are compared. A network hides more: a
//! refusal is sent a second after the attempt, regardless of its duration.
#![allow(clippy::print_stdout, reason = "the result is for a reader")]
#![allow(clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use access::{Auth, AuthWorker, Files, Login, Progress, Source};
use scram::{Client, Hash, Verifier};

/// Tries of each kind of login.
const TRIES: usize = 1_000_000;

/// The maximum accepted difference, in nanoseconds.
const DIFFERENCE_MAX: f64 = 100.0;

/// Standard errors on both sides of a mean that hold the true one in 99 of 100 cases.
const ERRORS: f64 = 2.576;

/// Iterations of the verifiers, which every name costs. They are few, since they increase noise but
/// not the possible differences.
const ITERATIONS: u32 = 16;

const PASSWORD: &str = "correct horse battery staple";

/// A guess and its name.
struct Guess {
    case: &'static str,
    name: &'static str,
    password: &'static str,
}

/// The others are compared with the first. All names and passwords have the same length.
const GUESSES: [Guess; 3] = [
    Guess { case: "no such user", name: "nobody", password: "wrong horse battery staples!" },
    Guess { case: "nothing fits", name: "editor", password: "wrong horse battery staples!" },
    Guess {
        case: "all but the last byte",
        name: "editor",
        password: "correct horse battery stapl!",
    },
];

fn main() -> ExitCode {
    let tries = std::env::var("TRIES").map_or(TRIES, |tries| tries.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let known = open(&folder.path().join("known"), PASSWORD);
    let salt = b"sixteen bytes...";
    let iterations = ITERATIONS.try_into().unwrap();
    let verifier = Verifier::derive(Hash::Sha256, iterations, salt, PASSWORD.as_bytes());
    let hashed = open(&folder.path().join("hashed"), &verifier.to_string());
    println!("nanoseconds; differences to a user who does not exist, with 99 % confidence");
    let is_alike = [
        compare("password in the file", tries, |guess| password(&known, guess)),
        compare("verifier in the file", tries, |guess| password(&hashed, guess)),
        compare("SCRAM, first message", tries, |guess| scram_first(&hashed, guess)),
        compare("SCRAM, second message", tries, |guess| scram_second(&hashed, guess)),
        compare("SCRAM, first message, password in the file", tries, |guess| {
            scram_first(&known, guess)
        }),
    ];
    if is_alike.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The logins of a server whose file of users has ten of them, one of them `editor`.
fn open(users: &Path, secret: &str) -> Auth {
    let names = (0..9).map(|number| format!("user-{number}")).chain(["editor".to_owned()]);
    let lines: String = names.map(|name| format!("{name}:{secret}\n")).collect();
    fs::write(users, lines).unwrap();
    Auth::open(Files { users: users.into(), rights: None, sasl: true }, |_| {}).unwrap()
}

/// A login with a name and a password, of the text protocol or PLAIN.
fn password(auth: &Auth, guess: &Guess) -> u64 {
    let (name, password) = (guess.name.as_bytes(), guess.password.as_bytes());
    let (is_user, nanos) = timed(|| auth.is_user(black_box(name), black_box(password)));
    assert!(!is_user);
    nanos
}

/// The answer to a name.
fn scram_first(auth: &Auth, guess: &Guess) -> u64 {
    let first = client(guess).first();
    let (progress, nanos) = timed(|| begin(auth, &mut Login::None, first.as_bytes()));
    assert!(matches!(progress, Progress::Challenge(_)));
    nanos
}

/// The refusal of a proof.
fn scram_second(auth: &Auth, guess: &Guess) -> u64 {
    let (client, mut login) = (client(guess), Login::None);
    let Progress::Challenge(challenge) = begin(auth, &mut login, client.first().as_bytes()) else {
        panic!("no challenge")
    };
    let (proof, _) = client.prove(&challenge, ITERATIONS).unwrap();
    let (progress, nanos) = timed(|| auth.sasl_step(&mut login, proof.as_bytes()));
    assert!(matches!(progress, Progress::Refused));
    nanos
}

fn client(guess: &Guess) -> Client {
    Client::new(Hash::Sha256, guess.name, guess.password).unwrap()
}

fn begin(auth: &Auth, login: &mut Login, first: &[u8]) -> Progress {
    auth.sasl(login, &AuthWorker::default(), Source::of(None), b"SCRAM-SHA-256", first)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    #[allow(clippy::disallowed_methods, reason = "this is what is measured")]
    let start = Instant::now();
    let result = work();
    (result, u64::try_from(start.elapsed().as_nanos()).unwrap())
}

/// Prints each case's mean and its difference to the first; true if all are below the limit.
fn compare(login: &str, tries: usize, one: impl Fn(&Guess) -> u64) -> bool {
    let mut times = GUESSES.map(|_| Vec::new());
    for _ in 0..tries {
        let case = fastrand::usize(..GUESSES.len());
        times[case].push(one(&GUESSES[case]));
    }
    let mut all = times.concat();
    let (_, &mut slow, _) = all.select_nth_unstable(tries * 19 / 20);
    let means = times.map(|times| Mean::of(times.into_iter().filter(|nanos| *nanos < slow)));
    println!("\n{login}, {tries} tries");
    println!("  {:<22} {:9.1}", GUESSES[0].case, means[0].mean);
    let mut is_alike = true;
    for (guess, mean) in GUESSES.iter().zip(&means).skip(1) {
        let difference = mean.mean - means[0].mean;
        let error = ERRORS * (mean.square_error + means[0].square_error).sqrt();
        println!("  {:<22} {:9.1}  {difference:+9.1} +- {error:.1}", guess.case, mean.mean);
        is_alike &= difference.abs() + error < DIFFERENCE_MAX;
    }
    is_alike
}

/// A mean and the square of its standard error.
struct Mean {
    mean: f64,
    square_error: f64,
}

impl Mean {
    #[allow(clippy::cast_precision_loss, reason = "counts and nanoseconds far below 2^52")]
    fn of(times: impl Iterator<Item = u64>) -> Self {
        let times: Vec<_> = times.map(|nanos| nanos as f64).collect();
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let squares: f64 = times.iter().map(|nanos| (nanos - mean).powi(2)).sum();
        Self { mean, square_error: squares / (count - 1.0) / count }
    }
}

//! Asio, libuv and libevent: a C or C++ program each, compiled when it is first needed, that does the same work as the other
//! systems.
//!
//! A program runs as a process of its own and is asked for one round at a time, so that its rounds are interleaved with those of
//! all other systems. Without a compiler or the library, the system is left out, with a note on what to install.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::child_process::ChildProcess;
use crate::harness::{BenchEntry, Metrics, RoundFn, SystemChoice};

pub(crate) const ASIO: &str = "asio";
pub(crate) const LIBUV: &str = "libuv";
pub(crate) const LIBEVENT: &str = "libevent";

/// The work of a program.
pub(crate) struct NativeWork {
    pub(crate) scenario: &'static str,
    pub(crate) case: String,
    /// The arguments, which `common.h` describes.
    pub(crate) arguments: Vec<usize>,
    pub(crate) process: ProcessLife,
}

/// How long a program's process lives.
#[derive(Clone, Copy)]
pub(crate) enum ProcessLife {
    /// For all rounds of a case: it sets up the case before the first.
    Case,
    /// For one round, so that nothing is left of the last.
    Round,
}

/// A library, and how its program is compiled.
struct NativePeer {
    name: &'static str,
    source: &'static str,
    language: Language,
    /// The header that the program needs.
    header: &'static str,
    link: &'static [&'static str],
    /// The Debian package with the header.
    package: &'static str,
    /// The program, or `None` if it is not available.
    program: OnceLock<Option<PathBuf>>,
}

#[derive(Clone, Copy)]
enum Language {
    C,
    Cpp,
}

static PEERS: [NativePeer; 3] = [
    NativePeer {
        name: ASIO,
        source: include_str!("../../native/asio.cpp"),
        language: Language::Cpp,
        header: "asio/io_context.hpp",
        link: &[],
        package: "libasio-dev",
        program: OnceLock::new(),
    },
    NativePeer {
        name: LIBUV,
        source: include_str!("../../native/libuv.c"),
        language: Language::C,
        header: "uv.h",
        link: &["-luv"],
        package: "libuv1-dev",
        program: OnceLock::new(),
    },
    NativePeer {
        name: LIBEVENT,
        source: include_str!("../../native/libevent.c"),
        language: Language::C,
        header: "event2/event.h",
        link: &["-levent_core"],
        package: "libevent-dev",
        program: OnceLock::new(),
    },
];

/// The header that all programs include.
const COMMON: (&str, &str) = ("common.h", include_str!("../../native/common.h"));

/// Returns the entries of one case, for those of the three systems that are selected and available. `read` converts the answer of
/// a round to metrics.
pub(crate) fn entries(
    choice: &SystemChoice,
    work: &NativeWork,
    read: impl Fn(Vec<f64>) -> Metrics + Copy + 'static,
) -> Vec<BenchEntry> {
    let wanted = PEERS.iter().filter(|peer| choice.includes(peer.name));
    let entry = |peer: &'static NativePeer| {
        let program = peer.program()?;
        let arguments: Vec<String> = work.arguments.iter().map(ToString::to_string).collect();
        let (scenario, life) = (work.scenario, work.process);
        let process = move || {
            let mut command = Command::new(program);
            command.arg(scenario).args(&arguments);
            ChildProcess::start(peer.name, command)
        };
        let start: Box<dyn FnOnce() -> RoundFn> = match life {
            ProcessLife::Case => Box::new(move || {
                let mut process = process();
                Box::new(move || read(process.ask()))
            }),
            ProcessLife::Round => Box::new(move || Box::new(move || read(process().ask()))),
        };
        Some(BenchEntry { system: peer.name, case: work.case.clone(), start })
    };
    wanted.filter_map(entry).collect()
}

/// Returns the name and version of each available library.
pub(crate) fn versions() -> Vec<String> {
    let version = |peer: &'static NativePeer| Command::new(peer.program()?).arg("version").output().ok();
    let versions = PEERS.iter().filter_map(version);
    versions.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).collect()
}

impl NativePeer {
    /// Returns the program, compiled at the first call. If that is not possible, prints a note once.
    fn program(&'static self) -> Option<&'static Path> {
        let program = self.program.get_or_init(|| match self.compile() {
            Ok(program) => Some(program),
            Err(CompileError::Compiler(compiler, package)) => {
                eprintln!("note: without {}: there is no `{compiler}` (Debian: apt install {package})", self.name);
                None
            }
            Err(CompileError::Header) => {
                let NativePeer { name, header, package, .. } = self;
                eprintln!("note: without {name}: there is no <{header}> (Debian: apt install {package})");
                None
            }
            Err(CompileError::Reason(why)) => {
                eprintln!("error: the program of {} cannot be compiled: {why}", self.name);
                std::process::exit(1);
            }
        });
        program.as_deref()
    }

    /// Compiles the program, or reuses one that was compiled from the same source.
    fn compile(&self) -> Result<PathBuf, CompileError> {
        let (compiler, suffix, standard, package) = match self.language {
            Language::C => ("cc", "c", "-std=gnu11", "gcc"),
            Language::Cpp => ("c++", "cpp", "-std=c++17", "g++"),
        };
        let folder = folder()?;
        let program = folder.join(format!("{}-{:016x}", self.name, self.fingerprint()));
        if program.exists() {
            return Ok(program);
        }
        if !preprocess(compiler, suffix, "").map_err(|_| CompileError::Compiler(compiler, package))?.status.success() {
            return Err(CompileError::Compiler(compiler, package));
        }
        if !preprocess(compiler, suffix, &format!("#include <{}>\n", self.header))?.status.success() {
            return Err(CompileError::Header);
        }
        let source = folder.join(format!("{}.{suffix}", self.name));
        std::fs::write(&source, self.source)?;
        std::fs::write(folder.join(COMMON.0), COMMON.1)?;
        // The program is renamed when it is complete, since other processes may compile it at the same time.
        let unfinished = folder.join(format!("{}-{}", self.name, std::process::id()));
        let mut command = Command::new(compiler);
        command.args([standard, "-O2", "-DNDEBUG", "-pthread", "-o"]).arg(&unfinished).arg(&source).args(self.link);
        let output = command.output()?;
        if !output.status.success() {
            return Err(CompileError::Reason(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        std::fs::rename(&unfinished, &program)?;
        Ok(program)
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.source, COMMON.1, self.link).hash(&mut hasher);
        hasher.finish()
    }
}

/// Why there is no program.
enum CompileError {
    /// The compiler is missing: its name, and the Debian package that has it.
    Compiler(&'static str, &'static str),
    Header,
    /// Any other reason, which is a fault.
    Reason(String),
}

impl From<io::Error> for CompileError {
    fn from(error: io::Error) -> CompileError {
        CompileError::Reason(error.to_string())
    }
}

/// Returns a folder beside this program, or a temporary one if that is not writable.
fn folder() -> io::Result<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("native")));
    if let Some(folder) = beside
        && std::fs::create_dir_all(&folder).is_ok()
    {
        return Ok(folder);
    }
    let folder = std::env::temp_dir().join(format!("tourbillon-bench-{}", rustix::process::getuid().as_raw()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Runs only the preprocessor on some text.
fn preprocess(compiler: &str, suffix: &str, text: &str) -> io::Result<Output> {
    let language = if suffix == "c" { "c" } else { "c++" };
    let mut command = Command::new(compiler);
    command.args(["-E", "-x", language, "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    // The compiler reads all its input before it exits.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of a small round of each scenario, and the least number of values that it answers with. (A round of
    /// `lateness` has no values if the machine does not run the process for as long as it takes.)
    const SCENARIOS: [(&str, usize, &[&str]); 7] = [
        ("churn", 2, &["60000000000", "10", "100", "0", "0"]),
        ("churn", 2, &["60000000000", "10", "100", "5", "1"]),
        ("reset", 2, &["60000000000", "10", "100", "1000"]),
        ("fire", 2, &["100", "5000000", "5000000"]),
        ("lateness", 2, &["3", "100000", "1000000", "1000000", "200000000", "0"]),
        ("lateness", 2, &["3", "100000", "1000000", "1000000", "200000000", "1"]),
        ("memory", 2, &["60000000000", "1000"]),
    ];

    #[test]
    fn every_program_that_can_be_compiled_here_answers_round_by_round() {
        for peer in &PEERS {
            let Some(program) = peer.program() else { continue };
            for (scenario, numbers, arguments) in SCENARIOS {
                let mut command = Command::new(program);
                command.arg(scenario).args(arguments);
                let mut process = ChildProcess::start(peer.name, command);
                for round in 0..2 {
                    let answer = process.ask();
                    assert!(answer.len() >= numbers, "{} {scenario}, round {round}: {answer:?}", peer.name);
                    assert!(answer[0] > 0.0 || scenario == "memory", "{} {scenario}: {answer:?}", peer.name);
                }
            }
        }
        let here = PEERS.iter().filter(|peer| peer.program().is_some()).count();
        assert_eq!(versions().len(), here, "each available peer reports its version");
    }
}

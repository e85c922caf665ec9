//! `weir init`: asks a few questions, and writes a first configuration.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::output::{Exit, FAILURE, complain, fail, invalid, say};
use crate::config::{self, Config, Diagnostics};

/// The file to write.
#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// The new file.
    #[arg(default_value = "weir.toml")]
    file: PathBuf,
}

/// A question, and the answer of an empty line.
struct Question {
    text: &'static str,
    default: &'static str,
}

const QUESTIONS: [Question; 5] = [
    Question { text: "URL of the service", default: "http://127.0.0.1:9000" },
    Question { text: "Address for clients", default: "127.0.0.1:8080" },
    Question { text: "Owner of a budget (such as ip, path, or header:NAME; several with commas)", default: "ip" },
    Question { text: "Rate of each owner", default: "100/min" },
    Question { text: "Beyond the rate: reject, hold or delay", default: "reject" },
];

/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 4096;

type Answers = [String; QUESTIONS.len()];

/// Asks on the terminal, or reads one answer a line from standard input, and writes the file. An existing file stays.
pub(super) fn init(args: &InitArgs) -> Exit {
    let InitArgs { file } = args;
    if file.symlink_metadata().is_ok() {
        return Err(fail(&format_args!("{} exists; nothing was changed", file.display())));
    }
    let mut answers: Answers = QUESTIONS.map(|question| question.default.to_owned());
    for (index, question) in QUESTIONS.iter().enumerate() {
        loop {
            let answer = ask(question).map_err(|error| fail(&format_args!("standard input: {error}")))?;
            if !answer.is_empty() {
                answers[index] = answer;
            }
            let Err(problems) = compile(&answers, file) else { break };
            let code = invalid(&problems);
            if !io::stdin().is_terminal() {
                return Err(code);
            }
            question.default.clone_into(&mut answers[index]);
        }
    }
    let written = File::create_new(file).and_then(|mut new| new.write_all(text(&answers, file).as_bytes()));
    written.map_err(|error| fail(&format_args!("{}: {error}", file.display())))?;
    if let Ok(config) = compile(&answers, file)
        && !config.warnings.is_empty()
    {
        complain(&config.warnings, FAILURE);
    }
    say(&format_args!("{file} is written; start Weir with `weir run {file}`", file = file.display()))
}

/// Reads a line; empty at the end of the input.
fn ask(question: &Question) -> io::Result<String> {
    let Question { text, default } = question;
    write!(io::stderr(), "{text} [{default}]: ")?;
    let mut line = String::new();
    let stdin = io::stdin().lock();
    io::Read::take(stdin, ANSWER_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

fn compile(answers: &Answers, file: &Path) -> Result<Config, Diagnostics> {
    let folder = file.parent().unwrap_or(Path::new(""));
    config::compile(&text(answers, file), &file.display().to_string(), folder, &|_| None)
}

fn text(answers: &Answers, file: &Path) -> String {
    // TOML has the escapes of JSON.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let [upstream, listen, key, rate, on_limit] = answers;
    let key = key.split(',').map(|part| quoted(part.trim())).collect::<Vec<_>>().join(", ");
    let [upstream, listen, rate, on_limit] = [upstream, listen, rate, on_limit].map(|answer| quoted(answer));
    let file = file.file_name().map(|name| name.display().to_string()).unwrap_or_default();
    format!(
        r#"# `weir check {file}` shows errors and limits, `weir run {file}` starts Weir. Weir follows changes of this file.

[server]
listen = {listen}

# The service.
[upstream]
url = {upstream}

[[limit]]
name = "first"
# Each value has a budget of its own; [] is one budget for all requests.
key = [{key}]
rate = {rate}
# Requests beyond the rate: "reject" answers 429, "hold" lets them wait until they may pass, "delay" slows them down.
on_limit = {on_limit}

# Metrics, health and the page of operators.
[admin]
listen = "127.0.0.1:9901"
"#
    )
}

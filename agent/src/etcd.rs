//! The program that is guarded.

use std::convert::Infallible;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

use etcd_operator_core::etcd_config::{InitialState, Problem, arguments};

use crate::settings::Settings;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid etcd configuration: {}", list(.0))]
    Problems(Vec<Problem>),
    #[error("etcd rejected its arguments: {0}")]
    Arguments(String),
    #[error("cannot run {0}")]
    Run(String, #[source] io::Error),
    #[error("etcd exited while receiving data from the other members ({status}): {complaint}")]
    Ended { status: ExitStatus, complaint: String },
}

/// etcd reads all its arguments before it prints its version, and does nothing else.
pub fn check_arguments(settings: &Settings, initial_state: InitialState<'_>) -> Result<(), Error> {
    let checked = command(settings, initial_state)?.arg("--version").stdin(Stdio::null()).output();
    let output = checked.map_err(|source| Error::Run(settings.etcd.display().to_string(), source))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Error::Arguments(complaint.lines().next().unwrap_or_default().to_owned()))
}

/// From here on this process is etcd, under the same process id.
pub fn become_etcd(settings: &Settings, initial_state: InitialState<'_>) -> Result<Infallible, Error> {
    let error = command(settings, initial_state)?.exec();
    Err(Error::Run(settings.etcd.display().to_string(), error))
}

/// etcd takes settings from variables, too. None of them may come from elsewhere than from us.
pub fn command(settings: &Settings, initial_state: InitialState<'_>) -> Result<Command, Error> {
    let arguments = arguments(&settings.config, &settings.local, initial_state).map_err(Error::Problems)?;
    let mut command = Command::new(&settings.etcd);
    command.args(arguments);
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"ETCD_") {
            command.env_remove(variable);
        }
    }
    Ok(command)
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
}

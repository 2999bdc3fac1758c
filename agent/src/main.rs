//! The command of the etcd container, and of the init container that brings it there.

use std::process::ExitCode;

use etcd_agent::{guard, install, log, restore, settings};

const USAGE: &str = "\
Starts etcd in a member's pod once it is safe.

Usage: etcd-agent install DIRECTORY    copy this program to DIRECTORY
       etcd-agent start                become etcd as soon as it is safe to start it
       etcd-agent restore              make the data of a member from a snapshot on its volume
       etcd-agent --version";

/// In whichever thread: an agent without one of its threads would wait for ever, and the kubelet starts it again.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    abort_on_panic();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["install", directory] => match install::into_directory(directory.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                log::error("cannot install the agent", &error);
                ExitCode::FAILURE
            }
        },
        ["start"] => {
            let Err(error) = guard::start();
            log::error("cannot start etcd", &error);
            settings::leave_message(&log::chain(&error));
            ExitCode::FAILURE
        }
        ["restore"] => {
            let (message, code) = match restore::restore() {
                Ok(restored) => {
                    (serde_json::to_string(&restored).expect("text is always JSON"), ExitCode::SUCCESS)
                }
                Err(error) => {
                    log::error("cannot restore", &error);
                    (log::chain(&error), ExitCode::FAILURE)
                }
            };
            settings::leave_message(&message);
            code
        }
        ["--version"] => {
            println!("etcd-agent {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

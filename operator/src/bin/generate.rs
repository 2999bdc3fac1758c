//! Prints the files of this tree that are generated from code. It is not shipped, so that what only these files need is not either.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use etcd_operator::dashboards::{self, Dashboard};
use etcd_operator::{alerts, api_reference, crds, metrics, output, telemetry};

/// Prints the files that are generated from code
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    file: File,
}

#[derive(Subcommand)]
enum File {
    /// The alerts, as rules for Prometheus or as an index of runbooks
    Alerts {
        #[arg(value_enum)]
        format: AlertsAs,
    },
    /// The API reference, as Markdown
    ApiReference,
    /// The CustomResourceDefinitions, as YAML
    Crds,
    /// A dashboard for Grafana, as JSON
    Dashboard {
        #[arg(value_parser = dashboard)]
        name: &'static Dashboard,
    },
    /// The list of metrics, as Markdown
    MetricsReference,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum AlertsAs {
    /// A file for `rule_files` of Prometheus
    Rules,
    /// An object for the Prometheus operator
    PrometheusRule,
    /// The index of docs/runbooks, as Markdown
    Index,
}

fn main() -> ExitCode {
    match text(Arguments::parse().file).and_then(|text| output::print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", telemetry::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn text(file: File) -> Result<String> {
    Ok(match file {
        File::Alerts { format: AlertsAs::Rules } => alerts::render::rules(),
        File::Alerts { format: AlertsAs::PrometheusRule } => alerts::render::prometheus_rule(),
        File::Alerts { format: AlertsAs::Index } => alerts::render::index(),
        File::ApiReference => api_reference::markdown(),
        File::Crds => crds::yaml()?,
        File::Dashboard { name } => dashboards::render::file(name),
        File::MetricsReference => metrics::reference::markdown(),
    })
}

fn dashboard(name: &str) -> Result<&'static Dashboard, String> {
    let found = dashboards::ALL.into_iter().find(|it| it.name == name);
    found.ok_or_else(|| format!("the dashboards are {}", dashboards::ALL.map(|it| it.name).join(", ")))
}

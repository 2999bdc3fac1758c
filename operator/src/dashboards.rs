//! The dashboards for Grafana that we ship: one table for each, from which its file in `config/grafana` is generated.
//!
//! As in the alerts, series of members have the labels `namespace` and `name` of their cluster and `pod`.

pub mod render;

mod cluster;
mod fleet;
mod operator;

pub const ALL: [&Dashboard; 3] = [&fleet::FLEET, &cluster::CLUSTER, &operator::OPERATOR];

#[derive(Debug)]
pub struct Dashboard {
    /// Of its file, and of its address in Grafana.
    pub name: &'static str,
    pub title: &'static str,
    pub shows: Shows,
    pub annotations: &'static [Annotation],
    pub rows: &'static [Row],
}

/// What its user chooses at the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Any number of namespaces.
    Fleet,
    /// A namespace and a name.
    Cluster,
    Everything,
}

/// Events on the time axis of all panels.
#[derive(Debug)]
pub struct Annotation {
    pub title: &'static str,
    pub expression: &'static str,
    /// Of each event.
    pub text: &'static str,
    pub color: &'static str,
}

#[derive(Debug)]
pub struct Row {
    pub title: &'static str,
    pub panels: &'static [Panel],
}

#[derive(Debug)]
pub struct Panel {
    pub title: &'static str,
    pub kind: Kind,
    /// As Grafana calls it.
    pub unit: &'static str,
    /// Of 24.
    pub width: u32,
    pub queries: &'static [Query],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Lines over time.
    Lines,
    /// The last value of each series.
    Last(Color),
    /// One line for each set of labels, one column for each query.
    Table,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Color {
    Neutral,
    /// Red from this value on, green below.
    RedFrom(f64),
    /// Green from this value on, red below.
    GreenFrom(f64),
}

#[derive(Debug)]
pub struct Query {
    /// `$cluster` stands for the labels of the chosen cluster, `$fleet` for those of all in the chosen namespaces.
    pub expression: &'static str,
    /// The name of the series, or of the column.
    pub legend: &'static str,
}

impl Dashboard {
    pub fn panels(&self) -> impl Iterator<Item = &'static Panel> {
        self.rows.iter().flat_map(|row| row.panels)
    }

    /// Everything that it asks Prometheus, with the variables of Grafana.
    pub fn expressions(&self) -> Vec<String> {
        let of_panels = self.panels().flat_map(|panel| panel.queries).map(|query| query.expression);
        let of_annotations = self.annotations.iter().map(|annotation| annotation.expression);
        of_panels.chain(of_annotations).map(expanded).collect()
    }
}

fn expanded(expression: &str) -> String {
    expression
        .replace("$cluster", r#"namespace="$namespace",name="$name""#)
        .replace("$fleet", r#"namespace=~"$namespace""#)
}

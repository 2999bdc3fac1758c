//! The dashboards as files that Grafana imports.

use serde_json::{Value, json};

use super::{Annotation, Color, Dashboard, Kind, Panel, Query, Row, Shows, expanded};

/// Of Grafana 11.
const SCHEMA_VERSION: u32 = 39;
const COLUMNS: u32 = 24;
const HEIGHT_OF_LAST: u32 = 4;
const HEIGHT: u32 = 8;

pub fn file(dashboard: &Dashboard) -> String {
    let Dashboard { name, title, shows, annotations, rows } = dashboard;
    let annotations: Vec<Value> = annotations.iter().map(annotation).collect();
    let dashboard = json!({
        "uid": name,
        "title": title,
        "description": "Generated from operator/src/dashboards of etcd-k8s-operator",
        "tags": ["etcd", "etcd-operator"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": true,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables(*shows)},
        "annotations": {"list": annotations},
        "links": [{
            "type": "dashboards", "title": "etcd", "tags": ["etcd-operator"], "asDropdown": false, "icon": "external link",
            "includeVars": true, "keepTime": true, "targetBlank": false, "tooltip": "", "url": "",
        }],
        "panels": panels(rows),
    });
    serde_json::to_string_pretty(&dashboard).expect("a value")
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variables(shows: Shows) -> Vec<Value> {
    let source =
        json!({"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"});
    let of_label = |label: &str, selector: &str, has_many: bool| {
        let query = format!("label_values(etcd_operator_cluster_wanted_members{selector}, {label})");
        let mut variable = json!({
            "name": label, "label": label, "type": "query", "datasource": self::source(),
            "query": {"query": query, "refId": label}, "refresh": 2, "sort": 1,
            "multi": has_many, "includeAll": has_many,
        });
        if has_many {
            variable["current"] = json!({"text": ["All"], "value": ["$__all"]});
        }
        variable
    };
    match shows {
        Shows::Fleet => vec![source, of_label("namespace", "", true)],
        Shows::Cluster => {
            let name = of_label("name", r#"{namespace="$namespace"}"#, false);
            vec![source, of_label("namespace", "", false), name]
        }
        Shows::Everything => vec![source],
    }
}

fn annotation(annotation: &Annotation) -> Value {
    let Annotation { title, expression, text, color } = annotation;
    json!({
        "name": title, "enable": true, "hide": false, "iconColor": color, "datasource": source(),
        "expr": expanded(expression), "step": "60s", "titleFormat": title, "textFormat": text,
        "useValueForTime": false,
    })
}

/// Each row has a heading; panels follow each other from left to right.
fn panels(rows: &[Row]) -> Vec<Value> {
    let (mut panels, mut y) = (Vec::new(), 0);
    for Row { title, panels: of_row } in rows {
        let id = panels.len() + 1;
        panels.push(json!({
            "id": id, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
        }));
        y += 1;
        let (mut x, mut tallest) = (0, 0);
        for panel in *of_row {
            if x + panel.width > COLUMNS {
                (x, y, tallest) = (0, y + tallest, 0);
            }
            let height = if matches!(panel.kind, Kind::Last(_)) { HEIGHT_OF_LAST } else { HEIGHT };
            let place = json!({"h": height, "w": panel.width, "x": x, "y": y});
            panels.push(self::panel(panel, panels.len() + 1, &place));
            (x, tallest) = (x + panel.width, tallest.max(height));
        }
        y += tallest;
    }
    panels
}

fn panel(panel: &Panel, id: usize, place: &Value) -> Value {
    let Panel { title, kind, unit, width: _, queries } = panel;
    let targets: Vec<Value> =
        queries.iter().zip('A'..='Z').map(|(query, id)| target(query, *kind, id)).collect();
    let (type_, options, transformations) = match kind {
        Kind::Lines => {
            let legend =
                json!({"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []});
            ("timeseries", json!({"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}), json!([]))
        }
        Kind::Last(_) => {
            let reduced = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
            let options = json!({
                "reduceOptions": reduced, "colorMode": "value", "graphMode": "none", "justifyMode": "auto",
                "orientation": "auto", "textMode": "value_and_name",
            });
            ("stat", options, json!([]))
        }
        Kind::Table => ("table", json!({"showHeader": true, "cellHeight": "sm"}), columns(queries)),
    };
    json!({
        "id": id, "type": type_, "title": title, "gridPos": place, "datasource": source(), "targets": targets,
        "options": options, "transformations": transformations,
        "fieldConfig": {"defaults": defaults(*kind, unit), "overrides": []},
    })
}

fn defaults(kind: Kind, unit: &str) -> Value {
    let steps = |below: &str, at: f64, from: &str| {
        let steps = json!([{"color": below, "value": null}, {"color": from, "value": at}]);
        json!({"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}})
    };
    match kind {
        Kind::Last(Color::RedFrom(at)) => steps("green", at, "red"),
        Kind::Last(Color::GreenFrom(at)) => steps("red", at, "green"),
        Kind::Last(Color::Neutral) => {
            json!({"unit": unit, "thresholds": {"mode": "absolute", "steps": [{"color": "text", "value": null}]}})
        }
        Kind::Lines => {
            json!({"unit": unit, "custom": {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10}})
        }
        Kind::Table => json!({"unit": unit}),
    }
}

fn target(query: &Query, kind: Kind, id: char) -> Value {
    let now = kind != Kind::Lines;
    let format = if kind == Kind::Table { "table" } else { "time_series" };
    json!({
        "refId": id.to_string(), "expr": expanded(query.expression), "legendFormat": query.legend,
        "instant": now, "range": !now, "format": format, "datasource": source(),
    })
}

/// The series of all queries as one table, whose columns have the names of the queries.
fn columns(queries: &[Query]) -> Value {
    let named =
        queries.iter().zip('A'..='Z').map(|(query, id)| (format!("Value #{id}"), query.legend.into()));
    let names: serde_json::Map<String, Value> = named.collect();
    json!([
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": true}, "indexByName": {}, "renameByName": names}},
    ])
}

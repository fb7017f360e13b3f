//! Dashboards in few words, written as classic Grafana JSON (read by Grafana 10 to 13).
//!
//! In a query, `@` stands for the matchers of the cluster and `@job` for those of cluster and job.

use serde_json::{Value, json};

/// A dashboard: panels flow from left to right in rows of 24 columns.
pub struct Dashboard {
    pub uid: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub variables: &'static [Variable],
    pub panels: Vec<Panel>,
}

/// A choice at the top of a dashboard: all values of a label of a metric.
#[derive(Clone, Copy)]
pub struct Variable {
    pub name: &'static str,
    pub label: &'static str,
    pub metric: &'static str,
}

pub const CLUSTER: Variable = Variable {
    name: "cluster",
    label: "Cluster",
    metric: "up{job=~\"appwrapper-.+\"}",
};
pub const JOB: Variable = Variable {
    name: "job",
    label: "Job",
    metric: "up{job=~\"appwrapper-.+\"}",
};
pub const NAMESPACE: Variable = Variable {
    name: "namespace",
    label: "Namespace",
    metric: "appwrapper_phase_total",
};
pub const SHARD: Variable = Variable {
    name: "shard",
    label: "Shard",
    metric: "appwrapper_shard_owned",
};
pub const RESOURCE: Variable = Variable {
    name: "resource",
    label: "Resource",
    metric: "appwrapper_component_confirmations_total",
};

pub struct Panel {
    pub kind: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub unit: &'static str,
    pub queries: Vec<(String, &'static str)>,
    width: u32,
    height: u32,
    stacked: bool,
    /// From this value on the panel is red; green below it.
    red_from: Option<f64>,
    /// Below this value the panel is red; green from it on.
    red_below: Option<f64>,
    decimals: Option<u32>,
}

fn panel(kind: &'static str, title: &'static str, unit: &'static str, description: &'static str) -> Panel {
    let (width, height) = match kind {
        "row" => (24, 1),
        "stat" => (4, 4),
        "table" => (12, 8),
        _ => (8, 8),
    };
    Panel {
        kind,
        title,
        description,
        unit,
        queries: Vec::new(),
        width,
        height,
        stacked: false,
        red_from: None,
        red_below: None,
        decimals: None,
    }
}

pub fn row(title: &'static str) -> Panel {
    panel("row", title, "", "")
}

pub fn lines(title: &'static str, unit: &'static str, description: &'static str) -> Panel {
    panel("timeseries", title, unit, description)
}

pub fn stat(title: &'static str, unit: &'static str, description: &'static str) -> Panel {
    panel("stat", title, unit, description)
}

pub fn table(title: &'static str, unit: &'static str, description: &'static str) -> Panel {
    panel("table", title, unit, description)
}

pub fn heatmap(title: &'static str, description: &'static str) -> Panel {
    panel("heatmap", title, "s", description)
}

impl Panel {
    pub fn query(mut self, query: &str, legend: &'static str) -> Self {
        let job = "cluster=~\"$cluster\", job=~\"$job\"";
        self.queries
            .push((query.replace("@job", job).replace('@', "cluster=~\"$cluster\""), legend));
        self
    }

    pub fn wide(mut self, width: u32) -> Self {
        self.width = width;
        self
    }

    pub fn stacked(mut self) -> Self {
        self.stacked = true;
        self
    }

    pub fn red_from(mut self, value: f64) -> Self {
        self.red_from = Some(value);
        self
    }

    pub fn red_below(mut self, value: f64) -> Self {
        self.red_below = Some(value);
        self
    }

    pub fn decimals(mut self, decimals: u32) -> Self {
        self.decimals = Some(decimals);
        self
    }

    fn json(&self, id: usize, x: u32, y: u32) -> Value {
        let place = json!({ "x": x, "y": y, "w": self.width, "h": self.height });
        if self.kind == "row" {
            return json!({ "id": id, "type": "row", "title": self.title, "collapsed": false, "gridPos": place, "panels": [] });
        }
        let instant = self.kind == "table" || self.kind == "stat";
        let targets: Vec<Value> = self
            .queries
            .iter()
            .zip('A'..)
            .map(|((query, legend), reference)| {
                json!({
                    "refId": reference.to_string(),
                    "datasource": source(),
                    "expr": query,
                    "legendFormat": legend,
                    "instant": instant,
                    "range": !instant,
                    "format": match self.kind { "table" => "table", "heatmap" => "heatmap", _ => "time_series" },
                })
            })
            .collect();
        let mut steps = vec![json!({ "color": if self.red_below.is_some() { "red" } else { "green" }, "value": null })];
        if let Some(value) = self.red_from {
            steps.push(json!({ "color": "red", "value": value }));
        }
        if let Some(value) = self.red_below {
            steps.push(json!({ "color": "green", "value": value }));
        }
        let judged = self.red_from.is_some() || self.red_below.is_some();
        let mut defaults = json!({
            "unit": self.unit,
            "thresholds": { "mode": "absolute", "steps": steps },
            "color": { "mode": if judged && self.kind == "stat" { "thresholds" } else { "palette-classic" } },
        });
        if let Some(decimals) = self.decimals {
            defaults["decimals"] = json!(decimals);
        }
        let options = match self.kind {
            "timeseries" => {
                defaults["custom"] = json!({
                    "drawStyle": "line",
                    "lineWidth": 1,
                    "fillOpacity": if self.stacked { 30 } else { 0 },
                    "showPoints": "never",
                    "spanNulls": false,
                    "stacking": { "mode": if self.stacked { "normal" } else { "none" } },
                    "thresholdsStyle": { "mode": if judged { "line" } else { "off" } },
                });
                json!({
                    "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true },
                    "tooltip": { "mode": "multi", "sort": "desc" },
                })
            }
            "stat" => json!({
                "colorMode": if judged { "background" } else { "value" },
                "graphMode": "none",
                "textMode": "auto",
                "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
            }),
            "heatmap" => json!({
                "calculate": false,
                "yAxis": { "unit": self.unit },
                "color": { "mode": "scheme", "scheme": "Oranges", "steps": 32 },
                "tooltip": { "mode": "single", "yHistogram": false },
            }),
            _ => json!({ "showHeader": true, "footer": { "show": false } }),
        };
        let mut panel = json!({
            "id": id,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": source(),
            "gridPos": place,
            "targets": targets,
            "fieldConfig": { "defaults": defaults, "overrides": [] },
            "options": options,
        });
        if self.kind == "table" {
            panel["transformations"] = json!([
                { "id": "merge", "options": {} },
                { "id": "organize", "options": { "excludeByName": { "Time": true, "__name__": true } } },
            ]);
        }
        panel
    }
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

impl Dashboard {
    pub fn json(&self) -> String {
        let mut panels = Vec::new();
        let (mut x, mut y, mut height) = (0, 0, 0);
        for (index, panel) in self.panels.iter().enumerate() {
            if x + panel.width > 24 {
                (x, y, height) = (0, y + height, 0);
            }
            panels.push(panel.json(index + 1, x, y));
            x += panel.width;
            height = height.max(panel.height);
        }
        let mut variables = vec![json!({
            "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0,
        })];
        variables.extend(self.variables.iter().map(|variable| {
            let query = format!("label_values({}, {})", variable.metric, variable.name);
            json!({
                "name": variable.name,
                "label": variable.label,
                "type": "query",
                "datasource": source(),
                "definition": query,
                "query": { "query": query, "refId": "variable" },
                // On a change of the time range: a namespace of last week is found by looking at last week.
                "refresh": 2,
                "sort": 3,
                "multi": true,
                "includeAll": true,
                // Also matches series without the label: most installations have no cluster label.
                "allValue": ".*",
                "current": { "text": ["All"], "value": ["$__all"] },
                "hide": 0,
            })
        }));
        let annotation = |name: &str, color: &str, query: &str, title: &str| {
            json!({
                "name": name, "datasource": source(), "enable": true, "iconColor": color,
                "expr": query, "titleFormat": title, "step": "30s",
            })
        };
        let dashboard = json!({
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["appwrapper"],
            "schemaVersion": 39,
            "version": 1,
            "editable": false,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": { "from": "now-6h", "to": "now" },
            "timezone": "browser",
            "links": [{
                "type": "dashboards", "title": "AppWrapper", "tags": ["appwrapper"], "asDropdown": true,
                "includeVars": true, "keepTime": true, "targetBlank": false, "icon": "external link", "url": "",
            }],
            "templating": { "list": variables },
            "annotations": { "list": [
                annotation("Alerts", "red", super::ALERTS, "{{alertname}}"),
                annotation("Changes of owner", "blue", super::OWNERS, "shard {{shard}} acquired"),
            ] },
            "panels": panels,
        });
        let mut text = serde_json::to_string_pretty(&dashboard).expect("a JSON value");
        text.push('\n');
        text
    }
}

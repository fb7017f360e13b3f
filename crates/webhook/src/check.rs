//! `appwrapper-webhook check`: the structural rules on manifests, without a cluster, for people and pipelines.
//!
//! Each fault is told with file, line and field. What takes the API server to know (the user's rights, the scope of kinds
//! that are not in our table) is not checked. Objects of other kinds in the same files are passed over.

mod lines;

use std::{fmt::Write as _, io::Read as _, path::Path};

use appwrapper_api::{AppWrapper, config::AppWrapperConfig};
use serde_json::Value;

use self::lines::Lines;
use crate::{validate::structural_faults, warnings};

/// What came out of checking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Lines for the user.
    pub text: String,
    /// AppWrappers looked at.
    pub checked: usize,
    /// Faults found.
    pub faults: usize,
    /// Files or documents that could not be read.
    pub unreadable: usize,
}

impl Report {
    /// 0 if all is well, 1 for faults, 2 if something could not be read.
    pub fn exit_code(&self) -> u8 {
        match (self.unreadable, self.faults) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        }
    }

    fn line(&mut self, place: &str, text: &str) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.text, "{place}: {text}");
    }
}

/// Checks files; `-` is the standard input.
pub fn files(paths: &[impl AsRef<Path>], namespace: Option<&str>, config: &AppWrapperConfig) -> Report {
    let mut report = Report::default();
    for path in paths {
        let path = path.as_ref();
        let text = if path.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        } else {
            std::fs::read_to_string(path)
        };
        let name = path.display().to_string();
        match text {
            Ok(text) => manifest(&name, &text, namespace, config, &mut report),
            Err(error) => {
                report.unreadable += 1;
                report.line(&name, &error.to_string());
            }
        }
    }
    let Report { checked, faults, .. } = report;
    let summary = format!("{checked} AppWrappers checked, {faults} faults");
    report.line("check", &summary);
    report
}

/// Checks the documents of one text.
pub fn manifest(file: &str, text: &str, namespace: Option<&str>, config: &AppWrapperConfig, report: &mut Report) {
    for (first_line, document) in documents(text) {
        let is_empty = document
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if is_empty {
            continue;
        }
        match serde_saphyr::from_str::<Value>(document) {
            Ok(object) => check_object(file, first_line, document, &object, namespace, config, report),
            Err(error) => {
                report.unreadable += 1;
                let line = first_line
                    + error
                        .location()
                        .map_or(0, |place| usize::try_from(place.line()).unwrap_or(1).saturating_sub(1));
                let text = error.without_snippet().to_string();
                report.line(&format!("{file}:{line}"), text.lines().next().unwrap_or("no YAML"));
            }
        }
    }
}

fn check_object(
    file: &str,
    first_line: usize,
    document: &str,
    object: &Value,
    namespace: Option<&str>,
    config: &AppWrapperConfig,
    report: &mut Report,
) {
    let text = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    if group != appwrapper_api::GROUP || text("kind") != appwrapper_api::KIND {
        return;
    }
    report.checked += 1;
    let lines = Lines::of(document, first_line);
    let mut tell = |field: &str, text: &str| {
        report.line(
            &format!("{file}:{}", lines.of_field(field)),
            &format!("{field}: {text}"),
        );
    };
    if text("apiVersion") != appwrapper_api::API_VERSION {
        tell(
            "apiVersion",
            &format!(
                "Invalid value: {:?} is not served; write {}",
                text("apiVersion"),
                appwrapper_api::API_VERSION
            ),
        );
        report.faults += 1;
        return;
    }
    let mut wrapper: AppWrapper = match serde_json::from_value(object.clone()) {
        Ok(wrapper) => wrapper,
        Err(error) => {
            tell("spec", &format!("Invalid value: {error}"));
            report.faults += 1;
            return;
        }
    };
    if wrapper.metadata.namespace.is_none() {
        wrapper.metadata.namespace = namespace.map(str::to_owned);
    }
    let faults = structural_faults(&wrapper, config);
    for fault in &faults {
        tell(&fault.field, &fault.text);
    }
    for warning in warnings::of_new(&wrapper, &config.fault_tolerance) {
        // Warnings that are about a component begin with its path, those about an annotation name it.
        let field = warning.split(": ").next().filter(|field| field.starts_with("spec."));
        let annotation = warning
            .split(' ')
            .nth(1)
            .map(|name| format!("metadata.annotations.{name}"));
        let field = field.map(str::to_owned).or(annotation).unwrap_or_default();
        tell(&field, &format!("warning: {warning}"));
    }
    report.faults += faults.len();
}

/// The documents of a YAML stream with the number of their first lines. `---` at the start of a line separates documents
/// wherever it stands, even in a block of text.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut first_line, mut offset) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        offset += line.len();
        if line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        {
            documents.extend(
                text.get(start..offset - line.len())
                    .map(|document| (first_line, document)),
            );
            (start, first_line) = (offset, index + 2);
        }
    }
    documents.extend(text.get(start..).map(|document| (first_line, document)));
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
apiVersion: workload.codeflare.dev/v1beta2
kind: AppWrapper
metadata:
  name: a
spec:
  components:
  - template:
      apiVersion: batch/v1
      kind: Job
      metadata:
        name: j
      spec:
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: c
              image: busybox
";

    fn checked(text: &str) -> Report {
        let mut report = Report::default();
        manifest("f.yaml", text, Some("ns"), &AppWrapperConfig::default(), &mut report);
        report
    }

    #[test]
    fn a_good_manifest_is_silent() {
        let report = checked(GOOD);
        assert_eq!((report.text.as_str(), report.checked, report.exit_code()), ("", 1, 0));
    }

    #[test]
    fn each_fault_has_its_file_line_and_field() {
        let text = GOOD.replace(
            "        name: j\n",
            "        name: j\n        namespace: other\n        finalizers: [x]\n",
        );
        let text = format!("# first\napiVersion: v1\nkind: ConfigMap\n---\n{text}");
        let report = checked(&text);
        let places: Vec<_> = report
            .text
            .lines()
            .map(|line| line.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": "))
            .collect();
        assert_eq!(
            places,
            [
                "f.yaml:16: spec.components[0].template.metadata.namespace",
                "f.yaml:17: spec.components[0].template.metadata.finalizers",
            ],
            "{}",
            report.text
        );
        assert_eq!((report.checked, report.faults, report.exit_code()), (1, 2, 1));
    }

    #[test]
    fn a_field_that_is_missing_is_told_at_its_parent() {
        let report = checked(&GOOD.replace("      metadata:\n        name: j\n", ""));
        assert!(
            report
                .text
                .starts_with("f.yaml:7: spec.components[0].template.metadata: Required value"),
            "{}",
            report.text
        );
    }

    #[test]
    fn a_fault_in_a_pod_template_is_found() {
        let report = checked(&GOOD.replace("image: busybox", "imagee: busybox"));
        assert!(
            report
                .text
                .starts_with("f.yaml:7: spec.components[0].template: Invalid value: error inferring"),
            "{}",
            report.text
        );
        assert!(report.text.contains("spec.containers[0].imagee"), "{}", report.text);
    }

    #[test]
    fn a_warning_is_no_fault() {
        let text = GOOD.replace(
            "  name: a\n",
            "  name: a\n  annotations:\n    workload.codeflare.dev.appwrapper/retryLimit: many\n",
        );
        let report = checked(&text);
        assert!(report.text.starts_with("f.yaml:6: "), "{}", report.text);
        assert_eq!(report.exit_code(), 0);
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        let report = checked(&format!("{GOOD}---\na: b\n  c: [\n"));
        assert!(report.text.starts_with("f.yaml:2"), "{}", report.text);
        assert_eq!(report.exit_code(), 2);
        let report = checked("apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nspec:\n  components: 3\n");
        assert!(
            report.text.starts_with("f.yaml:3: spec: Invalid value"),
            "{}",
            report.text
        );
    }

    #[test]
    fn json_is_read_as_well() {
        let value: Value = serde_saphyr::from_str(GOOD).unwrap();
        assert_eq!(checked(&serde_json::to_string_pretty(&value).unwrap()).exit_code(), 0);
    }
}

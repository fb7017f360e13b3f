//! On which line of a YAML document each field lies.

use std::collections::BTreeMap;

use serde_saphyr::granit_parser::{Event, Parser};

/// Lines by field, written as in messages: `spec.components[1].template.metadata`.
pub(super) struct Lines {
    by_field: BTreeMap<String, usize>,
    first_line: usize,
}

/// A container that is being read.
enum Open {
    Map { path: String, key: Option<String> },
    List { path: String, next: usize },
}

impl Lines {
    /// Walks through a document that begins on this line of its file. Stops where the document stops making sense.
    pub(super) fn of(document: &str, first_line: usize) -> Self {
        let mut by_field = BTreeMap::new();
        let mut open: Vec<Open> = Vec::new();
        for event in Parser::new_from_str(document).map_while(Result::ok) {
            let (event, span) = event;
            let line = first_line + span.start.line().saturating_sub(1);
            match event {
                Event::Scalar(text, ..) => {
                    if let Some(Open::Map { path, key: key @ None }) = open.last_mut() {
                        by_field.insert(join(path, &text), line);
                        *key = Some(text.into_owned());
                    } else {
                        enter(&mut open, &mut by_field, line);
                    }
                }
                Event::Alias(_) => drop(enter(&mut open, &mut by_field, line)),
                Event::MappingStart(..) => {
                    let path = enter(&mut open, &mut by_field, line);
                    open.push(Open::Map { path, key: None });
                }
                Event::SequenceStart(..) => {
                    let path = enter(&mut open, &mut by_field, line);
                    open.push(Open::List { path, next: 0 });
                }
                Event::MappingEnd | Event::SequenceEnd => drop(open.pop()),
                _ => {}
            }
        }
        Self { by_field, first_line }
    }

    /// The line of a field or, if it is not written, of the closest one around it.
    pub(super) fn of_field(&self, field: &str) -> usize {
        let mut field = field;
        loop {
            if let Some(line) = self.by_field.get(field) {
                return *line;
            }
            let Some(end) = field.rfind(['.', '[']).filter(|end| *end > 0) else {
                return self.first_line;
            };
            field = field.get(..end).unwrap_or_default();
        }
    }
}

/// A value begins: its path. In a map it takes up the key that was read before.
fn enter(open: &mut [Open], by_field: &mut BTreeMap<String, usize>, line: usize) -> String {
    match open.last_mut() {
        None => String::new(),
        Some(Open::Map { path, key }) => join(path, &key.take().unwrap_or_default()),
        Some(Open::List { path, next }) => {
            let path = format!("{path}[{next}]");
            *next += 1;
            by_field.insert(path.clone(), line);
            path
        }
    }
}

fn join(path: &str, key: &str) -> String {
    // Labels are written in brackets, since their keys contain dots.
    if path.ends_with("metadata.labels") {
        format!("{path}[{key}]")
    } else if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

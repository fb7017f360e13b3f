//! `appwrapper-webhook check` as a program: exit codes and messages.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    io::Write,
    process::{Command, Stdio},
};

const MANIFEST: &str = "\
apiVersion: workload.codeflare.dev/v1beta2
kind: AppWrapper
metadata:
  name: a
spec:
  components:
  - template:
      apiVersion: v1
      kind: Pod
      metadata:
        name: p
      spec:
        containers:
        - name: c
          image: busybox
";

fn check(manifest: &str, args: &[&str]) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_appwrapper-webhook"))
        .args(["check", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_exit_code_tells_good_from_bad_from_unreadable() {
    assert_eq!(
        check(MANIFEST, &[]),
        (0, "check: 1 AppWrappers checked, 0 faults\n".to_owned())
    );
    let (code, text) = check(&MANIFEST.replace("kind: Pod", "kind: Secret"), &[]);
    assert_eq!(code, 1);
    assert!(
        text.starts_with("-:7: spec.components[0].template: Forbidden: kind Secret may not be wrapped"),
        "{text}"
    );
    assert_eq!(check("a: [", &[]).0, 2);
    assert_eq!(check(MANIFEST, &["does-not-exist.yaml"]).0, 2);
}

#[test]
fn the_namespace_can_be_given() {
    let manifest = MANIFEST.replace("        name: p\n", "        name: p\n        namespace: ns\n");
    assert_eq!(check(&manifest, &["--namespace", "ns"]).0, 0);
    let (code, text) = check(&manifest, &["--namespace", "other"]);
    assert_eq!(code, 1);
    assert!(
        text.starts_with("-:12: spec.components[0].template.metadata.namespace: Forbidden"),
        "{text}"
    );
}

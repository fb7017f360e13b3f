//! The program itself on input that makes no sense: it says what is wrong and what to do, and ends at once.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Command, Stdio},
};

use serde_json::json;

/// Runs the program to its end; returns its exit code and what it said.
fn run(kubeconfig: &str, flags: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_appwrapper-controller"))
        .env_clear()
        .env("KUBECONFIG", kubeconfig)
        .args([
            "--namespace=appwrapper-system",
            "--health-bind-address=0",
            "--metrics-bind-address=0",
        ])
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// What is refused before any API server is asked: flags, and the words that must be said.
const REFUSED: [(&[&str], &[&str]); 9] = [
    (&["--shards=0"], &["--shards", "1 to 64"]),
    (&["--shards=65"], &["--shards", "1 to 64"]),
    (
        &["--lease-duration=10s", "--lease-renew-deadline=10s"],
        &["--lease-renew-deadline", "less than the lease duration"],
    ),
    (
        &["--lease-duration=10s", "--lease-renew-deadline=11s"],
        &["--lease-renew-deadline", "less than the lease duration"],
    ),
    (&["--lease-duration=0s"], &["--lease-duration", "not positive"]),
    (&["--lease-duration=ten"], &["--lease-duration"]),
    (&["--identity=no name"], &["--identity", "letters, digits"]),
    (
        &["--config=/nonexistent/config.yaml"],
        &["--config", "mount the ConfigMap"],
    ),
    (&["--identity=one"], &["set KUBECONFIG"]),
];

#[test]
fn what_makes_no_sense_is_refused_by_the_program_with_a_remedy() {
    for (flags, said) in REFUSED {
        let (code, text) = run("/nonexistent/kubeconfig", flags);
        assert!(matches!(code, Some(1 | 2)), "{flags:?}: {code:?}: {text}");
        for words in said {
            assert!(text.contains(words), "{flags:?}: {words:?} is not in: {text}");
        }
    }
}

/// An API server that allows nothing.
fn one_that_refuses() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {}, "status": {"allowed": false}})
    .to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut requests = BufReader::new(stream);
                loop {
                    let mut length = 0;
                    loop {
                        let mut line = String::new();
                        if requests.read_line(&mut line).unwrap_or(0) == 0 {
                            return;
                        }
                        let line = line.trim().to_lowercase();
                        if let Some(value) = line.strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        if line.is_empty() {
                            break;
                        }
                    }
                    requests.read_exact(&mut vec![0; length]).unwrap();
                    let head = "HTTP/1.1 201 Created\r\ncontent-type: application/json";
                    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
                    requests.get_mut().write_all(answer.as_bytes()).unwrap();
                }
            });
        }
    });
    format!("http://{address}")
}

#[test]
fn without_rights_on_leases_the_program_ends_and_names_them() {
    let file = std::env::temp_dir().join(format!("refusals-{}.kubeconfig", std::process::id()));
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": one_that_refuses()}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "users": [{"name": "one", "user": {}}]});
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let (code, text) = run(file.to_str().unwrap(), &["--identity=one"]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(code, Some(1), "{text}");
    for words in [
        "leases.coordination.k8s.io",
        "appwrapper-system",
        "appwrapper-leader-election-role",
    ] {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
}

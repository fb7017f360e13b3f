//! The samples, as a user runs them.

use std::time::Instant;

use serde_json::Value;

use crate::installation::Installation;

const NAMESPACE: &str = "samples";

/// Those whose images and kinds are there, and the phase each comes to.
const SAMPLES: [(&str, &str); 8] = [
    ("job", "Succeeded"),
    ("multi-component", "Succeeded"),
    ("generate-name-job", "Succeeded"),
    ("pod", "Succeeded"),
    ("failing-job", "Failed"),
    ("failing-pod", "Failed"),
    ("deployment", "Running"),
    ("statefulset", "Running"),
];

pub async fn samples_run_to_their_ends_in_real_containers(installation: &Installation) {
    installation.kubectl(&["create", "namespace", NAMESPACE]).await;
    let started = Instant::now();
    for (sample, _) in SAMPLES {
        let file = format!("deploy/samples/{sample}.yaml");
        installation.kubectl(&["apply", "-n", NAMESPACE, "-f", &file]).await;
    }
    // While it works, for its pods go with its AppWrapper's time to live.
    installation
        .kubectl(&[
            "wait",
            "-n",
            NAMESPACE,
            "appwrapper/sample-job",
            "--for=jsonpath={.status.phase}=Succeeded",
            "--timeout=120s",
        ])
        .await;
    let logs = installation
        .kubectl(&["logs", "-n", NAMESPACE, "-l", "job-name=sample-job"])
        .await;
    assert!(logs.contains("working") && logs.contains("done"), "{logs}");
    for (sample, phase) in SAMPLES {
        if sample == "job" {
            continue;
        }
        let name = format!("appwrapper/sample-{sample}");
        let condition = format!("--for=jsonpath={{.status.phase}}={phase}");
        installation
            .kubectl(&["wait", "-n", NAMESPACE, &name, &condition, "--timeout=120s"])
            .await;
    }
    for sample in ["deployment", "statefulset"] {
        let name = format!("appwrapper/sample-{sample}");
        installation
            .kubectl(&[
                "wait",
                "-n",
                NAMESPACE,
                &name,
                "--for=condition=PodsReady",
                "--timeout=60s",
            ])
            .await;
    }
    println!(
        "measured: {} samples came to their ends in {:.1} s",
        SAMPLES.len(),
        started.elapsed().as_secs_f32()
    );
    reads_well(installation).await;
    installation
        .kubectl(&["delete", "namespace", NAMESPACE, "--timeout=120s"])
        .await;
}

/// What kubectl shows of them.
async fn reads_well(installation: &Installation) {
    let table = installation.kubectl(&["get", "appwrappers", "-n", NAMESPACE]).await;
    println!("{table}");
    let heading = table.lines().next().unwrap();
    assert!(
        heading.contains("STATUS") && heading.contains("QUOTA RESERVED"),
        "{heading}"
    );
    let row = table
        .lines()
        .find(|line| line.starts_with("sample-failing-job"))
        .unwrap();
    assert!(row.contains("Failed"), "{row}");

    let described = installation
        .kubectl(&["describe", "appwrapper", "sample-failing-job", "-n", NAMESPACE])
        .await;
    let events = described.split("Events:").nth(1).unwrap();
    println!("{events}");
    assert!(events.contains("Warning"), "{described}");
    let retried: Value = installation
        .get(&["appwrapper", "sample-failing-job", "-n", NAMESPACE])
        .await;
    assert_eq!(retried["status"]["resettingCount"], 2, "{retried:#}");
    let logs = installation
        .kubectl(&["logs", "-n", NAMESPACE, "job/sample-multi-component", "--all-pods"])
        .await;
    assert!(logs.contains("hello"), "{logs}");
}

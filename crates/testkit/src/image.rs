//! Images made with buildah, as archives, without a container engine and without a registry.
//!
//! [`Builder::build_project`] makes the project's own image from the last stage of the `Dockerfile`, word for word. The stage
//! before it, which compiles, needs an image with a Rust toolchain from a registry; programs that Cargo has built take its
//! place, and an image of nothing but the C library and its kin that of the runtime image.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

/// The image's name in the manifests of `deploy/base`.
pub const PROJECT_IMAGE: &str = "docker.io/library/appwrapper:0.1.0";

const RUNTIME_IMAGE: &str = "localhost/runtime:1";

/// Makes images in a folder.
#[derive(Debug, Clone)]
pub struct Builder {
    folder: PathBuf,
}

impl Builder {
    /// A builder that keeps what it makes in this folder.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Builds the project's image around programs; returns its archive.
    ///
    /// # Errors
    ///
    /// When the `Dockerfile` has no stages as expected, when a library is not found, or when buildah fails.
    pub async fn build_project(&self, programs: &[PathBuf]) -> Result<PathBuf> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = fs::read_to_string(repository.join("Dockerfile")).context("reading the Dockerfile")?;
        let stage = self.folder.join("programs");
        let runtime = self.folder.join("runtime");
        fs::create_dir_all(stage.join("programs"))?;
        fs::create_dir_all(&runtime)?;
        for program in programs {
            let name = program.file_name().context("a program has a name")?;
            strip(program, &stage.join("programs").join(name)).await?;
            copy_libraries(program, &runtime.join("root")).await?;
        }
        fs::write(runtime.join("Dockerfile"), "FROM scratch\nCOPY root /\n")?;
        self.build(&runtime.join("Dockerfile"), &runtime, RUNTIME_IMAGE, &[])
            .await?;

        let dockerfile = self.folder.join("Dockerfile");
        fs::write(&dockerfile, last_stage(&text)?)?;
        let context = format!("build={}", stage.display());
        let runtime_image = format!("RUNTIME_IMAGE={RUNTIME_IMAGE}");
        let options = ["--build-context", &context, "--build-arg", &runtime_image];
        self.build(&dockerfile, &stage, PROJECT_IMAGE, &options).await?;
        self.save(PROJECT_IMAGE, PROJECT_IMAGE).await
    }

    /// Builds an image.
    ///
    /// # Errors
    ///
    /// When buildah fails; the error carries what it says.
    pub async fn build(&self, dockerfile: &Path, context: &Path, name: &str, options: &[&str]) -> Result<()> {
        let mut buildah = self.buildah();
        buildah
            .args([
                "build",
                "--quiet",
                "--isolation",
                "chroot",
                "--pull-never",
                "--tag",
                name,
                "--file",
            ])
            .arg(dockerfile)
            .args(options)
            .arg(context);
        output(buildah)
            .await
            .map(drop)
            .with_context(|| format!("building image {name}"))
    }

    /// Saves an image under a name; returns the archive.
    ///
    /// # Errors
    ///
    /// When buildah fails.
    pub async fn save(&self, image: &str, name: &str) -> Result<PathBuf> {
        let plain: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let archive = self.folder.join(plain).with_extension("tar");
        if archive.exists() {
            fs::remove_file(&archive)?;
        }
        let mut buildah = self.buildah();
        let target = format!("docker-archive:{}:{name}", archive.display());
        buildah.args(["push", "--quiet", image, &target]);
        output(buildah).await.with_context(|| format!("saving image {image}"))?;
        Ok(archive)
    }

    /// What a built image says of itself, as JSON in the format of OCI.
    ///
    /// # Errors
    ///
    /// When there is no such image.
    pub async fn describe(&self, image: &str) -> Result<serde_json::Value> {
        let mut buildah = self.buildah();
        buildah.args(["inspect", "--type", "image", image]);
        let mut description: serde_json::Value = serde_json::from_str(&output(buildah).await?)?;
        Ok(description["OCIv1"].take())
    }

    fn buildah(&self) -> Command {
        let mut command = Command::new("buildah");
        command
            .env("STORAGE_DRIVER", "vfs")
            .arg("--root")
            .arg(self.folder.join("storage"))
            .arg("--runroot")
            .arg(self.folder.join("run"));
        command
    }
}

/// The `Dockerfile` without the stages before the last.
fn last_stage(text: &str) -> Result<String> {
    let is_from = |line: &&str| line.starts_with("FROM ");
    let arguments = text.lines().take_while(|line| !is_from(line));
    let last = text.lines().collect::<Vec<_>>();
    let from = last.iter().rposition(is_from).context("the Dockerfile has no stage")?;
    let stage = last.get(from..).unwrap_or_default();
    let lines: Vec<&str> = arguments.chain(stage.iter().copied()).collect();
    Ok(lines.join("\n") + "\n")
}

/// Copies a program without what only a debugger needs, which is most of a debug build.
async fn strip(program: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("strip");
    command.arg("-o").arg(to).arg(program);
    output(command).await.map(drop)
}

/// Copies the shared libraries of a program to the same places below a folder.
async fn copy_libraries(program: &Path, root: &Path) -> Result<()> {
    let mut command = Command::new("ldd");
    command.arg(program);
    for library in libraries(&output(command).await?) {
        let to = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().context("a library is in a folder")?)?;
        fs::copy(&library, &to).with_context(|| format!("copying {library}"))?;
    }
    Ok(())
}

/// The paths in what `ldd` prints.
fn libraries(text: &str) -> BTreeSet<String> {
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(str::to_owned).collect()
}

async fn output(mut command: Command) -> Result<String> {
    let name = command.as_std().get_program().to_owned();
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("running {}", name.display()))?;
    if !output.status.success() {
        bail!("{}: {}", name.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_dockerfile_the_last_stage_is_left_word_for_word() {
        let text = "# one\nARG A=1\nFROM x AS build\nRUN y\nFROM ${A}\nCOPY --from=build /p /\nUSER 1\n";
        let left = "# one\nARG A=1\nFROM ${A}\nCOPY --from=build /p /\nUSER 1\n";
        assert_eq!(last_stage(text).unwrap(), left);
        assert!(last_stage("# nothing").is_err());
    }

    #[test]
    fn libraries_are_those_with_a_place() {
        let text = "\tlinux-vdso.so.1 (0x7)\n\tlibc.so.6 => /lib/libc.so.6 (0x7)\n\t/lib64/ld-linux.so.2 (0x7)\n";
        let found: Vec<_> = libraries(text).into_iter().collect();
        assert_eq!(found, ["/lib/libc.so.6", "/lib64/ld-linux.so.2"]);
    }
}

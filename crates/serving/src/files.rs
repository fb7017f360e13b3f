//! A certificate in mounted files, as cert-manager provides them.
//!
//! Both files are read again and compared. A mounted Secret is swapped by a symbolic link, which notifications of the files
//! themselves do not see, and reading two small files costs nothing. Between the two reads the pair may be exchanged: it
//! then does not match, and the next reading is right.

use std::path::PathBuf;

use crate::certificate::Pair;

/// A directory with `tls.crt` and `tls.key`.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    last: Option<(Vec<u8>, Vec<u8>)>,
}

impl Files {
    /// Reads nothing yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, last: None }
    }

    /// The pair, unless it is the one that the last call gave. The error names the file.
    pub async fn read(&mut self) -> Result<Option<Pair>, String> {
        let read = async |name: &str| {
            let path = self.directory.join(name);
            tokio::fs::read(&path)
                .await
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        let files = (read("tls.crt").await?, read("tls.key").await?);
        if self.last.as_ref() == Some(&files) {
            return Ok(None);
        }
        let pair = Pair::read(&files.0, &files.1).map_err(|fault| format!("{}: {fault}", self.directory.display()))?;
        self.last = Some(files);
        Ok(Some(pair))
    }
}

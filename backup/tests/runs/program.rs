//! Runs of the program, and their results.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use etcd_operator_core::backup::Word;
use etcd_operator_core::backup::report::{Done, Failure, MAX_BYTES, Outcome, Reason, Report, Summary};
use serde_json::{Value, json};
use testbed::store::S3;
use tokio::process::{Child, Command};

/// A scratch directory with the inputs of runs. It goes when this does.
pub struct Place {
    pub directory: PathBuf,
    inputs: Value,
    environment: Vec<(&'static str, String)>,
}

pub struct Ended {
    pub code: i32,
    pub report: Report,
    pub said: String,
}

impl Place {
    fn new(store: Value) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("etcd-backup-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        Self { directory, inputs: json!({ "store": store }), environment: Vec::new() }
    }

    pub fn local() -> Self {
        let mut place = Self::new(json!({}));
        let directory = place.directory.join("store");
        std::fs::create_dir_all(&directory).expect("a directory");
        place.set("store", json!({"type": "Local", "directory": directory, "path": "prod"}));
        place
    }

    pub fn s3(endpoint: &str) -> Self {
        let store = json!({
            "type": "S3", "bucket": S3::BUCKET, "region": "us-east-1", "endpoint": endpoint, "path": "prod", "retrySeconds": 2,
        });
        let mut place = Self::new(store);
        place.environment = vec![
            ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY.into()),
        ];
        place
    }

    pub fn azure(endpoint: &str, container: &str, account: &str, key: &str) -> Self {
        let mut place = Self::new(json!({
            "type": "Azure", "account": account, "container": container, "endpoint": endpoint, "retrySeconds": 2,
        }));
        place.environment = vec![("AZURE_STORAGE_ACCOUNT_KEY", key.into())];
        place
    }

    pub fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.inputs[field] = value.into();
    }

    pub fn set_store(&mut self, field: &str, value: impl Into<Value>) {
        self.inputs["store"][field] = value.into();
    }

    pub fn set_environment(&mut self, name: &'static str, value: &str) {
        self.environment.retain(|(it, _)| *it != name);
        self.environment.push((name, value.into()));
    }

    /// Where objects of a local store are.
    pub fn objects(&self, cluster: &str) -> PathBuf {
        self.directory.join("store/prod").join(cluster)
    }

    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::write(&path, content).expect("a file");
        path
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        let inputs = self.file("inputs.json", &self.inputs.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-backup"));
        command.arg("--inputs").arg(inputs).arg("--result").arg(self.result()).args(arguments);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().expect("it runs")
    }

    pub async fn ended(&self, child: Child) -> Ended {
        let output = child.wait_with_output().await.expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let written =
            std::fs::read_to_string(self.result()).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!(printed.trim_end(), written, "{said}");
        assert!(written.len() <= MAX_BYTES);
        for secret in [S3::SECRET_KEY, "AGE-SECRET-KEY"] {
            assert!(!said.contains(secret) && !written.contains(secret), "{said}{written}");
        }
        let report = serde_json::from_str(&written).expect("a result");
        Ended { code: output.status.code().unwrap_or(-1), report, said }
    }

    pub async fn run(&self, arguments: &[&str]) -> Ended {
        self.ended(self.start(arguments)).await
    }

    pub async fn done(&self, arguments: &[&str]) -> Done {
        let ended = self.run(arguments).await;
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.said);
        let Outcome::Succeeded(done) = ended.report.outcome else { panic!("{arguments:?}: {}", ended.said) };
        done
    }

    /// The message of a run that fails for this reason.
    pub async fn refused(&self, arguments: &[&str], reason: Reason) -> String {
        self.run(arguments).await.refused(reason)
    }

    pub async fn take(&self) -> Summary {
        let Done::Take { copy } = self.done(&["take"]).await else { panic!("nothing was taken") };
        copy
    }

    pub async fn list(&self) -> Vec<Summary> {
        let Done::List { copies, unreadable, .. } = self.done(&["list"]).await else { panic!("not a list") };
        assert_eq!(unreadable, []);
        copies
    }

    fn result(&self) -> PathBuf {
        self.directory.join("result.json")
    }
}

impl Ended {
    pub fn refused(self, reason: Reason) -> String {
        let Outcome::Failed(Failure { reason: found, message }) = self.report.outcome else {
            panic!("it succeeds: {}", self.said);
        };
        assert_eq!((found, self.code), (Word::Known(reason), reason.exit_code().into()), "{}", self.said);
        message
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A private key of age, in a file, and its public key.
pub fn identity(place: &Place, file: &str) -> (PathBuf, String) {
    use age::secrecy::ExposeSecret;
    let identity = age::x25519::Identity::generate();
    (place.file(file, identity.to_string().expose_secret()), identity.to_public().to_string())
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("our names are text")
}

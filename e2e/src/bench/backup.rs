//! A backup, beside what people do without the program for it: `etcdctl snapshot save`, and an upload of the file.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use aws_lc_rs::hmac;
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};
use testbed::build;
use testbed::store::{Options, S3};
use tokio::process::Command;

use super::operation::{BACKUP_MEGABYTES, Operation, Subject};
use super::samples::Sample;
use super::stage::{LIMIT, Stage};
use crate::etcd::Member;
use crate::plain::{self, Plain};
use crate::{install, workspace};

const VALUE_BYTES: usize = 1_000_000;
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

impl Stage {
    /// From the start of the first program to the end of the last, with the same member and the same store. Neither of both
    /// reads back what it has stored.
    pub(super) async fn backup(&mut self, namespace: &str) -> Result<()> {
        let subject = Subject::operated(Operation::Backup, plain::VERSION).without_tls();
        let cluster = Plain::new(namespace, "plain", 1).volume("2Gi");
        let members = cluster.create(&self.client, LIMIT).await?;
        let member = members.first().context("the cluster has no members")?;
        fill(member).await?;
        let store = S3::start_for_pods(Options::default()).await?;
        let scratch = Scratch::create()?;

        let began = Instant::now();
        by_hand(member, &store, &scratch.0.join("snapshot.db")).await?;
        self.keep(subject.plain(), Sample { time: began.elapsed(), ..Sample::default() });

        let inputs = scratch.0.join("inputs.json");
        let settings = json!({
            "store": {"type": "S3", "bucket": S3::BUCKET, "region": S3::REGION, "endpoint": store.endpoint()},
            "etcd": {"endpoints": [format!("http://{}", member.address)]},
            "verification": "Checksum",
        });
        std::fs::write(&inputs, settings.to_string()).context("cannot write the inputs")?;
        let mut take = Command::new(install::backup_program()?);
        take.arg("take").arg("--inputs").arg(&inputs).arg("--result").arg(scratch.0.join("result.json"));
        take.env_clear()
            .env("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY);
        let began = Instant::now();
        succeeds(take).await?;
        self.keep(subject, Sample { time: began.elapsed(), ..Sample::default() });
        cluster.delete(&self.client, LIMIT).await
    }
}

/// With what does not compress, as most values of real clusters are not zeroes either.
async fn fill(member: &Member) -> Result<()> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..BACKUP_MEGABYTES {
        let value = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let value: Vec<u8> = value.flatten().take(VALUE_BYTES).collect();
        member.put(&format!("data/{number}"), value).await?;
    }
    Ok(())
}

async fn by_hand(member: &Member, store: &S3, file: &Path) -> Result<()> {
    let etcdctl = build::ensure_etcd(plain::VERSION).await?.dir.join("etcdctl");
    let mut save = Command::new(etcdctl);
    save.arg("--endpoints").arg(member.address.to_string()).args(["snapshot", "save"]).arg(file);
    succeeds(save).await?;
    let (store, head) = (store.address(), signed(store, file)?);
    let file = file.to_owned();
    tokio::task::spawn_blocking(move || upload(store, &head, &file)).await?
}

async fn succeeds(mut command: Command) -> Result<()> {
    let output = command.output().await.context("cannot run the program")?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// As quick as an upload can be: one request, and nobody computes a hash of its content.
fn upload(store: std::net::SocketAddr, head: &str, file: &Path) -> Result<()> {
    let mut connection = TcpStream::connect(store).context("cannot connect to the store")?;
    connection.write_all(head.as_bytes())?;
    std::io::copy(&mut File::open(file)?, &mut connection).context("cannot upload the snapshot")?;
    let mut response = String::new();
    connection.read_to_string(&mut response).context("no response of the store")?;
    ensure!(response.starts_with("HTTP/1.1 200"), "the store responds {response}");
    Ok(())
}

/// The head of a request that writes the file, with a signature of version 4.
fn signed(store: &S3, file: &Path) -> Result<String> {
    let bytes = std::fs::metadata(file).context("there is no snapshot")?.len();
    let (host, path) = (store.address(), format!("/{}/by-hand.db", S3::BUCKET));
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let headers = format!("host:{host}\nx-amz-content-sha256:{UNSIGNED}\nx-amz-date:{time}\n");
    let names = "host;x-amz-content-sha256;x-amz-date";
    let request = hex(&Sha256::digest(format!("PUT\n{path}\n\n{headers}\n{names}\n{UNSIGNED}")));
    let (day, region) = (&time[..8], S3::REGION);
    let scope = format!("{day}/{region}/s3/aws4_request");
    let key = format!("AWS4{}", S3::SECRET_KEY).into_bytes();
    let key = [day, region, "s3", "aws4_request"].iter().fold(key, |key, part| keyed(&key, part));
    let signature = hex(&keyed(&key, &format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{request}")));
    let credential = format!("{}/{scope}", S3::ACCESS_KEY);
    Ok(format!(
        "PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\
         x-amz-content-sha256: {UNSIGNED}\r\nx-amz-date: {time}\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}\r\n\r\n"
    ))
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A directory with the snapshot, for one run.
struct Scratch(PathBuf);

impl Scratch {
    fn create() -> Result<Self> {
        let scratch = Self(workspace::results().join("bench/backup"));
        let _ = std::fs::remove_dir_all(&scratch.0);
        std::fs::create_dir_all(&scratch.0).context("cannot create target/bench/backup/")?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

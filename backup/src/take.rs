//! Takes a copy: from one member of a cluster into the store.

use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::SnapshotStreaming;
use etcd_operator_core::backup::FormatVersion;
use etcd_operator_core::backup::inputs::{Etcd, Inputs};
use etcd_operator_core::backup::layout::{CopyName, Layout, data_file};
use etcd_operator_core::backup::manifest::{
    Data, FORMAT, HashKv, Manifest, READABLE_FROM, Revisions, Verification,
};
use etcd_operator_core::backup::report::{Done, Summary};
use jiff::Timestamp;
use object_store::path::Path;
use tokio::sync::mpsc;

use crate::decode::Content;
use crate::encode::{self, Encoded};
use crate::error::Error;
use crate::etcd::{Member, words};
use crate::read;
use crate::store::Store;
use crate::upload::Upload;

/// Chunks of 32 KiB between etcd and the encoder.
const CHUNKS: usize = 16;
/// etcd sends nothing for this long only if it hangs.
const SILENCE: Duration = Duration::from_secs(60);
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

pub async fn take(inputs: &Inputs, interrupted: impl Future<Output = ()>) -> Result<Done, Error> {
    tokio::pin!(interrupted);
    let missing = || Error::Configuration("etcd is missing: give the endpoints of the cluster".into());
    let etcd = inputs.etcd.as_ref().ok_or_else(missing)?;
    let begun = begin(inputs, etcd);
    let (run, mut upload) = tokio::select! {
        begun = begun => begun?,
        () = &mut interrupted => return Err(Error::Interrupted),
    };
    let taken = tokio::select! {
        taken = run.store_copy(&mut upload) => taken,
        () = &mut interrupted => Err(Error::Interrupted),
    };
    match taken {
        Ok(manifest) => Ok(Done::Take { copy: Summary::from(&manifest) }),
        Err(error) => {
            upload.discard().await;
            Err(error)
        }
    }
}

struct Run<'a> {
    inputs: &'a Inputs,
    store: Store,
    recipients: Vec<age::x25519::Recipient>,
    member: Member,
    name: CopyName,
    layout: Layout,
    started_at: Timestamp,
}

/// Everything that can be refused is, before etcd is asked for its data.
async fn begin<'a>(inputs: &'a Inputs, etcd: &Etcd) -> Result<(Run<'a>, Upload), Error> {
    let recipients = encode::recipients(&inputs.recipients)?;
    let store = Store::open(inputs)?;
    let member = Member::choose(etcd, inputs.cluster()).await?;
    let started_at = Timestamp::now();
    let name = CopyName::new(started_at, random());
    let layout = Layout::new(store.path(), member.cluster);
    let file = data_file(&name, inputs.compression, inputs.encryption());
    let (data, manifest) = (Path::from(layout.data_at(&file)), Path::from(layout.manifest_of(&name)));
    eprintln!(
        "taking copy {name} of cluster {} from {} into {}",
        member.cluster, member.endpoint, store.location
    );
    let upload = Upload::begin(&store.objects, data, manifest).await?;
    Ok((Run { inputs, store, recipients, member, name, layout, started_at }, upload))
}

impl Run<'_> {
    async fn store_copy(&self, upload: &mut Upload) -> Result<Manifest, Error> {
        let (lowest, etcd_version) = self.member.status().await?;
        let mut stream = self.member.snapshot().await?;
        let first = next(&self.member, &mut stream).await?.unwrap_or_default();
        let (highest, _) = self.member.status().await?;
        // At once, so that a compaction has little time to make the hash impossible.
        let hash_kv = async { Ok(self.member.hash_kv(lowest).await) };
        let (encoded, hash_kv) = futures::try_join!(self.send(first, stream, upload), hash_kv)?;
        upload.complete().await?;
        let revision = Revisions { lowest, highest };
        let manifest = self.manifest(encoded, etcd_version, revision, hash_kv).await?;
        if self.inputs.verification == Verification::ReadBack {
            eprintln!("reading {} bytes back", manifest.data.bytes);
            read::content(&self.store, &self.layout, manifest.clone(), Content::Sealed, std::io::sink())
                .await?;
        }
        let manifest = Manifest { completed_at: Timestamp::now(), ..manifest };
        upload.announce(manifest.render()).await?;
        Ok(manifest)
    }

    /// etcd, the encoder and the store at once, as fast as the slowest of them.
    async fn send(
        &self,
        first: Bytes,
        stream: SnapshotStreaming,
        upload: &mut Upload,
    ) -> Result<Encoded, Error> {
        let (chunk_sender, chunk_receiver) = mpsc::channel(CHUNKS);
        let (part_sender, mut part_receiver) = mpsc::channel(1);
        let (compression, recipients) = (self.inputs.compression, self.recipients.clone());
        let encoder = tokio::task::spawn_blocking(move || {
            encode::encode(chunk_receiver, part_sender, compression, &recipients)
        });
        let received = receive(&self.member, first, stream, chunk_sender);
        let uploaded = async {
            while let Some(part) = part_receiver.recv().await {
                upload.send(part).await?;
            }
            // A failed upload has to end the encoder, which waits for room otherwise.
            drop(part_receiver);
            Ok(())
        };
        // The first error is the cause of the others.
        let sent = futures::try_join!(received, uploaded);
        let encoded = encoder.await.expect("the encoder does not panic");
        sent.and(encoded)
    }

    async fn manifest(
        &self,
        encoded: Encoded,
        etcd_version: String,
        revision: Revisions,
        hash_kv: Option<HashKv>,
    ) -> Result<Manifest, Error> {
        let encryption = self.inputs.encryption();
        Ok(Manifest {
            format: FORMAT.into(),
            format_version: FormatVersion::CURRENT,
            readable_from: READABLE_FROM,
            program_version: env!("CARGO_PKG_VERSION").into(),
            name: self.name.clone(),
            cluster_id: self.member.cluster.to_string(),
            started_at: self.started_at,
            completed_at: Timestamp::now(),
            etcd_version,
            member_id: self.member.id.to_string(),
            members: self.member.members().await?,
            auth: self.member.auth().await.into(),
            revision,
            hash_kv,
            snapshot: encoded.snapshot,
            data: Data {
                file: data_file(&self.name, self.inputs.compression, encryption),
                bytes: encoded.bytes,
                sha256: encoded.sha256,
                compression: self.inputs.compression.into(),
                encryption: encryption.into(),
                recipients: self.inputs.recipients.clone(),
            },
            verification: self.inputs.verification.into(),
        })
    }
}

/// Hands over everything that etcd sends, until its end or until nobody receives it any more.
async fn receive(
    member: &Member,
    first: Bytes,
    mut stream: SnapshotStreaming,
    to: mpsc::Sender<Bytes>,
) -> Result<(), Error> {
    let (mut chunk, mut bytes, mut reported) = (Some(first), 0, Instant::now());
    while let Some(received) = chunk {
        bytes += received.len();
        if to.send(received).await.is_err() {
            break;
        }
        if reported.elapsed() >= PROGRESS_EVERY {
            eprintln!("received {} MiB", bytes >> 20);
            reported = Instant::now();
        }
        chunk = next(member, &mut stream).await?;
    }
    Ok(())
}

async fn next(member: &Member, stream: &mut SnapshotStreaming) -> Result<Option<Bytes>, Error> {
    let lost = |words: &str| member.failed("receive the snapshot", words);
    let message = tokio::time::timeout(SILENCE, stream.message()).await;
    let message = message.map_err(|_| lost("etcd sent nothing for 60 s"))?;
    let message = message.map_err(|error| lost(&words(&error)))?;
    Ok(message.map(|message| Bytes::copy_from_slice(message.blob())))
}

pub fn random() -> u64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
    u64::from_le_bytes(bytes)
}

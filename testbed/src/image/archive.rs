//! One image as one file that is an OCI image layout and a Docker archive at once.
//!
//! Docker, containerd, kind and skopeo each look for one of the two; both lead to the same blobs.
//! The documents stand in front of the layer, so that a reader need not go through it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tar::{Builder, EntryType};

use super::digest::{Digest, Hashing};
use super::document::{
    CONFIG_TYPE, Descriptor, DockerEntry, INDEX_TYPE, ImageConfig, Index, LAYER_TYPE, LAYOUT, MANIFEST_TYPE,
    Manifest, NAME_ANNOTATION, RootFilesystem, RunConfig, TAG_ANNOTATION,
};
use super::layer::{Layer, header};
use super::{Contents, Name};

/// All that is in an archive, worked out before any of it is written.
pub struct Archive<'a> {
    layer: &'a Layer,
    layer_digest: Digest,
    config: Vec<u8>,
    manifest: Vec<u8>,
    index: Index,
    docker: Vec<DockerEntry>,
}

impl<'a> Archive<'a> {
    /// Reads every source once, for the layer's digest.
    pub fn plan(names: &[Name], layer: &'a Layer, run: &RunConfig) -> Result<Self> {
        ensure!(!names.is_empty(), "an image needs a name");
        let mut hashing = Hashing::new(io::sink());
        layer.write(&mut hashing)?;
        let (layer_digest, layer_size) = hashing.finish();
        let config = serde_json::to_vec(&ImageConfig {
            created: "1970-01-01T00:00:00Z".into(),
            architecture: architecture().into(),
            os: "linux".into(),
            config: run.clone(),
            rootfs: RootFilesystem { kind: "layers".into(), diff_ids: vec![layer_digest.clone()] },
        })?;
        let config_digest = Digest::of(&config);
        let manifest = serde_json::to_vec(&Manifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE.into(),
            config: Descriptor::new(CONFIG_TYPE, config_digest.clone(), config.len() as u64),
            layers: vec![Descriptor::new(LAYER_TYPE, layer_digest.clone(), layer_size)],
        })?;
        let named = |name: &Name| {
            let mut descriptor = Descriptor::new(MANIFEST_TYPE, Digest::of(&manifest), manifest.len() as u64);
            descriptor.annotations = BTreeMap::from([
                (NAME_ANNOTATION.to_owned(), name.to_string()),
                (TAG_ANNOTATION.to_owned(), name.tag().to_owned()),
            ]);
            descriptor
        };
        let index = Index {
            schema_version: 2,
            media_type: INDEX_TYPE.into(),
            manifests: names.iter().map(named).collect(),
        };
        let docker = vec![DockerEntry {
            config: blob(&config_digest),
            repo_tags: names.iter().map(Name::to_string).collect(),
            layers: vec![blob(&layer_digest)],
        }];
        Ok(Self { layer, layer_digest, config, manifest, index, docker })
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// Whether that file is this archive already. The digests in its index cover names, settings and files.
    pub fn is_at(&self, path: &Path) -> bool {
        File::open(path)
            .map_err(anyhow::Error::from)
            .and_then(|file| Contents::read(&file))
            .is_ok_and(|contents| *contents.index() == self.index)
    }

    /// Writes to a file beside `path` and moves it there, so that a reader sees the old archive or the new one.
    pub fn write(&self, path: &Path) -> Result<()> {
        let partial = Partial::beside(path)?;
        let mut tar = Builder::new(BufWriter::with_capacity(1 << 18, File::create(&partial.path)?));
        append(&mut tar, "oci-layout", LAYOUT.as_bytes())?;
        append(&mut tar, "index.json", &json(&self.index)?)?;
        append(&mut tar, "manifest.json", &json(&self.docker)?)?;
        append(&mut tar, &blob(&self.digest()), &self.manifest)?;
        append(&mut tar, &blob(&Digest::of(&self.config)), &self.config)?;
        self.append_layer(&mut tar)?;
        let file = tar.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        std::fs::rename(&partial.path, path)?;
        Ok(())
    }

    fn append_layer(&self, tar: &mut Builder<BufWriter<File>>) -> Result<()> {
        let mut header = header(EntryType::Regular, 0o644, 0);
        let mut entry = tar.append_writer(&mut header, blob(&self.layer_digest))?;
        let mut hashing = Hashing::new(&mut entry);
        self.layer.write(&mut hashing)?;
        ensure!(
            hashing.finish().0 == self.layer_digest,
            "a file changed while the testbed copied it into the image"
        );
        entry.finish()?;
        Ok(())
    }
}

fn append(tar: &mut Builder<impl Write>, path: &str, content: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(EntryType::Regular, 0o644, content.len() as u64), path, content)
}

fn json(document: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(document).context("cannot write a document of the image")
}

fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// This machine's, as Go spells it: the programs that we put into images were built here.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A file in the making, removed unless it was moved away.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn beside(path: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let directory = path.parent().context("an archive needs a directory")?;
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let mut name = path.file_name().context("an archive needs a name")?.to_owned();
        name.push(format!(".{}-{}.partial", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        Ok(Self { path: directory.join(name) })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

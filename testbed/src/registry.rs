//! A read-only image registry over the archives of some directories.
//!
//! Nodes ask it for every image, whatever registry the image's name says, so that nothing is ever
//! asked of another machine, and `:latest` and `imagePullPolicy: Always` work as they should.

mod request;
mod shelf;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io::SeekFrom;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::net::TcpListener;
use tokio_util::io::ReaderStream;

use crate::image::{Extent, MANIFEST_TYPE};
use request::{Asked, Kind, Range, Wanted};
use shelf::{Found, Shelf};

/// As much as the specification has every registry accept.
const MOST_MANIFEST_BYTES: u64 = 4 << 20;
const CHUNK_BYTES: usize = 1 << 18;
const DIGEST_HEADER: HeaderName = HeaderName::from_static("docker-content-digest");

/// Answers until it is dropped. An archive that is added, replaced or removed meanwhile counts at once;
/// where two have the same name, the earlier directory's is served.
pub async fn serve(listener: TcpListener, directories: Vec<PathBuf>) -> Result<()> {
    let shelf = Arc::new(Shelf::new(directories));
    axum::serve(listener, Router::new().fallback(answer).with_state(shelf))
        .await
        .context("the registry stopped")
}

/// What containerd reads as `_default/hosts.toml`: ask our registry for everything, and no other.
pub fn hosts_toml(address: impl Display) -> String {
    // `server` alone would say it all, but containerd 1.6 ignores a file without a host table.
    format!(
        "server = \"http://{address}\"\n\n[host.\"http://{address}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
    )
}

async fn answer(State(shelf): State<Arc<Shelf>>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text = "this registry is read-only: use `testbed image` to create images";
        return failure(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", text);
    }
    let range = request.headers().get(header::RANGE).and_then(|value| Range::parse(value.to_str().ok()?));
    match Asked::parse(request.uri().path(), request.uri().query()) {
        Ok(Asked::Api) => ([(header::CONTENT_TYPE, "application/json")], "{}").into_response(),
        Ok(Asked::Content(kind, wanted)) => {
            content(shelf, kind, &wanted, range).await.unwrap_or_else(|error| {
                eprintln!("cannot serve {wanted}: {error:#}");
                failure(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", &format!("{error:#}"))
            })
        }
        Err(error) => failure(StatusCode::NOT_FOUND, "UNSUPPORTED", &format!("{error:#}")),
    }
}

async fn content(shelf: Arc<Shelf>, kind: Kind, wanted: &Wanted, range: Option<Range>) -> Result<Response> {
    match (look(shelf, wanted).await?, kind) {
        (Ok(found), Kind::Manifest) => manifest(found).await,
        (Ok(found), Kind::Blob) => blob(found, range).await,
        (Err(tags), kind) => Ok(unknown(kind, wanted, &tags)),
    }
}

/// What is wanted or, if it is not here, the tags that are.
async fn look(shelf: Arc<Shelf>, wanted: &Wanted) -> Result<Result<Found, Vec<String>>> {
    let wanted = wanted.clone();
    let look = move || shelf.find(&wanted).ok_or_else(|| shelf.tags(&wanted));
    Ok(tokio::task::spawn_blocking(look).await?)
}

async fn manifest(found: Found) -> Result<Response> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        media_type: Option<String>,
    }

    let mut content = Vec::new();
    let mut file = tokio::fs::File::from_std(found.file);
    file.seek(SeekFrom::Start(found.extent.offset)).await?;
    file.take(found.extent.size.min(MOST_MANIFEST_BYTES)).read_to_end(&mut content).await?;
    let typed: Typed = serde_json::from_slice(&content).context("the manifest is not JSON")?;
    let media_type = typed.media_type.unwrap_or_else(|| MANIFEST_TYPE.to_owned());
    let headers = [(header::CONTENT_TYPE, media_type), (DIGEST_HEADER, found.digest.to_string())];
    Ok((headers, content).into_response())
}

async fn blob(found: Found, range: Option<Range>) -> Result<Response> {
    let whole = found.extent;
    let (status, part) = match range.map(|range| range.of(whole.size)) {
        None => (StatusCode::OK, Extent { offset: 0, size: whole.size }),
        Some(Some(part)) => (StatusCode::PARTIAL_CONTENT, part),
        Some(None) => {
            let headers = [(header::CONTENT_RANGE, format!("bytes */{}", whole.size))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, headers).into_response());
        }
    };
    let mut file = tokio::fs::File::from_std(found.file);
    file.seek(SeekFrom::Start(whole.offset + part.offset)).await?;
    let body = Body::from_stream(ReaderStream::with_capacity(file.take(part.size), CHUNK_BYTES));
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, "application/octet-stream".parse()?);
    headers.insert(header::CONTENT_LENGTH, part.size.into());
    headers.insert(header::ACCEPT_RANGES, "bytes".parse()?);
    headers.insert(DIGEST_HEADER, found.digest.to_string().parse()?);
    if status == StatusCode::PARTIAL_CONTENT {
        let last = part.offset + part.size - 1;
        headers
            .insert(header::CONTENT_RANGE, format!("bytes {}-{last}/{}", part.offset, whole.size).parse()?);
    }
    Ok(response)
}

fn unknown(kind: Kind, wanted: &Wanted, tags: &[String]) -> Response {
    let code = match kind {
        Kind::Manifest => "MANIFEST_UNKNOWN",
        Kind::Blob => "BLOB_UNKNOWN",
    };
    let others = match tags {
        [] => String::new(),
        tags => format!(" (available in this repository: {})", tags.join(", ")),
    };
    let text =
        format!("no image archive of this testbed contains {wanted}{others}: see `testbed image --help`");
    eprintln!("{text}");
    failure(StatusCode::NOT_FOUND, code, &text)
}

/// An error as the specification wants it.
fn failure(status: StatusCode, code: &str, message: &str) -> Response {
    let body = serde_json::json!({ "errors": [{ "code": code, "message": message }] });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

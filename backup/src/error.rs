//! What can go wrong in a run, and the way out.

use std::error::Error as _;
use std::io;

use etcd_operator_core::backup::chain::CopyNeeded;
use etcd_operator_core::backup::report::{Failure, Reason};
use object_store::client::{HttpError, HttpErrorKind};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid configuration: {0}")]
    Configuration(String),
    #[error("cannot {doing}: {words}: {way_out}")]
    Store { doing: String, reason: Reason, words: String, way_out: &'static str },
    #[error("cannot {doing}: {words}")]
    Etcd { doing: &'static str, words: String },
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Damaged(String),
    #[error("{0}")]
    Unusable(String),
    #[error("cannot {doing}: {source}")]
    Output { doing: String, source: io::Error },
    #[error("the archive is not continuous: {0}")]
    Broken(String),
    #[error("the etcd for the replay failed: {0}")]
    Scratch(String),
    #[error("the archive cannot begin: {0}: take a full copy and start the archiver again")]
    CopyNeeded(CopyNeeded),
    #[error("interrupted by a signal, no copy was stored: start the run again")]
    Interrupted,
}

impl Error {
    pub fn store(doing: impl Into<String>, error: &object_store::Error) -> Self {
        let (reason, way_out) = verdict(error);
        Self::Store { doing: doing.into(), reason, words: words(error), way_out }
    }

    pub fn reason(&self) -> Reason {
        match self {
            Self::Configuration(_) => Reason::InvalidConfiguration,
            Self::Store { reason, .. } => *reason,
            Self::Etcd { .. } => Reason::EtcdUnavailable,
            Self::NotFound(_) => Reason::CopyNotFound,
            Self::Damaged(_) => Reason::CopyDamaged,
            Self::Unusable(_) => Reason::CopyUnusable,
            Self::Output { .. } => Reason::OutputFailed,
            Self::Broken(_) => Reason::ChainBroken,
            Self::Scratch(_) => Reason::ReplayFailed,
            Self::CopyNeeded(_) => Reason::CopyNeeded,
            Self::Interrupted => Reason::Interrupted,
        }
    }

    /// It can pass without anybody doing anything.
    pub fn is_passing(&self) -> bool {
        matches!(self.reason(), Reason::EtcdUnavailable | Reason::StoreUnreachable)
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self { reason: error.reason().into(), message: error.to_string() }
    }
}

type Verdict = (Reason, &'static str);

const DENIED: Verdict =
    (Reason::StoreDenied, "check the credentials and their rights on the bucket or directory");
const UNREACHABLE: Verdict =
    (Reason::StoreUnreachable, "check the endpoint, the network and the authorities in store.caFile");
const REJECTED: Verdict = (Reason::StoreRejected, "check that the bucket or directory exists and has space");

/// The reason, and the way out.
fn verdict(error: &object_store::Error) -> Verdict {
    use object_store::Error as E;
    if matches!(error, E::PermissionDenied { .. } | E::Unauthenticated { .. }) {
        return DENIED;
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(kind) = error.downcast_ref::<HttpError>().map(HttpError::kind) {
            let unreachable = [HttpErrorKind::Connect, HttpErrorKind::Request, HttpErrorKind::Timeout];
            if unreachable.contains(&kind) || kind == HttpErrorKind::Interrupted {
                return UNREACHABLE;
            }
        }
        if let Some(kind) = error.downcast_ref::<io::Error>().map(io::Error::kind)
            && kind == io::ErrorKind::PermissionDenied
        {
            return DENIED;
        }
        cause = error.source();
    }
    // The crate has no type for it. A store without space (507) responds the same later.
    let text = error.to_string();
    if text.contains("status code: 5") && !text.contains("status code: 507") { UNREACHABLE } else { REJECTED }
}

/// The store's own words: code and message of its response, else all that the client says, down to the first cause.
pub fn words(error: &object_store::Error) -> String {
    let text = error.to_string();
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
    };
    if let (Some(code), Some(message)) = (element("Code"), element("Message")) {
        // Azure adds lines that identify the request.
        let message = message.lines().next().unwrap_or_default();
        return format!("the store responds {code}: {}", message.trim_end_matches('.'));
    }
    let mut words = text;
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn a_response_in_xml_is_reported_by_its_code_and_message() {
        let text = "<Error><Code>NoSuchBucket</Code><Message>The bucket does not exist</Message></Error>";
        let error = Error::store("write", &generic(text));
        assert_eq!(error.reason(), Reason::StoreRejected);
        assert_eq!(
            error.to_string(),
            "cannot write: the store responds NoSuchBucket: The bucket does not exist: check that the bucket or directory \
             exists and has space"
        );
    }

    #[test]
    fn only_the_first_line_of_a_message_is_reported() {
        let text = "<Error><Code>ContainerNotFound</Code><Message>It does not exist.\nRequestId:1\nTime:2</Message></Error>";
        assert_eq!(words(&generic(text)), "the store responds ContainerNotFound: It does not exist");
    }

    #[test]
    fn a_store_that_fails_by_itself_can_be_asked_again_later() {
        let error = Error::store("write", &generic("Server returned non-2xx status code: 503 Slow Down"));
        assert_eq!(error.reason(), Reason::StoreUnreachable);
    }

    #[test]
    fn a_store_without_space_is_not_unreachable() {
        let text = "status code: 507 Insufficient Storage: <Code>InsufficientStorage</Code><Message>No space left</Message>";
        let error = Error::store("write", &generic(text));
        assert_eq!(error.reason(), Reason::StoreRejected);
        assert!(error.to_string().ends_with("check that the bucket or directory exists and has space"));
    }

    #[test]
    fn a_directory_without_rights_is_denied() {
        let source = Box::new(io::Error::from(io::ErrorKind::PermissionDenied));
        let error = object_store::Error::Generic { store: "LocalFileSystem", source };
        assert_eq!(Error::store("write", &error).reason(), Reason::StoreDenied);
    }
}

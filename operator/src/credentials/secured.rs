//! A stream with TLS whose errors are in words for users: the layers above keep nothing of an error but its text.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

use crate::reach::root_cause;

pub struct Secured<S>(Box<TlsStream<S>>);

impl<S> From<TlsStream<S>> for Secured<S> {
    fn from(stream: TlsStream<S>) -> Self {
        Self(Box::new(stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll_read(context, buffer)) {
            // A process that ends says no goodbye. gRPC itself notices what is incomplete.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(words(&error).map_or(error, io::Error::other)),
            read => read,
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Why a handshake did not succeed.
pub fn failed_handshake(error: &io::Error) -> String {
    if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
        return "TLS: it closed the connection during the handshake: it might serve plain text only".into();
    }
    words(error).unwrap_or_else(|| root_cause(error))
}

/// None if TLS is not the problem.
#[expect(clippy::wildcard_enum_match_arm, reason = "all else is reported as the library words it")]
fn words(error: &io::Error) -> Option<String> {
    let problem = match error.get_ref()?.downcast_ref()? {
        Error::InvalidCertificate(flaw) => format!("its certificate {}", of_certificate(flaw)),
        Error::InvalidMessage(_) => "it does not serve TLS on this port".into(),
        Error::AlertReceived(alert) if is_about_certificate(*alert) => {
            format!("it rejected the operator's certificate ({alert:?})")
        }
        other => other.to_string(),
    };
    Some(format!("TLS: {problem}"))
}

fn is_about_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError
    )
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all else is reported as the library words it")]
fn of_certificate(flaw: &CertificateError) -> String {
    match flaw {
        // All authorities of a cluster have the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is of an authority that the operator does not trust".into()
        }
        CertificateError::NotValidForNameContext { expected, .. } => {
            format!("is not for {}", expected.to_str())
        }
        CertificateError::ExpiredContext { .. } => "has expired".into(),
        CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: check the clocks of the nodes".into()
        }
        other => format!("is invalid: {other}"),
    }
}

//! Why an enrolment failed, by what can be done about it.

use std::error::Error;
use std::io;

use countersign_private_keys::private_file::FileFault;

use crate::client::ClientError;

/// Why an enrolment failed. Each variant has its own remedy; its text says what happened, with which input,
/// and what to do.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The arguments, or the files that they name, cannot be used: correct them.
    #[error("{0}")]
    Arguments(String, #[source] Option<Cause>),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileFault),
    /// Installed files do not belong together or cannot be used: move them away, or bring back what is missing.
    #[error("{0}")]
    Installed(String, #[source] Option<Cause>),
    /// The authority cannot be asked, or its answer cannot be read. A [`ClientError::Call`] may succeed later.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server is not known to be the authority. Nothing secret was sent to it.
    #[error("{0}")]
    Untrusted(String, #[source] Option<Cause>),
    /// The request is still pending, or nobody answered: run the same command again.
    #[error("{0}")]
    NotYet(String),
    /// The authority refuses the request, or offers no such service.
    #[error("{0}")]
    Refused(String),
    /// The authority returned a certificate that does not fit the request.
    #[error("{0}")]
    Unfit(String, #[source] Cause),
    /// A valid certificate stays installed, and could not be renewed.
    #[error("{0}")]
    NotRenewed(String, #[source] Box<Self>),
    /// The certificate is installed, and the hook did not succeed: correct the hook.
    #[error("{0}")]
    Hook(String, #[source] Option<io::Error>),
    /// [`Voice::result`](crate::Voice::result) failed.
    #[error(transparent)]
    Output(io::Error),
    /// A failure that no input explains, for example of the random number generator.
    #[error(transparent)]
    Internal(Cause),
}

/// What an error was caused by.
pub type Cause = Box<dyn Error + Send + Sync>;

pub(crate) type Result<T, E = EnrolError> = std::result::Result<T, E>;

pub(crate) fn internal(fault: impl Into<Cause>) -> EnrolError {
    EnrolError::Internal(fault.into())
}

/// An error and its causes in one line.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<_> = causes(error).map(ToString::to_string).collect();
    texts.join(": ")
}

/// The TLS errors among the causes. Connections wrap them into an [`io::Error`], whose `source` leaves them out.
pub(crate) fn tls_causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a rustls::Error> {
    causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref())
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::CallError;

    /// A failed renewal is told from the outside in, and the alert at its bottom is found.
    #[test]
    fn causes_are_found_and_told_in_order() {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRevoked);
        let refused = CallError::Revoked {
            hint: "it was revoked",
            source: Box::new(CallError::Handshake(io::Error::other(alert.clone()))),
        };
        let call = ClientError::Call {
            request: "GET /x at https://a:1/".to_owned(),
            source: refused,
        };
        assert!(!call.may_have_arrived());
        let fault = EnrolError::NotRenewed("not renewed".to_owned(), Box::new(call.into()));
        assert_eq!(
            with_causes(&fault),
            format!(
                "not renewed: GET /x at https://a:1/: it was revoked: no secure connection to the server: {alert}"
            )
        );
        assert_eq!(tls_causes(&fault).collect::<Vec<_>>(), [&alert]);
    }
}

//! What can go wrong, by what a reconcile does about it.

use undb_sdk::Error as SdkError;

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a step did not happen. Each is tried again; none is a reason to take a step without its guard.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not do it.
    #[error("kubernetes: {0}")]
    Kube(Box<kube::Error>),
    /// The control plane cannot be reached: what it knows is unknown.
    #[error("control plane {namespace}/{control_plane} cannot be reached: {cause}")]
    ControlPlaneUnreachable {
        /// Its namespace.
        namespace: String,
        /// Its name.
        control_plane: String,
        /// What was tried and what came back.
        cause: String,
    },
    /// The control plane answered with an error.
    #[error("control plane: {0}")]
    Control(SdkError),
    /// Something that an object names is not there (yet).
    #[error("{what} {name} is not there; {remedy}")]
    Missing {
        /// Its kind.
        what: &'static str,
        /// Its name.
        name: String,
        /// What to do.
        remedy: String,
    },
    /// An object is written in a way that cannot work; only its writer can mend it.
    #[error("{field}: {problem}")]
    InvalidSpec {
        /// The path, `spec.x.y`.
        field: String,
        /// What is wrong and what to write instead.
        problem: String,
    },
    /// Certificates and keys.
    #[error("certificate {name}: {problem}")]
    Certificate {
        /// Which.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The process itself cannot go on: a port, a file, its environment.
    #[error("{0}")]
    Fatal(String),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

impl From<SdkError> for Error {
    fn from(error: SdkError) -> Self {
        Self::Control(error)
    }
}

impl Error {
    /// A field that only the object's writer can mend.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::InvalidSpec { field: field.into(), problem: problem.into() }
    }

    /// The HTTP code of an answer of the API server.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Kube(error) => match error.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// The object is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// It is another one, or of another version, than the one that was looked at: look again.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// A PodDisruptionBudget or the webhook says not now.
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == Some(429)
    }

    /// The control plane gave no answer, as opposed to a bad one.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::ControlPlaneUnreachable { .. } => true,
            Self::Control(error) => matches!(
                error,
                SdkError::Unreachable { .. }
                    | SdkError::DeadlineExceeded { .. }
                    | SdkError::Unavailable { .. }
            ),
            _ => false,
        }
    }

    /// The reason for a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Kube(_) if self.is_conflict() => "Conflict",
            Self::Kube(_) => "KubernetesError",
            Self::ControlPlaneUnreachable { .. } => "ControlPlaneUnreachable",
            Self::Control(_) if self.is_unreachable() => "ControlPlaneUnreachable",
            Self::Control(_) => "ControlPlaneRefused",
            Self::Missing { .. } => "DependencyNotFound",
            Self::InvalidSpec { .. } => "InvalidSpec",
            Self::Certificate { .. } => "CertificateError",
            Self::Fatal(_) => "Fatal",
        }
    }
}

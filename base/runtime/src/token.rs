//! The bearer token: sent by clients as `authorization: Bearer TOKEN`, checked by servers in
//! constant time, read from a file so that it never stands in a process list.

use crate::RuntimeError;
use std::path::Path;
use std::sync::Arc;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

const KEY: &str = "authorization";
const TOKEN_CHARS_MIN: usize = 8;
const TOKEN_CHARS_MAX: usize = 512;

/// Reads a token file: one line, white space around it ignored.
pub fn read_token_file(path: impl AsRef<Path>) -> Result<String, RuntimeError> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|source| RuntimeError::Read {
        what: "the token file",
        path: path.into(),
        source,
    })?;
    let token = text.trim();
    let refuse = |problem| Err(RuntimeError::Token { path: path.into(), problem });
    if token.is_empty() {
        return refuse("is empty");
    }
    if !(TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&token.len()) {
        return refuse("holds a token of a wrong length");
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return refuse("holds characters that cannot be sent");
    }
    Ok(token.to_owned())
}

/// Adds the token, if there is one, to every call of a client.
#[derive(Clone, Debug, Default)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// Sends `token`; none or an empty one sends nothing. A token that cannot be a header is refused.
    pub fn new(token: Option<&str>) -> Result<Self, RuntimeError> {
        let Some(token) = token.filter(|t| !t.is_empty()) else { return Ok(Self(None)) };
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
            RuntimeError::Token { path: "UNDB_TOKEN".into(), problem: "holds characters that cannot be sent" }
        })?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert(KEY, value.clone());
        }
        Ok(request)
    }
}

/// Refuses calls without the right token. Without a token of its own it lets everybody in.
#[derive(Clone, Default)]
pub struct TokenCheck(Option<Arc<str>>);

impl std::fmt::Debug for TokenCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenCheck({})", if self.0.is_some() { "on" } else { "off" })
    }
}

impl TokenCheck {
    /// Asks for `token`; none or an empty one asks for nothing.
    pub fn new(token: Option<&str>) -> Self {
        Self(token.filter(|t| !t.is_empty()).map(Arc::from))
    }

    /// True when a token is asked for.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// True when `token` is the right one, or none is asked for.
    pub fn matches(&self, token: &str) -> bool {
        self.0.as_ref().is_none_or(|want| equal(want.as_bytes(), token.as_bytes()))
    }

    /// Checks the metadata of a call.
    pub fn check(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let sent = metadata.get(KEY).and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("Bearer "));
        match sent {
            _ if !self.is_on() => Ok(()),
            Some(token) if self.matches(token) => Ok(()),
            Some(_) => Err(Status::unauthenticated(
                "the token is not the right one; use the file that the servers were started with",
            )),
            None => {
                Err(Status::unauthenticated("a token is needed; give --token-file FILE or set UNDB_TOKEN"))
            }
        }
    }
}

impl Interceptor for TokenCheck {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        self.check(request.metadata())?;
        Ok(request)
    }
}

/// Takes as long for a wrong first byte as for a wrong last one.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called_with(bearer: Option<&str>) -> Request<()> {
        Bearer::new(bearer).expect("visible").call(Request::new(())).expect("adds only")
    }

    #[test]
    fn only_the_right_token_passes() {
        let check = TokenCheck::new(Some("correct-horse"));
        assert!(check.check(called_with(Some("correct-horse")).metadata()).is_ok());
        for wrong in [None, Some("correct-hors"), Some("correct-horsf"), Some("")] {
            let status = check.check(called_with(wrong).metadata()).expect_err("refused");
            assert_eq!(status.code(), tonic::Code::Unauthenticated);
        }
    }

    #[test]
    fn without_a_token_everybody_passes() {
        let check = TokenCheck::new(None);
        assert!(check.check(called_with(None).metadata()).is_ok());
        assert!(check.check(called_with(Some("anything-at-all")).metadata()).is_ok());
    }

    #[test]
    fn a_token_file_that_holds_none_is_refused_with_a_next_step() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("token");
        for (text, want) in
            [("\n", "is empty"), ("short", "wrong length"), ("with space in", "cannot be sent")]
        {
            std::fs::write(&path, text).expect("write");
            let error = read_token_file(&path).expect_err("refused").to_string();
            assert!(error.contains(want) && error.contains("put one line"), "{error}");
        }
        std::fs::write(&path, "  correct-horse\n").expect("write");
        assert_eq!(read_token_file(&path).expect("fits"), "correct-horse");
    }

    #[test]
    fn the_token_is_not_in_debug_output() {
        let token = "correct-horse";
        assert!(!format!("{:?}", TokenCheck::new(Some(token))).contains(token));
        assert!(!format!("{:?}", Bearer::new(Some(token)).expect("visible")).contains(token));
    }
}

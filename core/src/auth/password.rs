//! The password of root, in a Secret of the user. Nothing in here prints it.

use std::fmt;

use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};

/// Where the Secret has it.
pub const PASSWORD_KEY: &str = "password";
/// etcd hashes passwords with bcrypt, which accepts no more.
const LONGEST: usize = 72;

#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

/// What there is to give root a password from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootPassword {
    Given,
    NoSecret,
    NoKey,
    /// It is empty, too long, or not text.
    Unusable,
    /// etcd accepted it, and root cannot log in with it: somebody created root as a user without a password.
    Ineffective,
}

impl Password {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Without the line break at the end that files have.
    pub fn read(secret: &Secret) -> Result<Self, RootPassword> {
        let bytes =
            secret.data.as_ref().and_then(|data| data.get(PASSWORD_KEY)).ok_or(RootPassword::NoKey)?;
        let text = std::str::from_utf8(&bytes.0).map_err(|_| RootPassword::Unusable)?;
        let text = text.strip_suffix('\n').map_or(text, |it| it.strip_suffix('\r').unwrap_or(it));
        let usable = !text.is_empty() && text.len() <= LONGEST;
        if usable { Ok(Self(text.into())) } else { Err(RootPassword::Unusable) }
    }

    /// For the request to etcd, and for nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl RootPassword {
    pub fn of(secret: Option<&Secret>) -> Self {
        match secret.map(Password::read) {
            None => Self::NoSecret,
            Some(Ok(_)) => Self::Given,
            Some(Err(flaw)) => flaw,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    fn secret(key: &str, value: &[u8]) -> Secret {
        let data = BTreeMap::from([(key.to_owned(), ByteString(value.to_vec()))]);
        Secret { data: Some(data), ..Secret::default() }
    }

    fn read(value: &[u8]) -> Result<String, RootPassword> {
        Password::read(&secret(PASSWORD_KEY, value)).map(|it| it.reveal().to_owned())
    }

    #[test]
    fn a_password_is_text_that_bcrypt_accepts_without_the_line_break_of_a_file() {
        for written in ["hunter2", "hunter2\n", "hunter2\r\n"] {
            assert_eq!(read(written.as_bytes()), Ok("hunter2".into()), "{written:?}");
        }
        assert_eq!(read(b" two words\n\n"), Ok(" two words\n".into()));
        assert_eq!(read("x".repeat(72).as_bytes()), Ok("x".repeat(72)));
        for unusable in [b"".to_vec(), b"\n".to_vec(), vec![b'x'; 73], vec![0xff]] {
            assert_eq!(read(&unusable), Err(RootPassword::Unusable));
        }
        let state = |secret: Option<&Secret>| RootPassword::of(secret);
        assert_eq!(state(None), RootPassword::NoSecret);
        assert_eq!(state(Some(&secret("passwort", b"x"))), RootPassword::NoKey);
        assert_eq!(state(Some(&secret(PASSWORD_KEY, b"x"))), RootPassword::Given);
    }

    #[test]
    fn a_password_is_not_printed() {
        let password = Password::new("hunter2".into());
        assert_eq!(format!("{password:?} {:?}", Some(&password)), "Password Some(Password)");
    }
}

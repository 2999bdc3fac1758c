//! What one process remembers of authentication between two observations: etcd is asked rarely, because it writes an entry to
//! its log for most answers. All of it may be lost: then it is asked again.

use jiff::{SignedDuration, Timestamp};

use super::{Auth, RootPassword, Wanted};

/// While all is as it should be. Nothing reports that somebody changed it.
const EVERY: SignedDuration = SignedDuration::from_secs(60);

/// What etcd is asked about authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Questions {
    /// Whether it should be enabled. Where it should not, a question that costs no entry in the log is enough.
    pub wanted: bool,
    pub users: bool,
    /// Whether root can log in with the password of the Secret.
    pub password: bool,
}

/// Passwords are known by the version of their Secret, never by their content.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    answer: Option<(Timestamp, Auth)>,
    /// All users were there.
    complete: bool,
    /// The version of the Secret whose password root has logged in with.
    verified: Option<String>,
    /// The version whose password etcd has accepted last.
    set: Option<String>,
    /// The version that the last observation read.
    read: Option<String>,
}

impl Memory {
    /// What to ask now, if anything. `loses_identity`: authentication must not be enabled, whatever the spec says of it, so
    /// every observation asks. `password` is the version of a Secret that has one.
    pub fn questions(
        &self,
        wanted: &Wanted,
        loses_identity: bool,
        password: Option<&str>,
        now: Timestamp,
    ) -> Option<Questions> {
        if wanted.is_unknown() && !loses_identity {
            return None;
        }
        let last = self.answer.as_ref().map(|(_, auth)| auth.enabled);
        let is_old = |at: Timestamp| now < at || now.duration_since(at) >= EVERY;
        let due = loses_identity || self.answer.as_ref().is_none_or(|(at, _)| is_old(*at));
        let differs = last != Some(wanted.is_enabled());
        let users = wanted.is_enabled() && (last != Some(true) || !self.complete);
        let unverified = last == Some(true) && password.is_some() && self.verified.as_deref() != password;
        let in_vain = self.set.as_deref() == password && self.fails();
        let password = wanted.is_enabled() && unverified && (due || !in_vain);
        (due || differs || users || password).then_some(Questions {
            wanted: wanted.is_enabled(),
            users,
            password,
        })
    }

    /// Returns the last answer that there was, with what is known of the password from before.
    pub(crate) fn note(
        &mut self,
        answer: Option<Auth>,
        password: Option<String>,
        now: Timestamp,
    ) -> Option<Auth> {
        if let Some(answer) = answer {
            if let Some(users) = &answer.users {
                self.complete = users.missing().is_none();
            }
            if answer.root_logs_in == Some(true) {
                self.verified.clone_from(&password);
            }
            self.answer = Some((now, answer));
        }
        self.read = password;
        let (_, auth) = self.answer.clone()?;
        let verified = self.read.is_some() && self.verified == self.read;
        let root_logs_in = if verified { Some(true) } else { auth.root_logs_in };
        Some(Auth { root_logs_in, ..auth })
    }

    /// Whether there is no sense in setting the same password again.
    pub(crate) fn judge(&self, given: Option<RootPassword>, auth: Option<&Auth>) -> Option<RootPassword> {
        let fails = auth.is_some_and(|auth| auth.root_logs_in == Some(false));
        let in_vain = self.set.is_some() && self.set == self.read && fails;
        given.map(|it| if it == RootPassword::Given && in_vain { RootPassword::Ineffective } else { it })
    }

    /// etcd has accepted the password that the last observation read. Whether it works is asked next.
    pub(crate) fn password_set(&mut self) {
        self.set.clone_from(&self.read);
        if let Some((_, auth)) = &mut self.answer {
            auth.root_logs_in = None;
        }
    }

    fn fails(&self) -> bool {
        self.answer.as_ref().is_some_and(|(_, auth)| auth.root_logs_in == Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{User, Users};

    const ON: Wanted = Wanted::Enabled { root_password_secret: None };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn auth(enabled: bool, root_logs_in: Option<bool>) -> Option<Auth> {
        Some(Auth { enabled, users: None, root_logs_in })
    }

    fn with_users() -> Option<Auth> {
        let there = User::ALL.map(|user| (user, user.has_root_role())).into();
        Some(Auth { enabled: true, users: Some(Users { root_role: true, there }), root_logs_in: None })
    }

    #[test]
    fn etcd_is_asked_once_a_minute_while_all_is_as_wanted_and_otherwise_at_every_observation() {
        let mut memory = Memory::default();
        let asked =
            |memory: &Memory, wanted: &Wanted, second| memory.questions(wanted, false, None, at(second));
        assert_eq!(asked(&memory, &Wanted::Unknown, 0), None);
        let alone = Some(Questions { wanted: false, users: false, password: false });
        assert_eq!(memory.questions(&Wanted::Unknown, true, None, at(0)), alone);
        let mut answered = Memory::default();
        answered.note(auth(false, None), None, at(0));
        assert_eq!(answered.questions(&Wanted::Disabled, false, None, at(1)), None);
        assert_eq!(
            answered.questions(&Wanted::Disabled, true, None, at(1)),
            alone,
            "before clients lose TLS"
        );
        let both = Some(Questions { wanted: true, users: true, password: false });
        assert_eq!(asked(&memory, &ON, 0), both);
        memory.note(auth(false, None), None, at(0));
        assert_eq!((asked(&memory, &ON, 1), asked(&memory, &Wanted::Disabled, 59)), (both, None));
        memory.note(auth(true, None), None, at(99));
        assert_eq!(asked(&memory, &ON, 99), both, "somebody enabled it by hand");
        memory.note(with_users(), None, at(100));
        assert_eq!(asked(&memory, &ON, 159), None);
        let status = |wanted| Some(Questions { wanted, users: false, password: false });
        assert_eq!(asked(&memory, &ON, 160), status(true));
        assert_eq!(asked(&memory, &ON, 99), status(true), "the clock was set back");
        assert_eq!(asked(&memory, &Wanted::Disabled, 101), status(false));
        // Nobody answered: what is known stays known, and is asked again.
        assert_eq!(memory.note(None, None, at(160)), with_users());
        assert_eq!(asked(&memory, &ON, 161), status(true));
    }

    #[test]
    fn a_password_is_checked_once_for_each_version_of_its_secret_and_set_once() {
        let mut memory = Memory::default();
        let version = |it: &str| Some(it.to_owned());
        memory.note(auth(true, None), version("1"), at(0));
        let asked_at = |memory: &Memory, it: &str, second| {
            memory.questions(&ON, false, Some(it), at(second)).is_some_and(|questions| questions.password)
        };
        let asks = |memory: &Memory, it: &str| asked_at(memory, it, 82);
        assert!(asked_at(&memory, "1", 1));
        let seen = memory.note(auth(true, Some(false)), version("1"), at(1));
        let given = Some(RootPassword::Given);
        assert_eq!(memory.judge(given, seen.as_ref()), given);
        memory.password_set();
        let seen = memory.note(auth(true, Some(true)), version("1"), at(2));
        assert_eq!((memory.judge(given, seen.as_ref()), asks(&memory, "1")), (given, false));
        // Also when the next answers are not about it.
        let seen = memory.note(auth(true, None), version("1"), at(70));
        assert_eq!(seen, auth(true, Some(true)));

        assert!(asks(&memory, "2"));
        memory.note(auth(true, Some(false)), version("2"), at(80));
        memory.password_set();
        assert!(asks(&memory, "2"), "whether it works");
        let seen = memory.note(auth(true, Some(false)), version("2"), at(81));
        assert!(!asks(&memory, "2") && asked_at(&memory, "2", 141), "from time to time");
        assert_eq!(memory.judge(given, seen.as_ref()), Some(RootPassword::Ineffective));
        assert_eq!(memory.judge(None, seen.as_ref()), None);
        let seen = memory.note(auth(true, Some(false)), version("3"), at(82));
        assert_eq!(memory.judge(given, seen.as_ref()), given, "another password has another chance");
    }
}

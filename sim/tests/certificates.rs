//! Certificates over time: they are renewed, issued again, and never by another authority while members run.

use etcd_operator_core::tls::{ClientPort, PeerPort, Purpose, Transport};
use etcd_operator_sim::bugs::Bug;
use etcd_operator_sim::gift::Gift;
use etcd_operator_sim::problem::{Problem, Violation};
use etcd_operator_sim::run::Success;
use etcd_operator_sim::script::{Script, Step};
use etcd_operator_sim::secrets::EVERYWHERE;

const OWN: Gift = Gift::new(1, 1);

fn script(steps: &[Step]) -> Script {
    Script { tls: EVERYWHERE, steps: steps.to_vec(), ..Script::calm(11, 3, &[]) }
}

fn play(script: &Script) -> Success {
    script.run().unwrap_or_else(|_| match script.traced().run() {
        Err(failure) => panic!("{failure}"),
        Ok(_) => panic!("the same run ended differently"),
    })
}

/// Five minutes with certificates that are valid for one: each is renewed after forty seconds, and expires never.
#[test]
fn certificates_are_renewed_before_they_expire() {
    let short = |steps: &[Step]| Script { lifetime: Some(600), ..script(steps) };
    let (created, later) = (play(&short(&[])), play(&short(&[Step::Later(3000)])));
    let renewed = later.changes.0 - created.changes.0;
    assert!((4 * 6..=4 * 8).contains(&renewed), "{renewed} of 4 certificates");
    assert_eq!(later.restarts, 0);
}

/// An operator learns that a Secret is gone when it reads it the next time.
#[test]
fn a_certificate_that_is_deleted_is_issued_again() {
    for leaf in Purpose::ALL.into_iter().filter(|it| it.issuer().is_some()) {
        let (created, issued) = (play(&script(&[])), play(&script(&[Step::DeleteSecret(leaf)])));
        assert_eq!(issued.changes.0 - created.changes.0, 1, "{leaf:?}");
        assert_eq!((issued.restarts, issued.ending), (0, created.ending), "{leaf:?}");
    }
}

/// Neither the authority nor a certificate of it is issued before a user has restored the authority.
#[test]
fn an_authority_that_is_deleted_under_members_that_run_comes_back_from_its_user_only() {
    let (authority, leaf) = (Step::DeleteSecret(Purpose::PeerAuthority), Step::DeleteSecret(Purpose::Peer));
    let lost = [authority, Step::Later(1), leaf, Step::Later(1500)];
    // Nothing else happens, and it should settle.
    let unrestored = [&lost[..], &[Step::NodesUp]].concat();
    let failure = script(&unrestored).run().expect_err("nothing is issued");
    assert!(matches!(*failure.problem, Problem::WrongEnd(_)), "{failure}");
    let restored = [&lost[..], &[Step::RestoreAuthorities]].concat();
    let (created, issued) = (play(&script(&[])), play(&script(&restored)));
    assert_eq!(issued.changes.0 - created.changes.0, 1, "the certificate");
    assert_eq!((issued.restarts, issued.ending), (0, created.ending));

    let planted = Script { bug: Some(Bug::AuthorityReissued), ..script(&restored) };
    let failure = planted.run().expect_err("the bug is found");
    let expected = Violation::OtherAuthority(Purpose::PeerAuthority);
    assert!(matches!(&*failure.problem, Problem::Violated(it) if *it == expected), "{failure}");
}

/// Nobody trusts it any more.
#[test]
fn an_authority_that_is_deleted_while_the_cluster_is_stopped_is_issued_anew_with_all_of_its_certificates() {
    let steps = [Step::Size(0), Step::DeleteSecret(Purpose::ClientAuthority), Step::Size(3)];
    let stopped = play(&script(&[Step::Size(0), Step::Size(3)]));
    let issued = play(&script(&steps));
    assert_eq!(issued.changes.0 - stopped.changes.0, 4, "an authority and three certificates");
    assert_eq!(issued.ending, stopped.ending);
}

/// Members restart once to trust the successors, and once to forget the authorities before them. All certificates are issued
/// three times: to be trusted with both, by the successor, and to be trusted with that alone.
#[test]
fn authorities_are_rotated_on_request_with_two_restarts_of_each_member() {
    let rotate = [Step::RotateAuthorities];
    let (created, rotated) = (play(&script(&[])), play(&script(&rotate)));
    let written = rotated.changes.0 - created.changes.0;
    // Stale mounts cost further restarts.
    assert!(rotated.restarts >= 6, "{} restarts", rotated.restarts);
    assert!(written >= 2 * 3 + 4 * 3, "{written} writes");
    assert_eq!(rotated.ending, created.ending);
}

#[test]
fn a_rotation_while_the_cluster_is_stopped_restarts_nothing() {
    let steps = [Step::Size(0), Step::RotateAuthorities, Step::Size(3)];
    let (stopped, rotated) = (play(&script(&[Step::Size(0), Step::Size(3)])), play(&script(&steps)));
    assert_eq!((rotated.restarts, rotated.ending), (stopped.restarts, stopped.ending));
}

/// A certificate that members do not trust would cut them off from each other.
#[test]
fn what_members_trust_and_serve_is_observed_and_not_assumed() {
    let planted = |bug, script: Script| {
        let failure = Script { bug: Some(bug), ..script }.run().expect_err("the bug is found");
        let Problem::Violated(violation) = *failure.problem else {
            panic!("{bug:?}: {}", failure.problem);
        };
        violation
    };
    let rotate = || script(&[Step::RotateAuthorities]);
    let own = || script(&[Step::Give(Some(OWN))]);
    for script in [rotate(), own()] {
        let assumed = planted(Bug::TrustAssumed, script);
        assert!(matches!(assumed, Violation::OtherAuthority(_)), "{assumed:?}");
    }
    assert_eq!(planted(Bug::ClientsAssumed, own()), Violation::ClientsDistrust);
    let unusable = script(&[Step::Give(Some(OWN.unusable()))]);
    assert_eq!(planted(Bug::KeyAssumed, unusable), Violation::UnusableCertificate);
    // Without clients nothing else waits.
    let peers = Transport { clients: ClientPort::Http, peers: PeerPort::Https };
    let assumed = planted(Bug::UseAssumed, Script { tls: peers, ..rotate() });
    assert!(matches!(assumed, Violation::PeersDistrusted(_)), "{assumed:?}");
}

/// Members restart once to trust its authority, and once to forget it.
#[test]
fn a_certificate_of_a_user_comes_and_goes_with_two_restarts_of_each_member() {
    let (created, given) = (play(&script(&[])), play(&script(&[Step::Give(Some(OWN))])));
    let renewed = play(&script(&[Step::Give(Some(OWN)), Step::Give(Some(Gift::new(1, 2)))]));
    let back = play(&script(&[Step::Give(Some(OWN)), Step::Give(None)]));
    // Stale mounts cost further restarts.
    assert!(
        given.restarts >= 3 && back.restarts >= given.restarts + 3,
        "{} {}",
        given.restarts,
        back.restarts
    );
    assert_eq!((renewed.restarts, renewed.changes.0), (given.restarts, given.changes.0 + 1), "one write");
    assert_eq!([given.ending, renewed.ending, back.ending], [(); 3].map(|()| created.ending.clone()));
}

#[test]
fn a_certificate_that_cannot_be_used_changes_nothing() {
    let (created, given) = (play(&script(&[])), play(&script(&[Step::Give(Some(OWN.unusable()))])));
    assert_eq!((given.restarts, given.changes), (created.restarts, created.changes));
}

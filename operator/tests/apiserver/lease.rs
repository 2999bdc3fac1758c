//! Which of several operators leads, with a real API server as the judge and the rights that we ship.

use std::time::{Duration, Instant};

use etcd_operator::lease::{Election, Held, Lost, NAME, Times};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::{Mutex, oneshot};

use crate::{as_operator, installed, shared};

const NAMESPACE: &str = "etcd-operator-system";
const DURATION: Duration = Duration::from_secs(4);
/// Long enough for the slowest machine; nothing here is expected to take it.
const LIMIT: Duration = Duration::from_secs(60);

/// Of those who share a control plane: we have rights to one Lease only.
static ALONE: Mutex<()> = Mutex::const_new(());

fn candidate(client: &Client, who: &str) -> Election {
    Election::new(client.clone(), NAMESPACE, NAME, who).with_times(Times::of(DURATION))
}

async fn won(election: &Election) -> Held {
    tokio::time::timeout(LIMIT, election.won()).await.expect("it wins")
}

async fn lost(election: &Election, held: Held) -> Lost {
    tokio::time::timeout(LIMIT, election.lost(held)).await.expect("it loses")
}

async fn holder(client: &Client) -> Option<String> {
    let lease = Api::<Lease>::namespaced(client.clone(), NAMESPACE).get(NAME).await.expect("it is there");
    lease.spec.and_then(|spec| spec.holder_identity)
}

async fn edit(client: &Client, change: Value) {
    let leases = Api::<Lease>::namespaced(client.clone(), NAMESPACE);
    leases.patch(NAME, &PatchParams::default(), &Patch::Merge(change)).await.expect("it is changed");
}

pub async fn one_of_two_leads_and_hands_over_when_it_stops() {
    let _alone = ALONE.lock().await;
    let api = shared::bare().await;
    let client = as_operator(&api).await;
    let first = candidate(&client, "first");
    // Whatever it gets, it was given: it would not take it by itself before the test is over.
    let patient = Times { duration: LIMIT * 60, ..Times::of(DURATION) };
    let second = candidate(&client, "second").with_times(patient);
    let names = [first.identity().to_owned(), second.identity().to_owned()];
    let run = |election: Election| {
        let (stop, stopped) = oneshot::channel::<()>();
        let (say, began) = oneshot::channel::<()>();
        let mut say = Some(say);
        let stopped = futures::FutureExt::shared(stopped);
        let until = stopped.clone();
        let work = move || {
            say.take().expect("it leads once").send(()).expect("somebody listens");
            let until = until.clone();
            async move {
                let _ = until.await;
            }
        };
        let heed = async {
            let _ = stopped.await;
        };
        (tokio::spawn(async move { election.lead(work, heed).await }), stop, began)
    };

    let (leading, stop_leading, began) = run(first);
    tokio::time::timeout(LIMIT, began).await.expect("it leads").expect("it leads");
    let (waiting, stop_waiting, mut began) = run(second);
    tokio::time::sleep(DURATION).await;
    assert!(began.try_recv().is_err(), "two lead");
    assert_eq!(holder(&client).await.as_ref(), Some(&names[0]));

    stop_leading.send(()).expect("it runs");
    assert_eq!(tokio::time::timeout(LIMIT, leading).await.expect("it ends").expect("no panic"), Some(()));
    tokio::time::timeout(LIMIT, began).await.expect("it leads").expect("it leads");
    assert_eq!(holder(&client).await.as_ref(), Some(&names[1]));

    stop_waiting.send(()).expect("it runs");
    tokio::time::timeout(LIMIT, waiting).await.expect("it ends").expect("no panic");
    assert_eq!(holder(&client).await, None);

    let other = Api::<Lease>::namespaced(client, NAMESPACE).get("another").await;
    assert!(matches!(other, Err(kube::Error::Api(answer)) if answer.code == 403), "it may read no other");
}

pub async fn who_is_silent_is_replaced_after_the_full_time_and_knows_when_it_wakes_up() {
    let api = installed().await;
    let client = as_operator(&api).await;
    let (old, new) = (candidate(&client, "old"), candidate(&client, "new"));
    // As if it were stopped from here on.
    let asleep = won(&old).await;
    let began = Instant::now();
    let held = won(&new).await;
    assert!(began.elapsed() >= DURATION, "it was taken after {:?}", began.elapsed());
    assert_eq!(holder(&client).await.as_deref(), Some(new.identity()));

    let keeping = tokio::spawn(async move { new.lost(held).await });
    assert!(matches!(lost(&old, asleep).await, Lost::NotRenewed { .. }));
    // It wants it back, and cannot have it while the other one is there.
    assert!(tokio::time::timeout(DURATION * 2, old.won()).await.is_err(), "two lead");
    assert!(!keeping.is_finished());

    // Who cannot renew stops by itself.
    drop(api);
    let lost = tokio::time::timeout(LIMIT, keeping).await.expect("it stops").expect("no panic");
    assert!(matches!(lost, Lost::NotRenewed { .. }), "{lost}");
}

pub async fn whatever_others_do_to_the_lease_is_survived() {
    let _alone = ALONE.lock().await;
    let api = shared::bare().await;
    let client = as_operator(&api).await;
    let admin = api.client().await.expect("an administrator's client");
    let ours = candidate(&client, "ours");

    let held = won(&ours).await;
    let keep = async {
        // Not the holder's business, and the renewal after it goes on.
        for number in 0..5 {
            edit(&admin, json!({"metadata": {"annotations": {"touched": number.to_string()}}})).await;
            tokio::time::sleep(DURATION / 4).await;
        }
        edit(&admin, json!({"spec": {"holderIdentity": "somebody"}})).await;
    };
    let (lost_it, ()) = futures::join!(lost(&ours, held), keep);
    assert_eq!(lost_it, Lost::Taken { by: Some("somebody".into()) });

    let held = won(&ours).await;
    let (lost_it, ()) =
        futures::join!(lost(&ours, held), edit(&admin, json!({"spec": {"holderIdentity": null}})));
    assert_eq!(lost_it, Lost::Taken { by: None });

    // Times from another world change nothing.
    edit(
        &admin,
        json!({"spec": {"renewTime": "9999-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1000000}}),
    )
    .await;
    let held = won(&ours).await;
    let leases = Api::<Lease>::namespaced(admin.clone(), NAMESPACE);
    let delete = async {
        tokio::time::sleep(DURATION).await;
        leases.delete(NAME, &DeleteParams::default()).await.expect("it is deleted");
    };
    let (lost_it, ()) = futures::join!(lost(&ours, held), delete);
    assert_eq!(lost_it, Lost::Deleted);

    let empty = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}});
    let empty = serde_json::from_value(empty).expect("a Lease");
    leases.create(&PostParams::default(), &empty).await.expect("it is created");
    drop(won(&ours).await);
    ours.release().await;
    assert_eq!(holder(&client).await, None);
}

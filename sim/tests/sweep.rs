//! Every effect of the operator in turn is disturbed in each way: the end is the same, and as much is changed.

use std::time::Instant;

use etcd_operator_core::decide::{OnDelete, OnStop};
use etcd_operator_core::observed::Ordinal;
use etcd_operator_sim::etcd::Release;
use etcd_operator_sim::operator::Disturbance;
use etcd_operator_sim::run::Success;
use etcd_operator_sim::script::{Script, Step};

fn scripts() -> Vec<(&'static str, Script)> {
    let sizes = |size, sizes: &[u8]| Script::calm(11, size, sizes);
    let stop = |on_stop| Script { on_stop, ..sizes(3, &[0]) };
    let steps = |size, steps: &[Step]| Script { steps: steps.to_vec(), ..sizes(size, &[]) };
    vec![
        ("create", sizes(3, &[])),
        ("scale out", sizes(1, &[3, 5])),
        ("scale in", sizes(5, &[2, 1])),
        ("stop and start", sizes(3, &[0, 3])),
        ("stop, keep all", stop(OnStop::RetainAll)),
        ("start with all", Script { on_stop: OnStop::RetainAll, ..sizes(3, &[0, 3]) }),
        ("stop, keep nothing", stop(OnStop::Delete)),
        ("adopt", steps(3, &[Step::Delete(OnDelete::Retain), Step::Adopt])),
        ("replace", steps(3, &[Step::Wipe(Ordinal(1))])),
        ("delete with volumes", steps(3, &[Step::Delete(OnDelete::Delete)])),
    ]
}

fn play(script: &Script) -> Success {
    script.run().unwrap_or_else(|_| match script.traced().run() {
        Err(failure) => panic!("{failure}\n{:?}", script.disturbed),
        Ok(_) => panic!("the same run ended differently"),
    })
}

#[test]
fn a_disturbance_of_any_effect_changes_nothing() {
    let began = Instant::now();
    let (mut effects, mut runs) = (0, 0);
    for (name, script) in scripts() {
        for release in [Release::V3_5, Release::V3_6] {
            let script = Script { release, ..script.clone() };
            let undisturbed = play(&script);
            effects += undisturbed.effects;
            for nth in 1..=undisturbed.effects {
                for disturbance in Disturbance::ALL {
                    let disturbed = play(&Script { disturbed: Some((nth, disturbance)), ..script.clone() });
                    let context = || format!("{name}, {release:?}, effect {nth}: {disturbance:?}");
                    assert_eq!(disturbed.ending, undisturbed.ending, "{}", context());
                    assert_eq!(disturbed.changes, undisturbed.changes, "{}", context());
                    runs += 1;
                }
            }
        }
    }
    println!("{effects} effects, {runs} disturbed runs, {:?}", began.elapsed());
    assert!(effects > 200, "only {effects} effects");
}

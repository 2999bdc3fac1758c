//! The operator in a runtime of its own: ending it drops the runtime, in the middle of whatever it does.

use std::path::Path;
use std::thread::JoinHandle;

use etcd_operator::controller::{self, Settings};
use etcd_operator::lease::{self, Election};
use etcd_operator::metrics::Metrics;
use etcd_operator::scope::Scope;
use etcd_operator::supervisor::PlantedPanic;
use etcd_operator::{client, http};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::oneshot;

use crate::faults::kube::FaultLayer;
use crate::faults::{self, Faults};
use crate::world::{DOMAIN, OPERATOR_IMAGE};

const SERVICE_ACCOUNT: &str = "system:serviceaccount:etcd-operator-system:etcd-operator";
pub const LEASE_NAMESPACE: &str = "etcd-operator-system";

pub struct Operator {
    pub metrics: Metrics,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Operator {
    /// It ends by itself when one of the faults kills it.
    pub fn start(kubeconfig: &Path, faults: &Faults) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig is there");
        let (kill, killed) = oneshot::channel::<()>();
        let (faults, metrics) = (faults.clone(), Metrics::default());
        let of_operator = metrics.clone();
        let thread = std::thread::spawn(move || {
            // As the program has it.
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = killed => {}
                    () = faults.killed() => {}
                    () = run(kubeconfig, &faults, of_operator) => panic!("nobody stopped it"),
                }
            });
            runtime.shutdown_background();
        });
        Self { metrics, kill: Some(kill), thread: Some(thread) }
    }

    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the operator panicked");
        }
    }
}

async fn run(kubeconfig: Kubeconfig, faults: &Faults, metrics: Metrics) {
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("it can be used");
    config.auth_info.impersonate = Some(SERVICE_ACCOUNT.into());
    let client = client::build_over(config, &FaultLayer(faults.clone())).expect("a client");
    let settings = Settings {
        scope: Scope::Everywhere,
        reach: faults::etcd::reach(faults),
        agent_image: OPERATOR_IMAGE.into(),
        operator: None,
        domain: DOMAIN.into(),
        metrics,
        planted_panic: PlantedPanic::default(),
    };
    let election = Election::new(client.clone(), LEASE_NAMESPACE, lease::NAME, "harness");
    let never = futures::FutureExt::shared(futures::future::pending());
    controller::run(client, settings, election, http::Ready::default(), never).await;
}

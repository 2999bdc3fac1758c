//! What is played: calm scripts, and random ones that follow from a seed.

use etcd_operator_core::api::MAX_NODE_LOSS_GRACE_SECONDS;
use etcd_operator_core::auth::Wanted;
use etcd_operator_core::decide::{OnDelete, OnStop};
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::schedule::Window;
use etcd_operator_core::tls::{ClientPort, PeerPort, Purpose, Transport};

use crate::bugs::Bug;
use crate::etcd::{Release, Tick};
use crate::faults::Faults;
use crate::form::Edit;
use crate::gift::Gift;
use crate::observe::Sight;
use crate::operator::{Disturbance, Troubles};
use crate::random::Random;
use crate::run::{self, Failure, Success};
use crate::volumes::Volumes;

/// What is played.
#[derive(Clone, Debug)]
pub struct Script {
    pub seed: u64,
    pub traced: bool,
    pub bug: Option<Bug>,
    pub size: u8,
    pub on_stop: OnStop,
    pub on_delete: OnDelete,
    pub operators: usize,
    pub release: Release,
    pub strict: bool,
    pub faults: Faults,
    pub troubles: Troubles,
    pub sight: Sight,
    pub killed_at_first_start: u64,
    /// How many ticks an observation takes at most.
    pub observation_time: Tick,
    pub loss_per_mille: u64,
    pub faulty_for: Tick,
    /// What happens then, each as soon as the one before has settled.
    pub steps: Vec<Step>,
    /// What happens to one effect of the operator, counted from 1.
    pub disturbed: Option<(u64, Disturbance)>,
    pub disruption_budget: bool,
    pub windows: Vec<Window>,
    /// How long a node can be lost before its member is replaced.
    pub node_loss_grace_seconds: i64,
    /// How often the data of members is compared.
    pub compared_every_seconds: i64,
    /// The nodes that are down when faults end stay so, as far as a quorum is elsewhere.
    pub nodes_stay_down: bool,
    /// Operators write the status, and it is compared with etcd. That takes as long as everything else, so only every other
    /// random script has it.
    pub reports: bool,
    pub tls: Transport,
    /// Of certificates.
    pub lifetime: Option<Tick>,
    pub auth: Wanted,
    /// What a user gives when the cluster is created.
    pub gift: Option<Gift>,
    /// Operators and agents know how one member continues without the others.
    pub recovers: bool,
}

/// Authentication, with a password for root from a Secret.
pub fn with_password() -> Wanted {
    Wanted::Enabled { root_password_secret: Some("root".into()) }
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Size(u8),
    Edit(Edit),
    /// A new version of the operator brings another agent, and cannot work with the one before.
    RequireAgent,
    /// Waits until so many pods have the wanted form.
    WhenRolled(usize),
    /// So much time passes.
    Later(Tick),
    /// The member of a pod leads from now on.
    Lead(Ordinal),
    DeletePod(Ordinal),
    /// The node of a pod is down.
    NodeDown(Ordinal),
    /// All nodes return.
    NodesUp,
    /// A user forces the deletion of a pod.
    ForceDeletion(Ordinal),
    /// The data directory of a pod is wiped.
    Wipe(Ordinal),
    /// The disk of a pod returns other data than was written.
    Rot(Ordinal),
    Delete(OnDelete),
    /// The cluster is created again, and adopts the volumes of the one before.
    Adopt,
    /// The annotation that asked for it is removed.
    ForgetAdoption,
    Volumes(Volumes),
    /// A user asks for another transport.
    Transport(Transport),
    DeleteSecret(Purpose),
    /// A user restores the authorities that are missing.
    RestoreAuthorities,
    /// Its pod and its volume.
    LoseForGood(Ordinal),
    /// A user consents to the loss of data: the survivor with the most data, or this one.
    Consent(Option<Ordinal>),
    TakeConsentBack,
    /// A user edits whether authentication is wanted.
    Auth(bool),
    /// A user enables or disables authentication by hand.
    AuthByHand(bool),
    /// A user changes the content of the Secret with the password of root.
    RootPassword(u64),
    /// A user gives the operator the rights that it lacks.
    GiveAccess,
    RotateAuthorities,
    /// A user gives a certificate for the client port, or none.
    Give(Option<Gift>),
    /// From now on storage lets no volume grow, or does so again.
    GrowthFails(bool),
}

impl Script {
    /// Nothing goes wrong.
    pub fn calm(seed: u64, size: u8, sizes: &[u8]) -> Self {
        Self {
            seed,
            traced: false,
            bug: None,
            size,
            on_stop: OnStop::Retain,
            on_delete: OnDelete::Retain,
            operators: 1,
            release: Release::V3_5,
            strict: true,
            faults: Faults::default(),
            troubles: Troubles::default(),
            sight: Sight::default(),
            killed_at_first_start: 0,
            observation_time: 0,
            loss_per_mille: 0,
            faulty_for: 0,
            steps: sizes.iter().copied().map(Step::Size).collect(),
            disturbed: None,
            disruption_budget: true,
            windows: Vec::new(),
            node_loss_grace_seconds: MAX_NODE_LOSS_GRACE_SECONDS,
            compared_every_seconds: 3600,
            nodes_stay_down: false,
            reports: true,
            tls: Transport::default(),
            lifetime: None,
            auth: Wanted::Unknown,
            gift: None,
            recovers: false,
        }
    }

    /// Anything may go wrong, as the seed says.
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut often = |per_mille: u64| if random.chance(500) { random.below(per_mille + 1) } else { 0 };
        let faults = Faults {
            edit: often(15),
            edit_form: 0,
            edit_volumes: 0,
            edit_transport: 0,
            drain: 0,
            record_deleted: 0,
            leaf_deleted: 0,
            authority_deleted: 0,
            auth: 0,
            rotate: 0,
            give: 0,
            kill: often(15),
            delete_pod: often(10),
            lose_volume: often(6),
            node: often(10),
            force: often(10),
            sever: often(15),
            hide: often(10),
            unplaceable: often(10),
            freeze: often(20),
            blind: often(10),
            crash: often(10),
            order_deleted: often(10),
            set_deleted: often(4),
            status_lost: often(4),
            unbearable: false,
            delete_cluster: None,
            recreate: often(30),
        };
        let troubles = Troubles { crash: often(200), lost_answer: often(300), late_request: often(150) };
        let sight = Sight { etcd_unreachable: false, answers_lost_per_mille: often(200) };
        let loss_per_mille = often(300);
        let observation_time = often(15);
        let mut script = Self::calm(seed, *random.pick(&[1, 1, 2, 3, 3, 3, 5, 7]).unwrap_or(&3), &[]);
        script.on_stop = *random
            .pick(&[OnStop::Retain, OnStop::Retain, OnStop::RetainAll, OnStop::Delete])
            .unwrap_or(&OnStop::Retain);
        script.operators = if random.chance(300) { 2 } else { 1 };
        script.release = match random.below(1000) {
            0..400 => Release::V3_6,
            400..600 => Release::V3_5_30,
            _ => Release::V3_5,
        };
        script.strict = !random.chance(100);
        script.faulty_for = random.between(50, 1200);
        script.faults = faults;
        if random.chance(200) {
            script.faults.delete_cluster = Some(1000 + random.between(10, script.faulty_for));
        }
        script.faults.unbearable = random.chance(50);
        script.troubles = troubles;
        script.observation_time = observation_time;
        if !script.strict {
            // Between the last observation and the call only etcd can check: neither a request that arrives late, nor what
            // another operator does in the same moment, nor a member that ended after it had responded.
            script.troubles.late_request = 0;
            script.operators = 1;
            script.observation_time = 0;
        }
        script.sight = sight;
        script.killed_at_first_start = 5;
        script.loss_per_mille = loss_per_mille;
        // Drawn last, so that what a seed showed before there were forms is still what it shows.
        let mut often = |per_mille: u64| if random.chance(500) { random.below(per_mille + 1) } else { 0 };
        script.faults.edit_form = often(20);
        script.faults.drain = often(20);
        script.faults.record_deleted = often(3);
        script.disruption_budget = !random.chance(200);
        script.reports = seed.is_multiple_of(2);
        script.faults.edit_volumes = if random.chance(300) { random.below(16) } else { 0 };
        script.draw_tls(&mut random);
        // Not drawn: the others have the stories that they had when no member on a lost node was replaced.
        if seed % 8 == 5 {
            script.node_loss_grace_seconds = 10 + (seed / 8 % 3 * 10) as i64;
            script.nodes_stay_down = seed % 16 == 5;
        }
        script.faults.edit_transport = if random.chance(300) { random.below(10) } else { 0 };
        script
    }

    /// Clusters in plain text have the stories that they had before there was anything else.
    fn draw_tls(&mut self, random: &mut Random) {
        let (clients, peers) = match random.below(1000) {
            0..400 => (ClientPort::Https, PeerPort::Https),
            400..450 => (ClientPort::Https, PeerPort::Http),
            450..500 => (ClientPort::Http, PeerPort::Https),
            _ => return,
        };
        self.tls = Transport { clients, peers };
        let mut often = |per_mille: u64| if random.chance(500) { random.below(per_mille + 1) } else { 0 };
        self.faults.leaf_deleted = often(10);
        // Two operators that act at once could issue from one each, while a user deletes one after the other.
        let one = self.operators == 1;
        self.faults.authority_deleted = often(3) * u64::from(one);
        self.lifetime = random.chance(300).then(|| random.between(1200, 6000));
        if clients == ClientPort::Https && one && random.chance(400) {
            self.auth = if random.chance(700) { with_password() } else { Wanted::Disabled };
            self.faults.auth = random.below(16);
        }
        self.faults.rotate = if random.chance(300) { random.below(6) } else { 0 };
        self.faults.give = if random.chance(300) { random.below(8) } else { 0 };
    }

    /// The same without users who change the transport or give certificates while members run.
    pub fn with_settled_tls(mut self) -> Self {
        (self.faults.edit_transport, self.faults.give) = (0, 0);
        self
    }

    /// The same as it was before there was TLS.
    pub fn in_plain_text(mut self) -> Self {
        (self.faults.leaf_deleted, self.faults.authority_deleted) = (0, 0);
        (self.faults.rotate, self.faults.auth) = (0, 0);
        let settled = self.with_settled_tls();
        Self { tls: Transport::default(), lifetime: None, auth: Wanted::Unknown, ..settled }
    }

    /// Within this time members on lost nodes are replaced, if ever.
    pub fn node_loss_grace(&self) -> Option<Tick> {
        let repairs = self.node_loss_grace_seconds < MAX_NODE_LOSS_GRACE_SECONDS;
        repairs.then(|| self.node_loss_grace_seconds.unsigned_abs() * 10)
    }

    pub fn run(&self) -> Result<Success, Failure> {
        run::play(self)
    }

    /// The same once more, with everything written down.
    pub fn traced(&self) -> Self {
        Self { traced: true, ..self.clone() }
    }
}

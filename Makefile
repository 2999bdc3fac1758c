# Thin on purpose: cargo and the project's own programs do the work.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Where Go, Rust and the administrator's programs are when PATH does not have them.
export PATH := $(PATH):/usr/local/go/bin:$(HOME)/.cargo/bin:/usr/sbin:/sbin

# The cluster to work on: testbed (made here), current (your kubeconfig's) or kind.
TARGET ?= testbed
# For testbed-up: how many nodes, and how its DNS behaves (fast, field or noreverse).
NODES ?=
DNS ?=
# For image: its name and tag.
IMAGE ?= ghcr.io/etcd-k8s-operator/etcd-operator:dev
# For sim: how many seeds, and the first one.
SEEDS ?=
SEED ?=
# For test, e2e and sweep: skip tests that passed for the same sources, run only quick ones, skip none.
RESUME ?=
SMOKE ?=
ALL ?=
# For bench: measured runs of each row, and which parts of it. For mutants: a part of their names.
RUNS ?=
ONLY ?=
# V=1 shows what cargo does.
export V ?=

target := $(or $(CARGO_TARGET_DIR),target)
# For developers: quick to compile. The features are those of the whole workspace, so that all programs share one
# compilation of what they depend on, whichever of them is built first.
programs := $(target)/debug
build_programs = hack/compile cargo build --locked --workspace $(addprefix --bin ,$(1))
# For users: what is shipped, and what brings up a cluster and installs it there. One selection of packages for all of
# them, for the same reason. Static, because etcd's own image, in which the agent runs, has no libc.
static := x86_64-unknown-linux-musl
shipped := $(target)/$(static)/release
build_static = CC_x86_64_unknown_linux_musl=musl-gcc hack/compile cargo build --locked --release --target $(static)
build_shipped = $(build_static) -p etcd-operator -p etcd-agent -p etcd-operator-testbed -p etcd-operator-e2e $(addprefix --bin ,$(1))
operator := etcd-operator etcd-agent
# A selection of its own: the clients of stores need features of crates that the operator is made of, too.
build_backup = $(build_static) -p etcd-backup
gofmt := find testbed e2e -name '*.go' -print0 | xargs -0r gofmt
kind_kubeconfig := target/kind.kubeconfig

# What puts a shell on the cluster of TARGET. An assignment of its own, so that a testbed that is not there
# stops the recipe instead of leaving it on the user's cluster.
use_testbed = KUBECONFIG=$$($(programs)/testbed kubeconfig); export KUBECONFIG;
use_kind = export KUBECONFIG=$(kind_kubeconfig);
use_current =
$(if $(filter testbed current kind,$(TARGET)),,$(error TARGET is testbed, current or kind, not "$(TARGET)"))

# The image that `make install` has provided there. It is named after its content: one of a fixed name would stay as
# the nodes know it.
agent_image = $(if $(filter testbed kind,$(TARGET)),$(addprefix --agent-image ,$(file < target/deploy/agent-image)))

# cargo-deny, which knows how to read RustSec's database, is built once, outside the tree.
deny_version := 0.20.2
tools := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/etcd-k8s-operator/cargo-deny-$(deny_version)
deny := $(tools)/bin/cargo-deny

##@ Start here

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Variables: TARGET=testbed|current|kind (now: $(TARGET)), NODES=1..9, DNS=fast|field|noreverse, SEEDS=N, SEED=K, RUNS=N, ONLY=PARTS, ALL=1, V=1"

# The first stage of the demo. With a testbed, Go compiles beside cargo.
begin_testbed = echo "[1/5] 0:00  compiling the operator, the demo and Kubernetes (about 13 min on 2 cores when nothing is compiled)"; \
	hack/compile-go & trap 'kill %1 2>/dev/null || true' EXIT;
begin_other = echo "[1/4] 0:00  compiling the operator and the demo (about 8 min on 2 cores when nothing is compiled)";

.PHONY: demo
demo: root deps ## Bring a Kubernetes up and show the operator and a three-member etcd on it
	@$(begin_$(if $(filter testbed,$(TARGET)),testbed,other)) \
	$(call build_shipped,$(if $(filter current,$(TARGET)),,$(operator)) testbed demo); \
	$(if $(filter current,$(TARGET)),,$(build_backup);) wait; \
	$(shipped)/demo --target $(TARGET) --elapsed-seconds $$SECONDS

.PHONY: deps
deps: ## Check what this machine needs; install what is missing (apt, rustup), or say what to install
	@hack/deps

# Before minutes of compiling, not after them.
.PHONY: root
root:
	@[ $(TARGET) != testbed ] || [ "$$(id -u)" -eq 0 ] || { echo "the testbed needs root: use sudo, or TARGET=current or TARGET=kind" >&2; exit 1; }

##@ Build and check

.PHONY: build
build: deps ## Compile everything
	cargo build --locked --workspace

.PHONY: test
test: deps ## Check and test: verify, all tests, the smoke part of e2e; ALL=1 repeats tests of an unchanged testbed
	@hack/test

.PHONY: verify
verify: deps ## Check without writing: format, lints, dependencies, generated files, links
	cargo fmt --all --check
	cargo clippy -q --locked --workspace --all-targets -- -D warnings
	$(call build_programs,generate)
	@hack/generated check $(programs)/generate
	@unformatted=$$($(gofmt) -l); [ -z "$$unformatted" ] || { echo "not as gofmt wants it: $$unformatted" >&2; exit 1; }
	cargo test -q --locked -p etcd-operator-tidy

.PHONY: fix
fix: deps ## Write what verify would complain about: format, simple lints, generated files
	cargo clippy -q --fix --allow-dirty --allow-staged --workspace --all-targets
	cargo fmt --all
	cargo build -q --workspace --bin generate && hack/generated write $(programs)/generate
	$(gofmt) -w

.PHONY: e2e
e2e: root image ## Run every e2e test on the testbed, with the operator as it is shipped; RESUME=1 skips those that passed for the same sources, SMOKE=1 runs the quick ones
	@$(call build_programs,e2e testbed)
	$(programs)/e2e $(if $(RESUME),--resume) $(if $(SMOKE),--smoke) $(if $(ALL),--all)

.PHONY: sim
sim: deps ## Run the simulation with random seeds for a long time; SEEDS=N runs so many seeds, SEED=K begins with seed K
	cargo run -q --locked --release -p etcd-operator-sim -- $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--from $(SEED))

.PHONY: sweep
sweep: deps ## Hit every write of every operation with every kind of fault, in the harness, on etcd 3.5 and 3.6; ALL=1 hits each write alone, too, which takes hours
	cargo test -q --locked -p etcd-operator --test harness -- --ignored $(if $(ALL),,--skip sweep_)

.PHONY: mutants
mutants: deps ## Plant each bug of test/mutants in a copy of the tree: its test has to fail; ONLY=PART of names
	@$(call build_programs,mutants)
	$(programs)/mutants $(ONLY)

.PHONY: bench
bench: root image ## Measure beside a plain StatefulSet, print a table, write target/bench.json; RUNS=N, ONLY=create,scale,data,stop,roll,backup,crowd
	@$(call build_programs,bench testbed)
	$(programs)/bench $(if $(RUNS),--runs $(RUNS)) $(if $(ONLY),--only $(ONLY))

.PHONY: advisories
advisories: $(deny) ## Ask RustSec about known holes in our dependencies (needs its database)
	$(deny) --locked check advisories

.PHONY: dashboards
dashboards: ## Compare the dashboards with the types that Grafana publishes (needs npm and the network)
	hack/dashboards

.PHONY: clean
clean: ## Remove build output from the tree; caches outside it stay
	cargo clean

##@ Run the operator

.PHONY: image
image: deps ## Build the static programs and the operator's image, target/etcd-operator-image.tar; IMAGE=NAME:TAG
	@echo "compiling the operator and the program for backups (about 6 min on 2 cores when nothing is compiled)"
	@$(call build_shipped,$(operator) testbed)
	@$(build_backup)
	@$(shipped)/testbed image operator --name $(IMAGE) --output target/etcd-operator-image.tar $(addprefix $(shipped)/,$(operator) etcd-backup)

.PHONY: install
install: root image ## Install in TARGET what `make run` needs: CRDs, namespace, the image of the members' agent
	@$(call build_shipped,deploy)
	$(shipped)/deploy --target $(TARGET) --outside

.PHONY: deploy-test
deploy-test: root image ## Install the CRDs and the operator as a pod in TARGET
	@$(call build_shipped,deploy)
	$(shipped)/deploy --target $(TARGET)

.PHONY: uninstall
uninstall: deps ## Remove the operator from TARGET; clusters keep serving (README.md: remove everything)
	@$(call build_shipped,deploy)
	$(shipped)/deploy --target $(TARGET) --remove

.PHONY: run
run: deps ## Run the operator on this machine against TARGET, after `make install`; not beside one that runs as a pod
	@$(call build_programs,etcd-operator testbed)
	@$(use_$(TARGET)) $(programs)/etcd-operator run $(agent_image)

##@ Clusters

.PHONY: testbed-up
testbed-up: root deps ## Bring the testbed up: a real Kubernetes on this machine
	@$(call build_shipped,testbed)
	$(shipped)/testbed up $(if $(NODES),--nodes $(NODES)) $(if $(DNS),--dns $(DNS))

.PHONY: testbed-down
testbed-down: deps ## Take the testbed down and leave nothing behind
	@$(call build_shipped,testbed)
	@$(shipped)/testbed down

.PHONY: testbed-kubeconfig
testbed-kubeconfig: deps ## Print the path of the testbed's kubeconfig
	@$(call build_shipped,testbed)
	@$(shipped)/testbed kubeconfig

.PHONY: kind-create
kind-create: ## Create a kind cluster for TARGET=kind (needs docker and kind)
	@for tool in docker kind; do command -v $$tool >/dev/null || { echo "$$tool is missing: see https://kind.sigs.k8s.io, or use TARGET=testbed" >&2; exit 1; }; done
	mkdir -p $(dir $(kind_kubeconfig))
	kind get clusters | grep -qx etcd-operator || kind create cluster --name etcd-operator --kubeconfig $(kind_kubeconfig) --wait 120s
	kind export kubeconfig --name etcd-operator --kubeconfig $(kind_kubeconfig)

$(deny): | deps
	env -u CARGO_TARGET_DIR cargo install --locked --root $(tools) cargo-deny@$(deny_version)

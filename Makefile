# SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
#
# SPDX-License-Identifier: Apache-2.0

# Needs Go, git and make; `make up` and `make test` name what else they miss. Everything built lands in bin/, the state of
# a landscape in .landscape/, both ignored by git.

# The flags are beside the shell, as the make of macOS (3.81) ignores .SHELLFLAGS.
SHELL       := /usr/bin/env bash -euo pipefail
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

# What a failed recipe has begun to write must not count as made.
.DELETE_ON_ERROR:

ifneq ($(words $(CURDIR)),1)
$(error the path of the clone, $(CURDIR), has a blank, which make takes for several paths: move the clone)
endif

# A go.work of somebody's above the clone does not know its modules.
export GOWORK := off

# sudo and su leave out where Go is, and the programs of administration.
export PATH := $(PATH):/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin

# Go's caches need one, which cloud-init and services of systemd don't set.
export HOME := $(or $(HOME),/root)

# A clone that is root's can't be built as the user who called sudo.
ifeq ($(shell stat -c %u . 2>/dev/null),0)
export SUDO_UID :=
endif

# With sudo, what is built is built as the user who called it: it is theirs, and so are the caches.
AS_USER := $(if $(and $(filter-out 0,$(SUDO_UID)),$(filter 0,$(shell id -u)),$(shell command -v setpriv)),setpriv --reuid $(SUDO_UID) --regid $(SUDO_GID) --init-groups env HOME=$(shell getent passwd $(SUDO_UID) | cut -d: -f6))

# As root git refuses a clone that belongs to somebody else, and so does Go, which asks it.
ifeq ($(shell id -u)$(GIT_CONFIG_COUNT),0)
export GIT_CONFIG_COUNT   := 1
export GIT_CONFIG_KEY_0   := safe.directory
export GIT_CONFIG_VALUE_0 := $(CURDIR)
endif

# No proxy knows the landscape. NETWORK is the one of `make up`, which keeps it in .landscape/network. The program landscape sets this for
# itself; tests and scripts need it from here.
ifneq ($(HTTP_PROXY)$(HTTPS_PROXY)$(http_proxy)$(https_proxy),)
export NO_PROXY := $(or $(NO_PROXY),$(no_proxy),localhost),.local.gardener.cloud,$(or $(NETWORK),$(shell cat .landscape/network 2>/dev/null),172.18.0.0/16),fd00:ff::/64
export no_proxy := $(NO_PROXY)
endif

REPO      := $(CURDIR)
BIN       := $(REPO)/bin/landscape
TOOLS     := $(REPO)/bin/tools
LANDSCAPE := $(BIN)/landscape
BENCH     := $(REPO)/bin/bench

# Modules with code of ours. Others below test/landscape/modules, test/bench/modules and hack/tools only build other people's programs.
MODULES      := . $(patsubst %/go.mod,%,$(wildcard skaffold/images/*/go.mod test/landscape/go.mod test/landscape/standins/go.mod hack/monitoring/go.mod test/bench/go.mod test/kind/registry/go.mod))
TOOL_MODULES := $(patsubst %/go.mod,%,$(wildcard hack/tools/*/go.mod test/landscape/modules/*/go.mod test/bench/modules/*/go.mod))

# Programs, images, suites and lint are compiled with the same flags, CGO_ENABLED=0 and -trimpath, so that Go's cache has each package once.
# -vet=off: go vet analyses all dependencies of a test as well. Lint has its checks, but doesn't read files with build tags, which are vetted.

IMAGE_MODULES := $(patsubst %/go.mod,%,$(wildcard skaffold/images/*/go.mod))
LOCAL_PATH_PROVISIONER := github.com/rancher/local-path-provisioner

# What one module of Kubernetes builds.
KUBERNETES_PROGRAMS := $(addprefix $(BIN)/,etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl kubeadm)

# Suites which need a running landscape are `make e2e`.
NEEDS_LANDSCAPE := /test/e2e

LABELS   ?=
NIGHTLY  ?=
UNTIL    ?=
NETWORK  ?=
GARDENER ?=
KUBERNETES ?=
COMPONENTS ?=
IMAGES ?=
INSTANCE ?=
TARGET   ?=
FROM     ?=
PROGRAMS ?=
NAME     ?=
REF      ?=
REGISTRY ?=
LAYOUT   ?=
TEST_ARGS ?=
RELEASES ?= pinned v1.150.0
VARIANT  ?=
FOCUS    ?=
FILTER   ?=
DOCS     ?=
SHOOTS   ?=
NODES    ?=
OF       ?=
PACKAGES ?=

##@ landscape

## up: bring up a whole Gardener, as root or with sudo; UNTIL=STEP stops earlier (up --help lists the steps), NETWORK=172.30.0.0/16, FROM=NAME starts a snapshot, PROGRAMS=REF pulls programs, GARDENER=../gardener builds it from a checkout, GARDENER=v1.150.0 another release, KUBERNETES=1.35,1.34 adds versions for Shoots, COMPONENTS=observability,autoscaling has Prometheus and VerticalPodAutoscaler, IMAGES=upstream pulls what has only a stub
.PHONY: up
up: $(LANDSCAPE)
	@$(LANDSCAPE) up $(if $(FROM),--from $(FROM)) $(if $(PROGRAMS),--programs $(PROGRAMS)) $(if $(UNTIL),--until $(UNTIL)) $(if $(NETWORK),--network $(NETWORK)) $(if $(GARDENER),--gardener $(GARDENER)) $(if $(KUBERNETES),--kubernetes $(KUBERNETES)) $(if $(COMPONENTS),--components $(COMPONENTS)) $(if $(IMAGES),--components $(IMAGES))

## dev: after up, watch the sources and deploy each edit, as root or with sudo; TARGET=bare or kind where there are both
.PHONY: dev
dev: $(LANDSCAPE)
	@$(LANDSCAPE) dev --target '$(TARGET)'

## debug: attach a debugger to INSTANCE=seed or INSTANCE=garden of the landscape, as root or with sudo; make up ends it
.PHONY: debug
debug: $(LANDSCAPE) $(TOOLS)/dlv
	@$(LANDSCAPE) debug $(INSTANCE)

## gardenadm-up: after up COMPONENTS=gardenadm, as root or with sudo: make a Shoot that hosts itself, on two machines in the landscape's cluster
.PHONY: gardenadm-up
gardenadm-up:
	@hack/gardenadm up

## gardenadm-connect: connect it to the garden by gardenadm, as root or with sudo
.PHONY: gardenadm-connect
gardenadm-connect:
	@hack/gardenadm connect

## gardenadm-down: remove it, as root or with sudo
.PHONY: gardenadm-down
gardenadm-down:
	@hack/gardenadm down

## down: take it down, as root or with sudo, and check that the machine is as it was
.PHONY: down
down: $(LANDSCAPE)
	@$(LANDSCAPE) down

## stop: stop all of it and keep everything, as root or with sudo, until make start
.PHONY: stop
stop: $(LANDSCAPE)
	@$(LANDSCAPE) stop

## start: start it again as it was after make stop or a reboot, as root or with sudo, and wait until it is healthy
.PHONY: start
start: $(LANDSCAPE)
	@$(LANDSCAPE) start

## save: keep all of it under NAME, as root or with sudo, for make up FROM=NAME; with REF=host/repository:tag, push that snapshot to a registry
.PHONY: save
save: $(LANDSCAPE)
	@[ -n "$(NAME)" ] || { echo "make save: say how to call it: NAME=..." >&2; exit 1; }
	@$(if $(REF),$(LANDSCAPE) push '$(NAME)' '$(REF)',$(LANDSCAPE) save '$(NAME)')

## snapshots: list what make save kept, in bin/snapshots; NAME=... deletes that one
.PHONY: snapshots
snapshots: $(LANDSCAPE)
	@$(LANDSCAPE) snapshots $(if $(NAME),--delete '$(NAME)')

## push-programs: build the programs of the landscape and push them to REF=host/repository:tag, for make up PROGRAMS=REF
.PHONY: push-programs
push-programs: $(LANDSCAPE)
	@[ -n "$(REF)" ] || { echo "make push-programs: say where to: REF=host/repository:tag" >&2; exit 1; }
	@$(LANDSCAPE) push-programs '$(REF)'

## times: measure times, memory and CPU time from nothing to nothing, as root or with sudo, after make up and make down; half an hour to an hour; DOCS=1 writes docs/development/times.md
.PHONY: times
times: $(LANDSCAPE)
	@$(LANDSCAPE) times $(if $(DOCS),--docs)

## scale: after up, measure SHOOTS=10 Shoots of the mock provider with NODES=1000 fake Nodes, as root or with sudo; DOCS=1 writes docs/development/scale.md
.PHONY: scale
scale: $(LANDSCAPE)
	@$(LANDSCAPE) scale $(if $(SHOOTS),--shoots '$(SHOOTS)') $(if $(NODES),--nodes '$(NODES)') $(if $(DOCS),--docs)

## status: show what runs, its health, and the extension objects with class and state; TARGET=bare or kind where there are both
.PHONY: status
status: $(LANDSCAPE)
	@$(LANDSCAPE) status --target '$(TARGET)'

## explain: say why something is not healthy; OF=garden, OF=seed or OF=shoot/NAME only that, OF=seed/NAME another Seed; TARGET=bare or kind where there are both
.PHONY: explain
explain: $(LANDSCAPE)
	@$(LANDSCAPE) explain --target '$(TARGET)' $(OF)

## doctor: check whether this machine can take a landscape, as root or with sudo, and change nothing
.PHONY: doctor
doctor: $(LANDSCAPE)
	@$(LANDSCAPE) doctor $(if $(UNTIL),--until $(UNTIL)) $(if $(NETWORK),--network $(NETWORK))

##@ kind

KIND_CLUSTER ?= single
KIND_CACHES  ?=

## kind-up: make a kind cluster for skaffold/ with Docker or podman; KIND_CLUSTER=single, nodes, zones, ipv6, dual-stack or, beside it, second; KIND_CACHES=1 keeps images
.PHONY: kind-up
kind-up: $(TOOLS)/kind
	@PATH=$(TOOLS):$$PATH skaffold/kind/cluster up --cluster $(KIND_CLUSTER) $(if $(KIND_CACHES),--caches)

## gardener-up: deploy a whole Gardener to the kind cluster; again to continue, or to deploy a change; UNTIL=STEP stops earlier
.PHONY: gardener-up
gardener-up: $(filter kind-up,$(MAKECMDGOALS)) $(LANDSCAPE)
	@skaffold/kind/dns registry
	@$(LANDSCAPE) gardener-up $(if $(UNTIL),--until $(UNTIL))

## dns-setup: have this machine resolve the names of the kind landscape, until kind-down
.PHONY: dns-setup
dns-setup:
	@skaffold/kind/dns setup

## kind-down: delete the kind clusters, their registry and what kind-up, gardener-up and dns-setup left on this machine; KIND_CACHES=1 deletes kept images, too
.PHONY: kind-down
kind-down: $(TOOLS)/kind
	@PATH=$(TOOLS):$$PATH skaffold/kind/cluster down $(if $(KIND_CACHES),--caches)
	@skaffold/kind/dns remove

## kind-images: make the images for kind-up in your Docker without any registry, as root on Debian; it prints how to use them
.PHONY: kind-images
kind-images: need-kind-offline kind-programs
	@CGO_ENABLED=0 go run -trimpath ./test/kind/images

# What the images for a kind cluster are made of.
.PHONY: kind-programs
kind-programs: $(TOOLS)/kind $(KUBERNETES_PROGRAMS) $(BIN)/kube-network-policies $(BIN)/coredns $(LANDSCAPE)
	@CGO_ENABLED=0 go build -C test/landscape -trimpath -ldflags '-s -w' -o $(BIN)/stub ./stub
	@CGO_ENABLED=0 go build -C test/kind/registry -trimpath -ldflags '-s -w' -o $(BIN)/registry .

##@ tests

# What the code is built with in place of go.mod, for another release of Gardener.
ifneq ($(and $(filter test,$(MAKECMDGOALS)),$(filter-out v%,$(GARDENER))),)
$(error GARDENER=$(GARDENER): make test takes a release of Gardener, such as v1.150.0)
endif
MODFILE := $(if $(filter v%,$(GARDENER)),$(REPO)/bin/gardener/$(GARDENER).mod)

$(REPO)/bin/gardener/%.mod: go.mod go.sum
	@mkdir -p $(@D); cp go.mod $@; cp go.sum $(@:.mod=.sum)
	@go get -modfile=$@ github.com/gardener/gardener@$* github.com/gardener/gardener/pkg/apis@$*

## test: unit and integration tests with the race detector, of all modules or of PACKAGES=./pkg/dns/... of this one; GARDENER=v1.150.0 builds this one with another release of Gardener
.PHONY: test
test: export TEST_ASSET_KUBE_APISERVER := $(BIN)/kube-apiserver
test: export TEST_ASSET_ETCD := $(BIN)/etcd
test: export TEST_ASSET_KUBE_CONTROLLER_MANAGER := $(BIN)/kube-controller-manager
test: export TEST_ASSET_KUBE_SCHEDULER := $(BIN)/kube-scheduler
test: export TEST_ASSET_COREDNS := $(BIN)/coredns
test: export TEST_ASSET_NAMED ?= $(TOOLS)/named
test: export TEST_ASSET_RESOURCE_MANAGER := $(BIN)/gardener-resource-manager
test: export TEST_ASSET_GARDENER_APISERVER := $(BIN)/gardener-apiserver
test: export TEST_ASSET_ETCDBRCTL := $(BIN)/etcdbrctl
test: export TEST_ASSET_MACHINE_CONTROLLER_MANAGER := $(BIN)/machine-controller-manager
test: need-gcc need-named $(BIN)/kube-apiserver $(BIN)/etcd $(BIN)/kube-controller-manager $(BIN)/kube-scheduler $(BIN)/coredns $(BIN)/gardener-resource-manager $(BIN)/gardener-apiserver $(BIN)/machine-controller-manager $(BIN)/etcdbrctl $(MODFILE)
	@# Most tests wait for what they have started, so that twice as many at a time as there are CPUs end earlier.
	@for module in $(if $(PACKAGES)$(MODFILE),.,$(MODULES)); do \
	  echo "--- test $$module"; cd $(REPO)/$$module; \
	  packages=$$(go list $(if $(MODFILE),-modfile=$(MODFILE)) $(or $(PACKAGES),$(if $(MODFILE),./gardenlet-extension/... ./operator-extension/... ./pkg/... ./test/integration/...,./...)) | grep -vE '$(NEEDS_LANDSCAPE)'); \
	  CGO_ENABLED=1 go test $(if $(MODFILE),-modfile=$(MODFILE)) -race -vet=off -p $$(($$(getconf _NPROCESSORS_ONLN) * 2)) -timeout 20m $(TEST_ARGS) $$packages; \
	done

## fuzz: run each fuzz target, for FUZZTIME=5s
.PHONY: fuzz
fuzz: FUZZTIME ?= 5s
fuzz:
	@hack/fuzz $(FUZZTIME) $(MODULES)

## nightly: all tests, hours; continues where it was, NIGHTLY=clean starts anew
.PHONY: nightly
nightly:
	@hack/nightly $(if $(filter clean,$(NIGHTLY)),--clean)

# The suites of test/e2e in their order. That of the audit log comes last, as it looks at what the others did.
SUITES ?= $(filter-out audit,$(notdir $(wildcard test/e2e/*))) audit

## e2e: suites against the running landscape, narrowed by LABELS, for example LABELS=garden or LABELS=shoot, and SUITES, which are the only ones built; docs/development/build-and-test.md lists them
.PHONY: e2e
e2e: $(LANDSCAPE)
	@# One suite after the other: there is one landscape, and they take parts of it away.
	@KUBECONFIG=$$($(LANDSCAPE) state --target '$(TARGET)')/kubeconfig; export KUBECONFIG; \
	[ -f "$$KUBECONFIG" ] || { echo "make e2e: there is no $$KUBECONFIG yet; run 'make up' or 'make gardener-up'" >&2; exit 1; }; set -x; \
	CGO_ENABLED=0 go test -trimpath -vet=off -v -count=1 -p 1 -timeout 180m $(SUITES:%=./test/e2e/%) $(TEST_ARGS) -ginkgo.v -ginkgo.label-filter='$(LABELS)'

## e2e-gardener: Gardener's own end-to-end suite in the landscape of make up KUBERNETES=1.35,1.34,1.33, as root or with sudo; FILTER='default && workerless', FOCUS='Force Delete', TARGET=kind
.PHONY: e2e-gardener
e2e-gardener: $(LANDSCAPE)
	@AS_USER='$(AS_USER)' TARGET='$(TARGET)' test/gardener/run '$(or $(FILTER),default)' '$(FOCUS)'

## test-machines: run make up and make down in virtual machines with a stock Debian, docs/development/tested-machines.md; VARIANT=debian-12,docker
.PHONY: test-machines
test-machines: export VARIANT := $(VARIANT)
test-machines: export DOCS := $(DOCS)
test-machines: need-qemu $(LANDSCAPE)
	@$(LANDSCAPE) build
	@CGO_ENABLED=0 go test -trimpath -tags machines -count=1 -timeout 24h -run '^TestMachines$$' -v ./test/machines $(TEST_ARGS)

## test-node: try what needs no Gardener: what make down leaves, networks of machines and of kind, IMAGES=upstream; as root, where no landscape is up
.PHONY: test-node
test-node: $(LANDSCAPE)
	@$(LANDSCAPE) build
	@CGO_ENABLED=0 go test -C test/landscape -trimpath -tags landscape -count=1 -timeout 1h -v . $(TEST_ARGS)

## test-released: try the program of make landscape-release in an empty folder, as root, where no landscape is up
.PHONY: test-released
test-released:
	@hack/released

## test-setup-gardener: try what setup-gardener does in continuous integration, as root, where no landscape is up
.PHONY: test-setup-gardener
test-setup-gardener:
	@hack/setup-gardener

## test-upgrade: upgrade Gardener below Shoots that live on, as root, where no landscape is up; RELEASES='v1.149.3 pinned v1.150.0'
.PHONY: test-upgrade
test-upgrade:
	@hack/upgrade $(RELEASES)

## test-kind: run make kind-up, gardener-up and kind-down with a private Docker and without any registry, as root; skaffold/README.md
.PHONY: test-kind
test-kind: need-kind-offline kind-programs
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(REPO)/bin/kind/caps ./test/kind/caps
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(REPO)/bin/kind/probe ./test/probe/cmd
	@$(LANDSCAPE) build
	@# Docker's network has no mirror of Debian, so images stand on what a landscape left. One that is up may be from a snapshot, without it.
	@ls bin/image-bases/*/debian-*.tar bin/machine-image/debian-*.tar >/dev/null 2>&1 || { \
	  [ ! -e .landscape ] || { echo "make test-kind: the landscape of this clone has not made images itself: save it if you need it, run make down, and call this again" >&2; exit 1; }; \
	  $(LANDSCAPE) up --until machine-image && $(LANDSCAPE) down; }
	@CGO_ENABLED=0 go test -trimpath -tags kind -count=1 -timeout 3h -v ./test/kind $(TEST_ARGS)

## bench: measure this extension beside Gardener's in-tree one, docs/development/performance.md; QUICK=1 in 20 minutes, BENCH_ARGS='--scenario garden'
.PHONY: bench
bench: export TEST_ASSET_KUBE_APISERVER := $(BIN)/kube-apiserver
bench: export TEST_ASSET_ETCD := $(BIN)/etcd
bench: export TEST_ASSET_COREDNS := $(BIN)/coredns
bench: export TEST_ASSET_NAMED ?= $(TOOLS)/named
bench: need-named $(BIN)/kube-apiserver $(BIN)/etcd $(BIN)/coredns bench-programs
	cd test/bench && $(BENCH)/bench --programs $(BENCH) --out $(BENCH) $(if $(QUICK)$(BENCH_ARGS),,--docs $(REPO)/docs/bench) $(if $(QUICK),--quick) $(BENCH_ARGS)

# Phony, as only Go knows what they depend on. All with the same flags, so that they differ in nothing but their code.
.PHONY: bench-programs
bench-programs:
	@echo "--- build the programs of the bench, minutes when nothing is cached"
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(BENCH)/ ./operator-extension ./gardenlet-extension
	@CGO_ENABLED=0 go build -C test/bench/modules/peer -trimpath -ldflags '-s -w' -o $(BENCH)/peer github.com/gardener/gardener/cmd/gardener-extension-provider-local
	@CGO_ENABLED=0 go build -C test/bench/modules/peer -trimpath -ldflags '-s -w' -o $(BENCH)/peer-uncapped ./uncapped
	@CGO_ENABLED=0 go build -C test/bench/modules/kwok -trimpath -ldflags '-s -w' -o $(BENCH)/kwok sigs.k8s.io/kwok/cmd/kwok
	@CGO_ENABLED=0 go build -C test/bench -trimpath -ldflags '-s -w' -o $(BENCH)/bench .

## benchmarks: Go benchmarks of the packages, docs/development/performance.md
.PHONY: benchmarks
benchmarks:
	go test -run '^$$' -bench . -benchmem -timeout 30m $(TEST_ARGS) ./pkg/...

##@ code

## check: lint, charts, shell scripts, generated code, modules, licences
.PHONY: check
check: check-generate check-modules check-licences check-shell check-workflows check-conventions check-lint check-charts check-skaffold
	@echo "check: known vulnerabilities are left out; make check-vulnerabilities needs access to the Go vulnerability database"

## check-vulnerabilities: look for known vulnerabilities in what the programs call; needs access to the Go vulnerability database
.PHONY: check-vulnerabilities
check-vulnerabilities: $(TOOLS)/govulncheck
	@failed=; for module in . $(IMAGE_MODULES); do \
	  echo "--- govulncheck $$module"; \
	  go -C $$module mod verify; \
	  $(TOOLS)/govulncheck -C $$module ./... $$(go -C $$module list tool | grep -x $(LOCAL_PATH_PROVISIONER) || true) || failed=1; \
	done; [ -z "$$failed" ]

# Licences of what is linked into the programs of the images (skaffold/publish/image.go), and is used as it is. go-licenses does
# not know MIT-0, which is that of github.com/coder/quartz.
LICENCES := Apache-2.0,MIT,BSD-2-Clause,BSD-3-Clause,ISC,MPL-2.0,Unlicense

.PHONY: check-licences
check-licences: $(TOOLS)/go-licenses
	@echo "--- licences of the modules that the programs consist of"
	@# Without GOROOT, a program that was built with -trimpath takes everything for a part of Go.
	@export GOROOT=$$(go env GOROOT) TMPDIR=$$(mktemp -d); trap 'rm -rf "$$TMPDIR"' EXIT; \
	check() { (cd $$2 && $(TOOLS)/go-licenses check --logtostderr=false --stderrthreshold=FATAL --allowed_licenses=$$1 \
	  --ignore github.com/gardener/gardener-extension-provider-local --ignore github.com/coder/quartz "$${@:3}"); }; \
	check $(LICENCES) . ./operator-extension ./gardenlet-extension; \
	check $(LICENCES) skaffold/images/coredns .; \
	check $(LICENCES) skaffold/images/local-path-provisioner ./helper $(LOCAL_PATH_PROVISIONER); \
	if check none skaffold/images/local-path-provisioner ./helper $(LOCAL_PATH_PROVISIONER) 2>/dev/null; then \
	  echo "check: go-licenses finds no licences" >&2; exit 1; \
	fi

.PHONY: check-generate
check-generate:
	@echo "--- generated code is up to date"
	@sums() { git ls-files -co --exclude-standard -- '*zz_generated*' docs/reference docs/operations/permissions.md example | sort -u | while read -r f; do [ ! -f "$$f" ] || echo "$$(git hash-object "$$f") $$f"; done; }; \
	before=$$(sums); $(MAKE) generate; after=$$(sums); \
	diff <(echo "$$before") <(echo "$$after") || { echo "check: 'make generate' changed the files above; commit them" >&2; exit 1; }

.PHONY: check-modules
check-modules:
	@echo "--- modules are tidy and complete"
	@for module in $(MODULES); do \
	  go -C $$module mod tidy -diff || { echo "check: run 'go mod tidy' in $$module" >&2; exit 1; }; \
	done
	@for module in $(TOOL_MODULES); do \
	  go -C $$module list -mod=readonly -deps tool >/dev/null || { echo "check: $$module lacks lines in go.mod or go.sum" >&2; exit 1; }; \
	done

.PHONY: check-shell
check-shell:
	@echo "--- shellcheck"
	@command -v shellcheck >/dev/null || hack/need-packages 'make check' 'shellcheck is missing' shellcheck
	@git ls-files -co --exclude-standard | while read -r f; do \
	  if [ -f "$$f" ] && head -n1 "$$f" | grep -aqE '^#!.*\b(ba|da)?sh\b'; then echo "$$f"; fi; \
	done | xargs -r shellcheck

.PHONY: check-lint
check-lint: $(TOOLS)/golangci-lint
	@for module in $(MODULES); do \
	  echo "--- golangci-lint $$module"; \
	  (cd $$module && CGO_ENABLED=0 GOFLAGS="$${GOFLAGS:-} -trimpath" $(TOOLS)/golangci-lint run --config $(REPO)/.golangci.yaml ./...); \
	done

.PHONY: check-workflows
check-workflows: $(TOOLS)/actionlint
	@echo "--- actionlint"
	@$(TOOLS)/actionlint

.PHONY: check-conventions
check-conventions:
	@echo "--- licences and what else a repository of Gardener has"
	@# Not from the cache, which does not know of files that are new.
	CGO_ENABLED=0 go test -trimpath -vet=off -count=1 ./hack/conventions/... ./hack/permissions/...

.PHONY: check-charts
check-charts:
	@echo "--- helm lint"
	CGO_ENABLED=0 go test -trimpath -vet=off ./charts/...

# The tests beside skaffold/ that need its programs; Skaffold takes two minutes to build where nothing is cached.
.PHONY: check-skaffold
check-skaffold: export TEST_ASSET_SKAFFOLD := $(BIN)/skaffold
check-skaffold: export TEST_ASSET_HELM := $(BIN)/helm
check-skaffold: export TEST_ASSET_KIND := $(TOOLS)/kind
check-skaffold: $(BIN)/skaffold $(BIN)/helm $(TOOLS)/kind
	@echo "--- skaffold diagnose and render for every target, kind reads its configurations"
	@# Not from the cache, which does not know what the programs read.
	CGO_ENABLED=0 go test -trimpath -vet=off -count=1 ./skaffold/ ./skaffold/kind/

## format: lay out the Go code as `make check` wants it
.PHONY: format
format: $(TOOLS)/golangci-lint
	@for module in $(MODULES); do \
	  (cd $$module && $(TOOLS)/golangci-lint fmt --config $(REPO)/.golangci.yaml ./...); \
	done

## generate: write anew what is generated: code, the reference of the APIs, the permissions, the Extension among the examples
.PHONY: generate
generate: $(TOOLS)/crd-ref-docs
	@cd hack && PATH=$(TOOLS):$$PATH CGO_ENABLED=0 GOFLAGS="$${GOFLAGS:-} -trimpath" go generate -tags generate .

## dashboard: draw the picture of the dashboard in docs/ anew
.PHONY: dashboard
dashboard:
	go -C hack/monitoring run .

##@ publish

## images: build the images for amd64 and arm64 into bin/images, without Docker; push them if REGISTRY is set
.PHONY: images
images:
	CGO_ENABLED=0 go run -trimpath ./skaffold/publish image $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(LAYOUT),--layout $(LAYOUT))

## push-charts: package the charts and push them to REGISTRY, print digest-pinned references, write the Extension
.PHONY: push-charts
push-charts:
	@[ -n "$(REGISTRY)" ] || { echo "make push-charts: say where to: REGISTRY=host[:port][/path]" >&2; exit 1; }
	CGO_ENABLED=0 go run -trimpath ./skaffold/publish charts --registry $(REGISTRY) $(if $(LAYOUT),--layout $(LAYOUT))

## push: push the images and charts that LAYOUT=FOLDER made images and push-charts write instead of pushing
.PHONY: push
push:
	@[ -n "$(LAYOUT)" ] || { echo "make push: say what: LAYOUT=FOLDER" >&2; exit 1; }
	CGO_ENABLED=0 go run -trimpath ./skaffold/publish push --layout $(LAYOUT)

## landscape-release: build bin/release/landscape-linux-ARCH, which brings a landscape up in any folder: it has the sources of the last commit; `docker build bin/release` makes its image
.PHONY: landscape-release
landscape-release:
	TZ=UTC git archive --format=zip -9 --output=test/landscape/internal/source/source.zip HEAD
	@mkdir -p bin/release
	@for arch in $(or $(ARCH),amd64 arm64); do \
	  echo "bin/release/landscape-linux-$$arch"; \
	  CGO_ENABLED=0 GOARCH=$$arch go build -C test/landscape -trimpath -tags release -ldflags '-s -w' -o $(REPO)/bin/release/landscape-linux-$$arch . || exit 1; \
	done
	@rm test/landscape/internal/source/source.zip
	@cp test/landscape/Dockerfile bin/release/

##@ names of Gardener's other repositories

## verify: check and test
.PHONY: verify
verify: check test

## verify-extended: nightly
.PHONY: verify-extended
verify-extended: nightly

## extension-up: up
.PHONY: extension-up
extension-up: up

## extension-down: down
.PHONY: extension-down
extension-down: down

## test-e2e-local: e2e
.PHONY: test-e2e-local
test-e2e-local: e2e

##@ other

## clean: remove bin/ and .landscape/, unless there is a landscape, up or stopped
.PHONY: clean
clean:
	@# before.json is how make down knows what to undo.
	@if [ -e .landscape/before.json ] || compgen -G '.landscape/run/*.json' >/dev/null || grep -qs " $(REPO)/.landscape/" /proc/self/mounts; then \
	  echo "make clean: there is a landscape; run 'make down' first" >&2; exit 1; \
	fi
	rm -rf bin .landscape

## help: this list
.PHONY: help
help:
	@awk '/^##@ /{ printf "\n%s\n", substr($$0, 5) } \
	  /^## [a-z0-9-]+: /{ name = $$2; sub(":", "", name); text = $$0; sub("^## [a-z0-9-]+: ", "", text); printf "  %-21s %s\n", name, text }' Makefile

# ---- what the targets above are made of ----

# The race detector needs a C compiler.
.PHONY: need-gcc
need-gcc:
	@command -v $${CC:-gcc} >/dev/null || hack/need-packages 'make test' 'the race detector needs a C compiler' gcc libc6-dev

# A name server that takes dynamic updates, which the tests start themselves.
.PHONY: need-named
need-named:
	@[ "$$TEST_ASSET_NAMED" != $(TOOLS)/named ] || hack/named $(TOOLS)/named

# Outside of the clone, as a Go that is too old can't read go.mod and says something else.
.PHONY: need-go
need-go:
	@version=$$(cd / && $(AS_USER) go version 2>/dev/null) || { echo "make: there is no Go; install 1.21 or newer from https://go.dev/dl into /usr/local/go" >&2; exit 1; }; \
	minor=$$(sed -nE 's/.*go1\.([0-9]+).*/\1/p' <<<"$$version"); \
	[ "$${minor:-99}" -ge 21 ] || { echo "make: $$version can't read go.mod; install Go 1.21 or newer from https://go.dev/dl into /usr/local/go and put it first in PATH" >&2; exit 1; }

# The keys of Debian's packages, for mmdebstrap.
KEYRING := /usr/share/keyrings/debian-archive-bookworm-automatic.gpg

# What makes and runs virtual machines.
.PHONY: need-qemu
need-qemu:
	@for tool in qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mmdebstrap:mmdebstrap mke2fs:e2fsprogs; do \
	  PATH=$$PATH:/usr/sbin command -v "$${tool%:*}" >/dev/null || missing="$${missing:-} $${tool#*:}"; \
	done; \
	[ -e $(KEYRING) ] || missing="$${missing:-} debian-archive-keyring"; \
	[ -z "$${missing:-}" ] || hack/need-packages 'make test-machines' 'virtual machines need programs' $$missing

# What makes the images of the test with kind, and runs its containers.
.PHONY: need-kind-offline
need-kind-offline:
	@[ "$$(id -u)" = 0 ] || { echo "make: only root can make a node image, and start a Docker: run this as root" >&2; exit 1; }
	@for tool in containerd runc mmdebstrap iptables; do command -v $$tool >/dev/null || missing="$${missing:-} $$tool"; done; \
	[ -e $(KEYRING) ] || missing="$${missing:-} debian-archive-keyring"; \
	[ -z "$${missing:-}" ] || hack/need-packages make 'Docker and its images need programs' $$missing

# Phony, as only Go knows what a program depends on; it takes a second when nothing changed. The landscape builds coredns with the
# same flags. Go sets the time of a program even where nothing changed; make up restarts by that time what it runs, and Go's cache of
# tests looks at it.
$(LANDSCAPE):   SOURCE := test/landscape
$(BIN)/coredns: SOURCE := skaffold/images/coredns
.PHONY: $(LANDSCAPE) $(BIN)/coredns
$(LANDSCAPE) $(BIN)/coredns: need-go
	@$(AS_USER) env CGO_ENABLED=0 go build -C $(SOURCE) -trimpath -ldflags '-s -w' -o $(BIN)/.made/$(@F) . && \
	{ cmp -s $(BIN)/.made/$(@F) $@ || { $(AS_USER) install $(BIN)/.made/$(@F) $@.new && $(AS_USER) mv $@.new $@; }; } || \
	[ "$(MAKECMDGOALS)" = down -a -x $@ ]

$(TOOLS)/%: hack/tools/%/go.mod hack/tools/%/go.sum
	@echo "--- build $*"
	@$(AS_USER) env CGO_ENABLED=0 go build -C $(<D) -trimpath -ldflags '-s -w' -o $@ tool
	@touch $@

# Programs of others, with the same flags as test/landscape uses, so that it finds what is built: with others, Go would build all of Kubernetes
# once more. PINS is the folder of the module that pins a program, MODULE the one whose version the linker sets VARIABLE to.
PINS := test/landscape/modules/programs
PACKAGE = $(MODULE)/cmd/$(@F)
# Before make 4.4, $(shell) gets no exported variables.
PINNED_VERSION = $(or $(shell PATH='$(PATH)' HOME='$(HOME)' GOWORK=off go -C $(PINS) list -m -f '{{.Version}}' $(MODULE)),$(error $(PINS) has no version of $(MODULE)))
VERSION_FLAGS = -X $(VARIABLE)=$(PINNED_VERSION)

$(KUBERNETES_PROGRAMS): MODULE := k8s.io/kubernetes
$(KUBERNETES_PROGRAMS): VERSION_FLAGS = $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,-X $(p).gitVersion=$(PINNED_VERSION) \
	-X $(p).gitMajor=$(patsubst v%,%,$(word 1,$(subst ., ,$(PINNED_VERSION)))) -X $(p).gitMinor=$(word 2,$(subst ., ,$(PINNED_VERSION))))
$(BIN)/etcd: PACKAGE := go.etcd.io/etcd/server/v3
$(BIN)/skaffold: MODULE := github.com/GoogleContainerTools/skaffold/v2
$(BIN)/skaffold: VARIABLE := github.com/GoogleContainerTools/skaffold/v2/pkg/skaffold/version.version
$(BIN)/helm: MODULE := helm.sh/helm/v3
$(BIN)/helm: VARIABLE := helm.sh/helm/v3/internal/version.version
$(BIN)/gardener-resource-manager $(BIN)/gardener-apiserver: MODULE := github.com/gardener/gardener
$(BIN)/gardener-resource-manager $(BIN)/gardener-apiserver: VARIABLE := k8s.io/component-base/version.gitVersion
$(BIN)/machine-controller-manager: MODULE := github.com/gardener/machine-controller-manager
$(BIN)/machine-controller-manager: VARIABLE := github.com/gardener/machine-controller-manager/pkg/version.Version
$(BIN)/kube-network-policies: PINS := test/landscape/modules/kube-network-policies
$(BIN)/kube-network-policies: MODULE := sigs.k8s.io/kube-network-policies
$(BIN)/kube-network-policies: VARIABLE := k8s.io/client-go/pkg/version.gitVersion
$(BIN)/kube-network-policies: PACKAGE := sigs.k8s.io/kube-network-policies/cmd
$(BIN)/etcdbrctl: PINS := test/landscape/modules/etcd-backup-restore
$(BIN)/etcdbrctl: MODULE := github.com/gardener/etcd-backup-restore
$(BIN)/etcdbrctl: VARIABLE := github.com/gardener/etcd-backup-restore/pkg/version.Version
$(BIN)/etcdbrctl: PACKAGE := github.com/gardener/etcd-backup-restore

PINNED := $(KUBERNETES_PROGRAMS) $(addprefix $(BIN)/,skaffold helm gardener-resource-manager gardener-apiserver machine-controller-manager)
$(PINNED): $(PINS)/go.mod $(PINS)/go.sum
$(BIN)/kube-network-policies: $(addprefix test/landscape/modules/kube-network-policies/,go.mod go.sum)
$(BIN)/etcdbrctl: $(addprefix test/landscape/modules/etcd-backup-restore/,go.mod go.sum)
$(PINNED) $(BIN)/kube-network-policies $(BIN)/etcdbrctl:
	@echo "--- build $(@F), minutes when nothing is cached"
	@CGO_ENABLED=0 go build -C $(PINS) -trimpath -ldflags '-s -w $(strip $(VERSION_FLAGS))' -o $@ $(PACKAGE)
	@touch $@

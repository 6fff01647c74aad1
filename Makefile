# Airlift: one file that installs Kubernetes on hosts without a network.
#
#   make demo    build a bundle and make a cluster of three isolated hosts with one command;
#                RECORD=PAGE writes what it printed to that page
#   make unit    the tests that run on any Linux machine: no root, no network, no components
#   make test    all tests, except those of make e2e
#   make browser the tests of HTML pages in Chromium
#   make e2e     end-to-end tests of the operator's path and its failures
#   make faults  measure what clients notice of faults of a control plane, and of a node that answers for Services
#   make hosts   run a cluster on each kind of host that users have
#   make versions  run Kubernetes versions through those tests, one after the other
#   make vm      clusters on two and three emulated machines with their own kernel
#   make conformance  run Kubernetes' own conformance tests
#   make bench   compare the times with kubeadm by hand
#   make scale   measure how the cost grows
#   make release VERSION=v0.1.0  write the files of a release; FIPS=1 with Go's validated cryptographic module
#
# Each target installs what it needs: Debian packages with apt-get, Go modules from the
# module proxy, and real Kubernetes components, built from their modules into the cache.

# The tests use the components of OLDEST, and compare rendered objects with kubeadm of both.
OLDEST     := v1.29.15
NEWEST     := v1.37.1
# What make test runs of NEWEST; other components of it fail a test there (scripts/fixtures/rig).
NEWEST_COMPONENTS := kubeadm,kubelet,containerd,registry,versitygw,etcd,etcdctl,etcdutl,kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy
# The version of the demo, of the benchmarks and of make e2e.
KUBERNETES ?= $(NEWEST)
# make e2e runs only the tests whose names match RUN and do not match SKIP.
RUN        ?= .
SKIP       ?=
# make e2e: init creates clusters with this profile, for example hardened.
PROFILE    ?=
# make conformance makes the cluster by airlift, hardened, load-balancer or kubeadm, and runs only the tests whose
# names match FOCUS.
BY         ?= airlift
FOCUS      ?=
# make bundle and make vm: the CPU architecture. The components of arm64 are cross-compiled.
# make bundle ARCH=amd64,arm64 writes out/install-amd64 and out/install-arm64.
ARCH       ?= amd64
comma      := ,
BUNDLE     = out/install$(if $(findstring $(comma),$(ARCH)),,$(if $(filter-out amd64,$(ARCH)),-$(ARCH)))
# make hosts, versions and conformance also run what passed before.
AGAIN      ?=
# The compression level of out/install.
COMPRESSION ?= default
CACHE      ?= $(or $(AIRLIFT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/airlift)
VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

export AIRLIFT_CACHE := $(CACHE)

# Tests, tools and the commands themselves are compiled in one way, so that each package is
# compiled once, except for the race detector, which needs cgo. -buildvcs=false: the state of the
# clone would change the bytes; VERSION is stamped instead.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

# make build FIPS=1: the cryptographic module of Go that has a certificate of FIPS 140-3, see docs/fips.md.
ifdef FIPS
export GOFIPS140 := certified
endif

# -buildid=: the compiler's build ID depends on the object files, and these can differ from build to
# build, when the executables have the same code.
LDFLAGS  = -s -w -buildid= -X main.version=$(VERSION)
# Without the tag, gRPC's request tracing links html/template. The linker must then keep
# every method of every type, which is a third of the installer.
TAG      = grpcnotrace
GOSTATIC = go build -tags $(TAG) -ldflags '$(LDFLAGS)'
EMBEDDED = cmd/bundle/embedded

# The linters have fixed versions, so that the same code always gives the same findings.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.8.0

# make test also runs the quick tests of these packages, which start goroutines (not those that kill processes), with the race
# detector.
RACE = ./bundle ./builder/fetch ./images/store \
	./installer/cluster/... ./installer/etcd ./installer/flow/... ./installer/host ./installer/node ./installer/payload ./installer/phases \
	./installer/pods ./installer/snapshot ./installer/timeline ./installer/workflow ./internal/progress

# Debian packages that the tests need.
PACKAGES = exfat-fuse exfatprogs gcc ignition iptables iproute2 libarchive-tools libc6-dev libcap2-bin minisign nftables openssl pigz policycoreutils rpm skopeo systemd xfsprogs zstd

.PHONY: packages all build executables upstream oracles bundle best newer demo unit test model mutants browser vet e2e faults hosts vm versions conformance bench scale release reproducible clean

all: build

# The bundle command embeds the launchers and installers of both architectures.
build: executables
	$(GOSTATIC) -o bin/bundle ./cmd/bundle

# The launcher and the installer, which bundle build writes into each bundle.
executables:
	for arch in amd64 arm64; do \
		GOARCH=$$arch $(GOSTATIC) -o $(EMBEDDED)/launcher-linux-$$arch ./cmd/launch && \
		GOARCH=$$arch $(GOSTATIC) -o $(EMBEDDED)/installer-linux-$$arch ./cmd/install && \
		go run ./scripts/release gzip $(EMBEDDED)/launcher-linux-$$arch $(EMBEDDED)/installer-linux-$$arch || exit; \
	done

# The real components of Kubernetes, built from Go modules (a test rig).
upstream:
	go build -o bin/upstream ./scripts/oracle/upstream
	bin/upstream build --version $(KUBERNETES) --arch $(ARCH)

# The components that the tests use.
oracles:
	go build -o bin/upstream ./scripts/oracle/upstream
	bin/upstream build --version $(OLDEST)
	bin/upstream build --version $(NEWEST) --only $(NEWEST_COMPONENTS)

# A bundle built from the test rig instead of the sites on the internet.
bundle: build upstream
	go run ./scripts/buildbundle --version $(KUBERNETES) --arch $(ARCH) --compression $(COMPRESSION) --output $(BUNDLE)

# The same with the best compression, by the zstd command: this takes minutes and
# gigabytes of memory. If the file exists, "make bench" has one more row.
best: build upstream
	go run ./scripts/buildbundle --version $(KUBERNETES) --compression best --output out/best

demo: bundle
	go run ./scripts/demo --bundle out/install $(addprefix --record ,$(RECORD))

# The list of known vulnerabilities is on the internet. Where it cannot be read, nothing is
# checked, and that is not a failure of the code.
vet:
	@files=$$(gofmt -s -l .) && if [ -n "$$files" ]; then echo "run gofmt -s -w on these files:"; echo "$$files"; exit 1; fi
	go vet -tags e2e,compare,vm,conformance,$(TAG) ./...
	go run $(STATICCHECK) -tags e2e,compare,vm,conformance,$(TAG) ./...
	@if GOBIN=$(CURDIR)/bin go install $(GOVULNCHECK) && timeout 60 bin/govulncheck -version | grep '^DB updated'; then \
		bin/govulncheck -tags e2e,$(TAG) ./...; else \
		echo "WARNING: govulncheck or its list cannot be downloaded: known vulnerabilities were NOT checked"; fi

# The tests also download Debian's containerd, so apt needs its package lists.
packages:
	@apt-cache show containerd >/dev/null 2>&1 || apt-get update -q
	@! dpkg-query --show --showformat '$${db:Status-Status}\n' $(PACKAGES) 2>&1 | grep -qvx installed || apt-get install -q --yes --no-install-recommends $(PACKAGES)

# For each package: its result, and the tests that only make test runs. Temporary files are in memory
# where there is room for them, and the garbage collector runs less often: measured on two cores, this
# takes 51 s instead of 61 s.
unit: export GOGC = 800
unit:
	@mkdir -p out
	@memory=/dev/shm; room=$$(df --output=avail $$memory 2>/dev/null | tail -1); \
	if test "$${room:-0}" -gt 4194304 && test -w $$memory && ! findmnt -no OPTIONS -T $$memory | grep -qw noexec; then \
		TMPDIR=$$(mktemp -d -p $$memory); export TMPDIR; trap 'rm -rf "$$TMPDIR"' EXIT; trap 'exit 130' INT TERM; \
	fi; \
	go test -tags $(TAG) -vet=off -p 5 -v ./... >out/unit.log 2>&1 || { grep -vE '^ *(=== |--- (PASS|SKIP)|PASS)' out/unit.log; exit 1; }
	@awk '/^ *--- SKIP: / { split($$3, name, "/"); if (!seen[name[1]]++) list = list " " name[1] } \
		/^ok/ { print; if (list) print "    NOT RUN, make test does:" list; list = ""; split("", seen) }' out/unit.log

# The tests of make faults. They take hours.
FAULTS = ^Test(Endpoint(Faults|Upgrade|PowerCut)|LoadBalancerFaults|BackupTimes)

# Two tests at once, as the machine has two cores: with three, their hosts do not answer for seconds.
E2E = go test -tags e2e,$(TAG) -count 1 -p 1 -parallel 2 -timeout 60m -run '$(RUN)' -skip '$(FAULTS)$(if $(SKIP),|$(SKIP))'

# Not empty if RUN and SKIP select the test: some need more components, or a second bundle.
runs = $(if $(findstring $(1),$(SKIP)),,$(or $(filter .,$(RUN)),$(findstring $(1),$(RUN))))

# With AIRLIFT_RIG, the tests that need root, components or tools run or fail: see scripts/fixtures/rig.
test e2e mutants: export AIRLIFT_RIG = 1

# -vet=off: make vet has done more. -p 4: some tests only wait. -timeout: the model test takes 8 minutes alone.
test mutants: export AIRLIFT_RIG_COMPONENTS = $(NEWEST):$(NEWEST_COMPONENTS)
test: packages oracles vet
	AIRLIFT_RIG= CGO_ENABLED=1 go test -tags $(TAG) -vet=off -p 4 -race -skip Kill $(RACE)
	go test -tags $(TAG) -vet=off -p 4 -timeout 40m ./...

# More sequences of the model test, and the defects that it must find: make model SEQUENCES=100000. SEED repeats a
# run.
SEQUENCES = 1000
SEED = $(shell date +%s)
model: export AIRLIFT_RIG = 1
model:
	go run ./scripts/model/defects
	@echo seed $(SEED)
	MODEL_PAIRS=all AIRLIFT_SEED=$(SEED) go test -tags $(TAG) -vet=off -v -timeout 0 ./scripts/model -run 'TestSequences|TestSeedSequences|TestClusterSequences|TestPairs' -rapid.checks=$(SEQUENCES) -rapid.seed=$(SEED)

# Which changes of one line the tests of a package notice. SEED repeats a run.
MUTANTS = 150
mutants:
	go run ./scripts/model/mutants -seed $(SEED) -count $(MUTANTS)

# The HTML pages in Debian's Chromium, without a network; the screens are in out/screens. It is no part of make test.
browser: export AIRLIFT_BROWSER = 1
browser:
	@command -v chromium >/dev/null || apt-get install -q --yes --no-install-recommends chromium || \
		{ echo "NOT RUN: chromium is missing and cannot be installed. NOTHING WAS TESTED IN A BROWSER."; exit 1; }
	go test -tags $(TAG) -vet=off -count 1 -p 1 -v -run Browser $$(echo ./scripts/fixtures/browser; grep -rl --include="*_test.go" airlift/scripts/fixtures/browser . | xargs dirname | sort -u)

# These tests need the bundle of make newer, too.
UPGRADES = TestUpgrade TestMultiHostUpgrade TestEmbeddedRegistry TestAdopt TestHardenedSite

e2e: bundle
	@rm -f out/hosts-not-run
	$(if $(call runs,TestAddOns)$(call runs,TestPodNetwork),bin/upstream build --version $(KUBERNETES) --add-ons)
	$(if $(strip $(foreach t,$(UPGRADES),$(call runs,$(t)))),$(MAKE) newer)
	$(E2E) ./e2e $(addprefix -args -profile ,$(PROFILE))
	@if test -e out/hosts-not-run; then cat out/hosts-not-run; fi
	$(E2E) ./scripts/lab ./scripts/bench/measure ./installer/host

# The tables of docs/high-availability.md: what clients of the API notice of faults, of an upgrade and of a power
# cut. RUN=TestLoadBalancerFaults: the table of docs/load-balancer.md. Each fault happens RUNS times. RUN selects tests.
faults: export AIRLIFT_RIG = 1
faults: export ENDPOINT_RUNS = $(or $(RUNS),3)
faults: bundle
	$(if $(call runs,TestEndpointUpgrade),$(MAKE) newer)
	$(if $(call runs,TestBackupTimes),apt-get install -q --yes --no-install-recommends age rclone)
	$(if $(call runs,TestLoadBalancerFaults),bin/upstream build --version $(KUBERNETES) --only metallb)
	go test -tags e2e,$(TAG) -count 1 -parallel 1 -timeout 0 -v -run '$(if $(filter .,$(RUN)),$(FAULTS),$(RUN))' ./e2e

# Each kind of host of TestHosts; the results are in docs/hosts.md. This takes an hour or more.
# It can be stopped and continued. HOSTS selects some: HOSTS=firewalld,ufw
hosts: bundle
	go run ./scripts/live hosts --only "$(HOSTS)" $(if $(AGAIN),--again)

# Each Kubernetes version through the tests on hosts; the results are in docs/versions.md. This
# takes hours. It can be stopped and continued. VERSIONS selects some: VERSIONS=v1.36.3,v1.37
versions: build
	go build -o bin/upstream ./scripts/oracle/upstream
	go run ./scripts/live versions --only "$(VERSIONS)" $(if $(AGAIN),--again)

# Two or three emulated machines with Debian's kernel, cgroup v2 and systemd's cgroup driver: a cluster,
# reboots, power cuts, changes by cluster.yaml and reset. It needs 8 GB of memory and takes hours. RUN selects tests.
QEMU = qemu-system-$(if $(filter arm64,$(ARCH)),arm,x86) dosfstools mtools
vm: bundle
	@! dpkg-query --show --showformat '$${db:Status-Status}\n' $(QEMU) 2>&1 | grep -qvx installed || apt-get install -q --yes --no-install-recommends $(QEMU)
	go test -tags vm,$(TAG) -count 1 -timeout 5h -v -run '$(RUN)' ./scripts/lab/vm -bundle $(CURDIR)/$(BUNDLE) -arch $(ARCH)

# Kubernetes' own conformance tests on two hosts; the results are in docs/conformance.md. This takes
# hours. It can be stopped and continued. BY=kubeadm does the same on a cluster by real kubeadm, BY=hardened on one with
# --profile hardened, BY=load-balancer on one with that add-on. FOCUS='sig-network.*DNS' selects some tests.
conformance: build
	go build -o bin/upstream ./scripts/oracle/upstream
	bin/upstream build --version $(KUBERNETES) --conformance
	AIRLIFT_RIG=1 go test -tags conformance,$(TAG) ./scripts/oracle/upstream/image
	go run ./scripts/live conformance --version $(KUBERNETES) --by $(BY) --focus '$(FOCUS)' $(if $(AGAIN),--again)

# A bundle of the version to which the tests upgrade: a patch of the newest minor version, or the
# minor version after the oldest.
newer:
	$(MAKE) bundle KUBERNETES=$(if $(filter $(OLDEST),$(KUBERNETES)),v1.30.4,v1.37.2) BUNDLE=out/newer

# Airlift and kubeadm by hand, alternating, on the same kind of hosts. The newer bundle is for the upgrade
# and the delta. RUNS counts the repetitions.
bench: bundle newer
	go run ./scripts/bench --bundle out/install --newer out/newer $(addprefix --best ,$(wildcard out/best)) $(addprefix --runs ,$(RUNS))

# How the cost grows with the bundle, with the images on the host, and with the hosts.
scale: bundle
	go run ./scripts/bench scale --bundle out/install

# The files of a release in out/release, with the same bytes on any machine. VERSION=v0.1.0 is
# required. Variables that change the compiler's output have fixed values.
release: export GOEXPERIMENT =
release: export GOAMD64 = v1
release: export GOARM64 = v8.0
release: executables
	go run ./scripts/release --version $(VERSION)

# Builds a release of the last commit in two directories, the second with an empty build cache,
# and compares the checksums. This takes many minutes, so make test does not do it.
reproducible: VERSION = v0.0.0
reproducible:
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && \
	export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) && \
	for name in a another; do \
		mkdir "$$work/$$name" && git archive HEAD | tar -x -C "$$work/$$name" || exit; \
	done && \
	$(MAKE) -C "$$work/a" release VERSION=$(VERSION) && \
	GOCACHE=$$work/cache $(MAKE) -C "$$work/another" release VERSION=$(VERSION) && \
	{ diff "$$work/a/out/release/SHA256SUMS" "$$work/another/out/release/SHA256SUMS" || \
		{ trap - EXIT; echo "The builds differ. Both are kept: $$work"; exit 1; }; } && \
	echo "Both builds have the same bytes."

clean:
	rm -rf bin out $(EMBEDDED)/*.gz

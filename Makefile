# Airlift: one file that installs Kubernetes where there is no network.
#
#   make demo    a bundle, two isolated hosts, one cluster, shown
#   make test    unit and integration tests
#   make e2e     the demo's path and its failures, as assertions
#   make bench   how long it takes, beside doing it by hand
#   make scale   how that grows
#
# Each target sets up what it needs: Debian packages through apt-get, Go modules
# through the module proxy, and real Kubernetes built from them into the cache.

KUBERNETES ?= v1.29.15
# Whose kubeadm judges, beside that of KUBERNETES, what is rendered.
NEWEST     ?= v1.37.1
CACHE      ?= $(or $(AIRLIFT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/airlift)
VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

export AIRLIFT_CACHE := $(CACHE)

LDFLAGS  = -s -w -X main.version=$(VERSION)
# Without the tag, gRPC's request tracing brings in html/template, for whose sake
# the linker keeps every method of every type: a third of the installer.
GOSTATIC = CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags '$(LDFLAGS)'
PROGRAMS = cmd/bundle/programs

# What the tests judge by, where it is not there already.
PACKAGES = iptables iproute2 libcap2-bin nftables openssl zstd

.PHONY: packages all build programs upstream oracles bundle best demo test vet e2e bench scale clean

all: build

# bundle carries what bundles begin with, for both architectures.
build: programs
	$(GOSTATIC) -o bin/bundle ./cmd/bundle

# What bundles begin with: a small launcher, and the installer that it becomes.
programs:
	for arch in amd64 arm64; do \
		GOARCH=$$arch $(GOSTATIC) -o $(PROGRAMS)/launcher-linux-$$arch ./cmd/launch && \
		GOARCH=$$arch $(GOSTATIC) -o $(PROGRAMS)/installer-linux-$$arch ./cmd/install && \
		gzip -fn $(PROGRAMS)/launcher-linux-$$arch $(PROGRAMS)/installer-linux-$$arch || exit; \
	done

# The real components of Kubernetes, built from Go modules (a test rig).
upstream:
	go build -o bin/upstream ./scripts/upstream
	bin/upstream build --version $(KUBERNETES)

# What else the tests judge by.
oracles: upstream
	bin/upstream build --version $(NEWEST) --only kubeadm

# A bundle made from the rig, which stands for the sites on the internet.
bundle: build upstream
	go run ./scripts/carry --version $(KUBERNETES) --output out/install

# The same as small as it gets, by the machine's own zstd: minutes, and gigabytes of
# memory. "make bench" has a line more when it is there.
best: build upstream
	go run ./scripts/carry --version $(KUBERNETES) --compression best --output out/best

demo: bundle
	go run ./scripts/demo --bundle out/install

vet:
	go vet ./...
	go vet -tags e2e ./...

# The tests also take Debian's own containerd, hence a package list.
packages:
	@apt-cache show containerd >/dev/null 2>&1 || apt-get update -q
	@dpkg-query --show $(PACKAGES) >/dev/null 2>&1 || apt-get install -q --yes --no-install-recommends $(PACKAGES)

test: packages oracles vet
	go test ./...

e2e: bundle
	go test -tags e2e -count 1 -p 1 -parallel 3 -timeout 40m ./scripts/lab ./scripts/bench/measure ./installer/host ./e2e

# Airlift and kubeadm by hand, in turns, on the same kind of hosts.
bench: bundle
	go run ./scripts/bench --bundle out/install $(addprefix --best ,$(wildcard out/best))

# How the cost grows with what is carried, with the host and with the hosts.
scale: bundle
	go run ./scripts/bench scale --bundle out/install

clean:
	rm -rf bin out $(PROGRAMS)/*.gz

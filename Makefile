# make run      serve the embedded sample cluster and show what to ask it (needs Go only)
# make test     every test that needs no cluster; installs what it needs
# make e2e      the tests on a real control plane, which the first time takes minutes to build
# make check    the developers' loop: format, vet, lint, tests without the race detector
# make cluster  a real control plane for you, until Ctrl-C
# make image    an OCI image below build/, without a container engine; see deploy/README.md
# make chart    the Helm chart as a package below build/; builds Helm, the first time for minutes
# make install.yaml  deploy/install.yaml, from deploy/base
# make measure  propagation and scale on a real control plane
# make bench    epdns beside Knot, NSD, BIND and CoreDNS, and with up to a million endpoints;
#               writes docs/benchmarks.md; needs an idle machine for half an hour
# make faults   what clients get while one thing after the other breaks; writes
#               docs/reliability.md; takes twenty minutes
# make soak     changes and questions for SOAK (default 60m), then again with the race detector
# make man      the manual pages, into build/man
# make fuzz     each fuzz target for FUZZTIME (default 10s), and ten million damaged packets

GO       ?= go
FUZZTIME ?= 10s
SOAK     ?= 60m
TAG      ?= dev
BUILD    := build

.PHONY: run build test e2e check lint tools tools-e2e cluster image chart measure bench faults soak fuzz man install.yaml clean

# Not by "go run", which makes an error of Ctrl-C.
run:
	@$(GO) build -o $(BUILD)/epdns ./cmd/epdns
	@exec $(BUILD)/epdns demo

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BUILD)/epdns ./cmd/epdns

test: tools
	$(GO) test -race -count=1 -parallel 8 ./...

# What the race detector takes too much memory for, the tests of the control plane itself, then
# those of epdns on it. A run in which
# none of the latter passed has failed, whatever it says.
e2e: tools-e2e
	cd test && $(GO) run ./cmd/cluster build >/dev/null
	$(GO) test -count=1 -run '^TestMemoryLimit$$' .
	cd test && $(GO) vet ./... && $(GO) test -count=1 -p 1 -timeout 20m ./...
	cd test && $(GO) build -buildvcs=false -o ../$(BUILD)/cluster ./cmd/cluster
	@mkdir -p $(BUILD)
	@set -e; $(BUILD)/cluster exec --nodes 6 -- $(GO) test -race -count=1 -v -run '^TestKube' . >$(BUILD)/e2e.log 2>&1 || { cat $(BUILD)/e2e.log; exit 1; }; \
	grep -q '^--- PASS: TestKube' $(BUILD)/e2e.log || { cat $(BUILD)/e2e.log; echo 'e2e: no test ran on the control plane' >&2; exit 1; }; \
	grep -E '^(=== NAME|--- |PASS|ok)' $(BUILD)/e2e.log

check: lint
	cd test && $(GO) vet ./...
	$(GO) test ./...

lint:
	@unformatted=$$(gofmt -l cmd dnsserver internal registry zones test *.go); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool -modfile=test/tools/lint/go.mod staticcheck ./...
	cd test && $(GO) tool -modfile=tools/lint/go.mod staticcheck ./...

# What the tests need beyond Go: a C compiler for the race detector, dig, nslookup and ip.
tools:
	@.ci/tools

tools-e2e:
	@.ci/tools e2e

man: build
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || date +%s)} $(BUILD)/epdns man --dir $(BUILD)/man

cluster:
	cd test && $(GO) run ./cmd/cluster up

image:
	cd test && $(GO) run ./cmd/image --tag '$(TAG)' --version '$(VERSION)' $(PLATFORMS:%=--platform %)

# The chart's own copy of the alerts, since Helm reads nothing beside a chart.
chart:
	cp docs/alerts.yaml deploy/chart/files/alerts.yaml
	@mkdir -p $(BUILD)
	CGO_ENABLED=0 GOFLAGS= $(GO) build -C test/tools/helm -trimpath -buildvcs=false -o $(CURDIR)/$(BUILD)/helm helm.sh/helm/v4/cmd/helm
	$(BUILD)/helm package deploy/chart --destination $(BUILD) --app-version '$(TAG)'

install.yaml: tools-e2e
	cd test && $(GO) run ./cmd/cluster build >/dev/null
	cd test && $(GO) test ./deploy -count=1 -run '^TestInstallFile$$' -update

measure:
	cd test && $(GO) run ./cmd/measure propagation
	cd test && $(GO) run ./cmd/measure scale

bench: tools-e2e
	cd test && $(GO) run ./cmd/bench
	cd test && $(GO) run ./cmd/bench scale

faults: tools-e2e
	cd test && $(GO) run ./cmd/cluster build >/dev/null
	cd test && $(GO) run ./cmd/faults

soak: tools-e2e
	cd test && $(GO) run ./cmd/cluster build >/dev/null
	cd test && $(GO) run ./cmd/faults soak --for $(SOAK)
	cd test && $(GO) run ./cmd/faults soak --for $(SOAK) --race

fuzz:
	@GO='$(GO)' .ci/fuzz $(FUZZTIME)

clean:
	rm -rf $(BUILD)

# The commands of this project. `make test` needs Go and a C compiler (for -race), and uses a Docker engine if one
# answers at DOCKER_HOST or the default socket, and the official SDKs if node is there and `make sdks` was run.

GO          ?= go
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
MODULES     := $(shell $(GO) list -m -f '{{.Dir}}')

# How many lives `make crash` ends on Docker, how many more in each of two runs in which the engine keeps no lease, and
# how many on Kubernetes; how long `make fuzz` tries each target.
N        ?= 200
UNLEASED ?= 60
OWNERS   ?= 100
FUZZTIME ?= 10s

# The one SDK that the registry did not have when sdkcheck was written.
BOAT_SDK := @boatdev/sdk

# The packages whose tests share a Docker engine, and a real clock: tested last, one at a time. Those of which each has
# clusters of its own are tested so beside them: both mostly wait.
ENGINE  := ./providers/docker,./examples/...,./examples/eino,./examples/langchaingo,./cmd/sandglass/...
CLUSTER := ./providers/kubernetes,./internal/kubecluster/...,./deploy

.PHONY: test lint crash bench fuzz image readme sdks sdkcheck kube

## test: vet and test every module with the race detector, then say what was skipped and why
test:
	$(GO) vet work
	$(GO) run ./internal/gotest -alone $(ENGINE) -alone $(CLUSTER) -race -shuffle=on -timeout=20m work

## lint: format, vet for three systems, staticcheck, tidy modules, and each module on its own
lint:
	@files=$$($(GO) run $(GOFUMPT) -l .) && if [ -n "$$files" ]; then echo "gofumpt would change:"; echo "$$files"; exit 1; fi
	GOOS=linux   $(GO) vet work
	GOOS=darwin  $(GO) vet work
	GOOS=windows $(GO) vet work
	@set -e; for dir in $(MODULES); do \
		echo "staticcheck, tidy and build: $$dir"; cd "$$dir"; \
		$(GO) run $(STATICCHECK) ./...; \
		$(GO) mod tidy -diff; \
		GOWORK=off $(GO) build -o /dev/null ./...; \
	done
	cd internal/kubetest && GOWORK=off $(GO) mod tidy -diff

## crash: end N child processes at random instants and ask the Docker engine what is left; twice UNLEASED more without
## leases; then OWNERS on Kubernetes, and ask the API server and the container runtime
crash:
	$(GO) test -count=1 -timeout=90m -v -run='^TestCrash' ./providers/docker -crash.n=$(N) -crash.unleased=$(UNLEASED)
	$(GO) test -count=1 -timeout=90m -v -run='^TestCrash' ./providers/kubernetes -crash.n=$(OWNERS)

## sdks: install the official SDKs that sdkcheck needs, at the versions that its lock file names; needs node 20 and npm
sdks:
	cd sdkcheck && npm ci --silent
	@cd sdkcheck && { npm view --silent $(BOAT_SDK) version >/dev/null 2>&1 && npm install --silent --no-save $(BOAT_SDK); } || \
		echo "$(BOAT_SDK) cannot be installed: its test will be skipped"

## sdkcheck: have the official SDKs live against our fakes
sdkcheck: sdks
	SANDGLASS_NO_SKIP=1 $(GO) test -race -shuffle=on -count=1 ./sdkcheck ./sdkcheck/modal

## kube: build the Kubernetes components that the tests of Kubernetes run on: some 8 minutes at first, seconds later
kube:
	$(GO) run ./internal/kubecluster/kubed build

## bench: run the benchmarks
bench:
	$(GO) test -run='^$$' -bench=. -benchmem work

## fuzz: run each fuzz target for FUZZTIME
fuzz:
	@set -e; for pkg in $$($(GO) list work); do \
		for target in $$($(GO) test -list='^Fuzz' "$$pkg" | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) "$$pkg"; \
		done; \
	done

## image: make busybox:latest on the Docker engine without a registry
image:
	.ci/image

## readme: write the generated parts of README.md anew
readme:
	$(GO) test ./examples -run='^TestReadme' -update

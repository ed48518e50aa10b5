# make test   everything that needs no special hardware: under ten minutes on two cores
# make lab    the same code on a real Linux kernel under QEMU
# make lib    the C libraries, into lib/
# make help   all targets

GO      ?= go
TOOL    := $(GO) tool -modfile=tools/go.mod
PKGS    := ./...
# Packages whose goroutines share memory also run under the race detector, on
# memory that it can see.
RACE     = $(shell awk '!/^\#/ && / race/ {print "./" $$1}' suites.txt)

# Tests of a package that run longer hang, even on a busy machine.
HANG    ?= 30m

.DEFAULT_GOAL := help

## test: lint, build, all tests, the race detector, mutants and thresholds
.PHONY: test
test: deps lint build unit race mutants thresholds

## full: test, and what takes longer: other modules, Python with torch, Debian's kernel
.PHONY: full
full: test store-test trace-test page-test python-torch-test lab-debian

## deps: install missing packages that the tests need (with apt, if permitted)
.PHONY: deps
deps:
	@missing=""; for c in gcc; do command -v $$c >/dev/null || missing="$$missing $$c"; done; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq -o Acquire::Retries=3 && DEBIAN_FRONTEND=noninteractive apt-get install -o Acquire::Retries=3 -y -qq $$missing libc6-dev >/dev/null; \
		else echo "missing:$$missing: install it to run all tests"; fi; \
	fi
	@command -v tmux >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq tmux >/dev/null; } \
		|| echo "missing: tmux: the tests of terminal views are skipped"

## lint: gofumpt, vet, staticcheck, Prometheus' linter
.PHONY: lint
lint:
	@out="$$($(TOOL) gofumpt -l $$(git ls-files -co --exclude-standard '*.go'))"; if [ -n "$$out" ]; then echo "gofumpt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet $(PKGS)
	$(TOOL) staticcheck $(PKGS)
	@$(GO) run -C tools ./promlint < internal/stats/testdata/metrics.prom

## build: the culvert command, static of C, into bin/
.PHONY: build
build:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/culvert ./cmd/culvert
	CGO_ENABLED=0 $(GO) build -tags nodl -o /dev/null ./cmd/culvert

## unit: all tests on the software machine
.PHONY: unit
unit: lib
	@$(GO) test -timeout $(HANG) -json $(PKGS) | $(GO) run ./internal/quality/suites -on unit suites.txt $(GO) test -count=1 -timeout $(HANG) -json

## race: the concurrent packages under the race detector
.PHONY: race
race:
	@export CULVERT_SOFT=heap,poison=1; $(GO) test -race -short -timeout $(HANG) -json $(RACE) | $(GO) run ./internal/quality/suites -on race suites.txt $(GO) test -count=1 -race -short -timeout $(HANG) -json

## mutants: break the chief guarantees one by one; a test must fail each time
.PHONY: mutants
mutants: lib
	@$(GO) run ./internal/quality/mutants mutants.txt

## mutants-all: the same for every guarantee (more than half an hour)
.PHONY: mutants-all
mutants-all: lib
	@$(GO) run ./internal/quality/mutants mutants.txt $$(git ls-files -co --exclude-standard '*/mutants.txt' | grep -v '^lab/')

## thresholds: benchmarks as ratios inside one run
.PHONY: thresholds
thresholds:
	@$(GO) run ./internal/quality/thresholds thresholds.txt

## fuzz: each fuzz target for FUZZTIME
FUZZTIME ?= 30s
.PHONY: fuzz
fuzz:
	@for pkg in $$($(GO) list $(PKGS)); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz'); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; done; done

## soak: millions of random transfers, kills and attacks against models
.PHONY: soak
soak:
	@$(GO) test -count=1 -timeout 4h -run '^TestStress$$' -v ./cufile -cufile.stress $(SOAKOPS) -cufile.dirs '$(SOAKDIRS)'
	@$(GO) test -count=1 -timeout 4h -run '^(TestLiars|TestBatchesBesideALiar|TestDriveThatLies|TestRawDriveThatLies)$$' -v ./internal/ladder -liar.transfers 100000
	@$(GO) test -count=1 -timeout 4h -v ./cmd/culvert/crashtest -crash.random $(SOAKSEEDS)
	@$(GO) test -count=1 -timeout 4h -run '^TestResume$$' -v ./rdma/tcp -rdma.gib $(SOAKGIB)
	@$(GO) test -count=1 -timeout 4h -run '^TestRevokeDuringWrites$$' -v ./soft/nic -revokes 10000
	@$(GO) test -count=1 -timeout 4h -run '^TestMemoryOfALongRead$$' -v ./object -object.soak 100

SOAKOPS   ?= 5000000
SOAKSEEDS ?= 200
# Directories on file systems to try, separated by colons; empty means those at hand.
SOAKDIRS  ?=
# GiB over loopback TCP while connections break.
SOAKGIB   ?= 64

## copy-rates: culvert cp beside cp -r with sync, and rclone; as root, 20 GB of disk, not in CI
.PHONY: copy-rates
copy-rates: build
	internal/quality/copyrates.sh bin/culvert

## clean: remove build outputs
.PHONY: clean
clean:
	rm -rf bin lib

## help: print this list
.PHONY: help
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST) | awk -F': ' '{printf "  %-15s %s\n", $$1, $$2}'

include clib/clib.mk
include lab/lab.mk
include python/python.mk
include internal/dist/dist.mk

# Not in CI: versitygw and a second server come with 70 modules that nothing else needs.
## store-test: the command and the Python package against culvert-store and a second S3 server
.PHONY: store-test
store-test: lib-core $(PYTHON_VENV)/stamp
	cd culvert-store && $(GO) vet ./... && $(GO) test -count=1 -timeout $(HANG) ./...

# Not in CI: Node and Perfetto's user interface are 77 MB.
TRACE_PYTHON ?= bin/trace-python
## trace-test: traces in Perfetto's trace processor from PyPI, their sums against the receipts
.PHONY: trace-test
trace-test: build programs $(TRACE_PYTHON)/stamp
	PYTHONDONTWRITEBYTECODE=1 $(TRACE_PYTHON)/bin/python internal/trace/perfetto/test_perfetto.py

$(TRACE_PYTHON)/stamp: internal/trace/perfetto/requirements.txt
	$(PYTHON) python/environment.py $(TRACE_PYTHON) $< --no-deps

# Not in CI: Chromium with what it needs is 400 MB, its driver 53 MB.
PAGE_PYTHON ?= bin/page-python
## page-test: the report of bench in Chromium (apt), by mouse and keys, light and dark, wide and narrow
.PHONY: page-test
page-test: build $(PAGE_PYTHON)/stamp
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } \
		|| echo "missing: chromium: the tests of the report are skipped"
	PYTHONDONTWRITEBYTECODE=1 $(PAGE_PYTHON)/bin/python internal/bench/html/browser/test_page.py

$(PAGE_PYTHON)/stamp: internal/bench/html/browser/requirements.txt
	$(PYTHON) python/environment.py $(PAGE_PYTHON) $<

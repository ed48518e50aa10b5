# Archives and packages. Included by the Makefile at the root; needs Go, gcc and git on
# amd64. nfpm is a module of its own, so that no other target downloads it.

DIST         ?= bin/dist
DIST_VERSION := $(shell sed -n 's/^const Version = "\(.*\)"/\1/p' version.go)
NFPM          = $(GO) tool -modfile=tools/nfpm/go.mod nfpm

# The times of files are that of the commit: the same commit gives the same bytes.
## dist: archives, deb and rpm for amd64 and arm64, with checksums, into bin/dist
.PHONY: dist dist-amd64 dist-arm64 dist-test
dist dist-amd64 dist-arm64: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
dist dist-amd64 dist-arm64: export GOAMD64 = v1
dist:
	@[ "$$($(GO) env GOHOSTARCH)" = amd64 ] || { echo "dist: the C libraries are built on amd64 only"; exit 1; }
	rm -rf $(DIST)
	umask 022; $(MAKE) dist-amd64 && $(MAKE) dist-arm64
	cd $(DIST) && sha256sum *.tar.gz *.deb *.rpm > SHA256SUMS
	rm -rf $(DIST)/stage
	@ls -l $(DIST)

# What cannot be built without cgo for another architecture is missing on arm64.
dist-amd64: CONTENT = The command, the C libraries with headers, manual pages.
dist-arm64: CONTENT = The command and manual pages; the C libraries are built for amd64 only.
# Without a build ID: that of the library depends on the directory of the sources.
dist-amd64: INSTALL = install LIB=$(DIST)/stage/lib LDFLAGS=-s CORE_LDFLAGS=-buildid=
dist-arm64: INSTALL = install-command
dist-amd64 dist-arm64: dist-%:
	CGO_ENABLED=0 GOARCH=$* $(GO) build -trimpath -ldflags "-s -w" -o $(DIST)/stage/command/$*/culvert ./cmd/culvert
	$(MAKE) $(INSTALL) DESTDIR=$(DIST)/stage/$* PREFIX=/usr INSTALL_COMMAND=$(DIST)/stage/command/$*/culvert
	$(GO) run ./internal/dist check internal/dist/files.txt $* $(DIST)/stage/$*/usr
	find $(DIST)/stage/$* -exec touch -h -d @$$SOURCE_DATE_EPOCH {} +
	tar -C $(DIST)/stage/$*/usr --sort=name --owner=0 --group=0 --numeric-owner --format=gnu \
		--transform 'flags=rH;s,^\.,culvert-$(DIST_VERSION)-linux-$*,' -cf - . | gzip -9n > $(DIST)/culvert-$(DIST_VERSION)-linux-$*.tar.gz
	deb=libc6; rpm=glibc; if [ $* = amd64 ]; then \
		glibc=$$($(GO) run ./internal/dist glibc $$(find $(DIST)/stage/$*/usr/lib/culvert -type f)) || exit 1; \
		deb="libc6 (>= $$glibc)"; rpm="glibc >= $$glibc"; fi; \
	sed -e 's|@ARCH@|$*|; s|@VERSION@|$(DIST_VERSION)|; s|@STAGE@|$(DIST)/stage/$*|; s|@CONTENT@|$(CONTENT)|' \
		-e "s|@MTIME@|$$(date -u -d @$$SOURCE_DATE_EPOCH +%Y-%m-%dT%H:%M:%SZ)|; s|@DEPENDS_DEB@|$$deb|; s|@DEPENDS_RPM@|$$rpm|" \
		internal/dist/nfpm.yaml.in > $(DIST)/stage/$*.yaml
	$(NFPM) package -f $(DIST)/stage/$*.yaml -p deb -t $(DIST)/
	$(NFPM) package -f $(DIST)/stage/$*.yaml -p rpm -t $(DIST)/

## dist-test: make dist twice and compare the bytes
dist-test:
	$(MAKE) dist DIST=bin/dist-again
	$(MAKE) dist
	diff bin/dist-again/SHA256SUMS $(DIST)/SHA256SUMS
	cd $(DIST) && sha256sum -c SHA256SUMS
	rm -rf bin/dist-again

# Packages that need neither a GPU nor what the emulator lacks: mappings at fixed addresses
# (mmap fails with EAGAIN), programs that start themselves, and time; with
# the tag nodl, because others need a C library for arm64.
ARM64_PKGS  ?= ./route ./gpu/cuda ./internal/abi/... ./internal/atomicfile ./internal/bench/fiojob ./internal/bench/html ./internal/bench/report \
	./internal/blockstack ./internal/cgroup ./internal/crc32c ./internal/cufileconf ./internal/human ./internal/limit ./internal/ptx ./internal/tune
QEMU_ARM64  ?= $(shell command -v qemu-aarch64-static || command -v qemu-aarch64)

## test-arm64: tests of packages on arm64, by QEMU's user-mode emulation
.PHONY: test-arm64
test-arm64:
	@if [ -z "$(QEMU_ARM64)" ]; then echo "skipped: no qemu-aarch64-static (apt-get install qemu-user)"; else \
		CGO_ENABLED=0 GOARCH=arm64 $(GO) test -tags nodl -count=1 -timeout $(HANG) -exec $(QEMU_ARM64) $(ARM64_PKGS); fi

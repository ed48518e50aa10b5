# The lab: the project's tests on a real Linux kernel under QEMU. docs/lab.md
# tells more.

LAB         := bin/lab
LAB_DEPS    := qemu-system-x86_64:qemu-system-x86 busybox:busybox-static depmod:kmod xz:xz-utils mkfs.xfs:xfsprogs mkfs.ext4:e2fsprogs
# libibverbs with the part for software RoCE, and perftest, for the guest.
LAB_VERBS   := ibverbs-providers perftest
LAB_KDEPS   := flex:flex bison:bison bc:bc gcc:gcc make:make
# Flags of lab suites, such as LABFLAGS='-run peer' or LABFLAGS=-json.
LABFLAGS    ?=

# $(call lab_install,program:package ...,packages without a program) installs
# what is missing, where apt and the rights for it are there.
define lab_install
	@PATH="$$PATH:/usr/sbin:/sbin"; missing=""; \
	for d in $(1); do command -v $${d%%:*} >/dev/null || missing="$$missing $${d#*:}"; done; \
	for p in $(2); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "lab: installing$$missing"; \
		apt-get update -qq -o Acquire::Retries=3 && DEBIAN_FRONTEND=noninteractive apt-get install -o Acquire::Retries=3 -y -qq --no-install-recommends $$missing >/dev/null; \
	else echo "lab: missing packages:$$missing" >&2; exit 1; fi
endef

## lab: the suites on a real Linux kernel under QEMU
.PHONY: lab
lab: lab-deps $(LAB)
	@$(LAB) suites $(LABFLAGS)

# What the kernel of CI lacks: NFS, control groups for memory, memory nodes, and layers
# such as dm-crypt, RAID and btrfs.
LAB_DEBIAN  := ^(cache/.*|ring/nodes|stacks|cufile/ext4/512)$$

## lab-debian: suites for NFS, memory nodes, control groups and block stacks, on Debian's newest kernel (100 MB)
.PHONY: lab-debian
lab-debian: lab-deps $(LAB)
	@CULVERT_LAB_KERNEL=debian $(LAB) suites -run '$(LAB_DEBIAN)' $(LABFLAGS)

## lab-soak: the same without bounds: every power cut, nothing short
.PHONY: lab-soak
lab-soak: lab-deps $(LAB)
	@$(LAB) suites -soak $(LABFLAGS)

## lab-shell: a prompt in a guest, with culvert there
.PHONY: lab-shell
lab-shell: lab-deps $(LAB)
	@$(LAB) shell $(LABFLAGS)

## lab-kernel: build the kernel with peer-to-peer DMA, once (10 to 15 minutes)
.PHONY: lab-kernel
lab-kernel:
	$(call lab_install,$(LAB_KDEPS),libelf-dev libssl-dev)
	@lab/kernel.sh

.PHONY: lab-deps
lab-deps:
	$(call lab_install,$(LAB_DEPS),)
	@dpkg -s $(LAB_VERBS) >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && apt-get update -qq -o Acquire::Retries=3 && \
		DEBIAN_FRONTEND=noninteractive apt-get install -o Acquire::Retries=3 -y -qq --no-install-recommends $(LAB_VERBS) >/dev/null; } || \
		echo "lab: not all of $(LAB_VERBS) are there: suites that need them will be skipped"

# Always: the go command knows best what is out of date.
.PHONY: $(LAB)
$(LAB):
	@CGO_ENABLED=0 $(GO) build -o $@ ./lab/cmd/lab

## lab-mutants: edits that break the lab or what it tests, and must be noticed
.PHONY: lab-mutants
lab-mutants: lab-deps
	@$(GO) run ./internal/quality/mutants lab/mutants.txt

# The C libraries: lib/libcufile.so.0, lib/libgdrapi.so.2 and the Go core lib/libculvert.so, and the
# software machine's libcuda, libcudart, libibverbs and device nodes in lib/soft. Included by the Makefile at
# the root; needs gcc and Go.

ifeq ($(origin CC),default)
CC      := gcc
endif
LIB     ?= lib
CLIB_CFLAGS = -std=gnu11 -O2 -g -flto -fPIC -fvisibility=hidden -Wall -Wextra -Werror -Iclib/include
# Preloaded libraries are mapped by each process that a program starts: code and constants
# share a segment, which saves two mappings. Zig, which links the wheel, cannot do that.
ONE_SEGMENT ?= -Wl,-z,noseparate-code
CLIB_LDFLAGS = -shared -Wl,-z,nodelete -Wl,-z,defs -Wl,-z,now $(ONE_SEGMENT) -Wl,--as-needed -pthread -ldl $(LDFLAGS)
# Those of the software machine also do without a read-only table of addresses, which is a
# system call and a mapping more. They are for tests; libcufile keeps it.
SOFT_LDFLAGS = $(CLIB_LDFLAGS) -Wl,-z,norelro
CLIB_DEPS = $(wildcard clib/shim/*.h clib/include/*.h clib/include/*/*.h) clib/shim/gocore.c

## lib: the C libraries, into lib/
.PHONY: lib lib-core lib-clean
lib: lib-core $(LIB)/libcufile.so $(LIB)/watch/libcufile.so $(LIB)/soft/libcuda.so $(LIB)/soft/libcudart.so $(LIB)/soft/libcudart.so.12 $(LIB)/soft/libibverbs.so $(LIB)/soft/libculvert-dev.so $(LIB)/libgdrapi.so

# The go command rebuilds only what is stale. CORE_LDFLAGS are more flags of its linker.
lib-core:
	@mkdir -p $(LIB)/soft
	CGO_ENABLED=1 go build -buildmode=c-shared -trimpath \
		-ldflags "-s -w $(CORE_LDFLAGS) -X runtime.godebugDefault=gcshrinkstackoff=1 -extldflags '-Wl,-soname,libculvert.so -Wl,--version-script=$(CURDIR)/clib/core/core.map $(LDFLAGS)'" \
		-o $(LIB)/libculvert.so ./clib/core
	@rm -f $(LIB)/libculvert.h

$(LIB)/libcufile.so.0: clib/shim/cufile.c clib/shim/cufile_local.c clib/shim/other.c clib/shim/lease.c clib/shim/cufile.map $(CLIB_DEPS)
	@mkdir -p $(@D)
	$(CC) $(CLIB_CFLAGS) -o $@ clib/shim/cufile.c clib/shim/cufile_local.c clib/shim/other.c clib/shim/lease.c clib/shim/gocore.c $(CLIB_LDFLAGS) \
		-Wl,-soname,libcufile.so.0 -Wl,--version-script=clib/shim/cufile.map

# The libcufile that records the calls and forwards them, for "culvert run --report".
$(LIB)/watch/libcufile.so.0: clib/shim/watch.c clib/shim/watch_local.c clib/shim/cufile.map clib/shim/watch_local.h clib/shim/record.h $(CLIB_DEPS)
	@mkdir -p $(@D)
	$(CC) $(CLIB_CFLAGS) -o $@ clib/shim/watch.c clib/shim/watch_local.c $(CLIB_LDFLAGS) \
		-Wl,-soname,libcufile.so.0 -Wl,--version-script=clib/shim/cufile.map

$(LIB)/soft/libcuda.so.1: clib/shim/cuda.c clib/shim/cuda_local.c clib/shim/cuda.map $(CLIB_DEPS)
	@mkdir -p $(@D)
	$(CC) $(CLIB_CFLAGS) -o $@ clib/shim/cuda.c clib/shim/cuda_local.c clib/shim/gocore.c $(SOFT_LDFLAGS) \
		-Wl,-soname,libcuda.so.1 -Wl,--version-script=clib/shim/cuda.map

# NVIDIA's libcudart gives its symbols a version named after the library, which
# programs linked against it need.
$(LIB)/soft/libcudart.so.%: clib/shim/cudart.c clib/shim/cudart_local.c clib/shim/cudart.map $(CLIB_DEPS)
	@mkdir -p $(@D)
	sed 's/@NODE@/libcudart.so.$*/' clib/shim/cudart.map > $@.map
	$(CC) $(CLIB_CFLAGS) -DCULVERT_CUDART=$* -o $@ clib/shim/cudart.c clib/shim/cudart_local.c clib/shim/gocore.c \
		$(SOFT_LDFLAGS) -Wl,-soname,libcudart.so.$* -Wl,--version-script=$@.map
	@rm -f $@.map

VERBS = clib/shim/verbs.c $(wildcard clib/shim/ibv_*.c)
$(LIB)/soft/libibverbs.so.1: $(VERBS) clib/shim/verbs.map $(CLIB_DEPS)
	@mkdir -p $(@D)
	$(CC) $(CLIB_CFLAGS) -o $@ $(VERBS) clib/shim/gocore.c $(SOFT_LDFLAGS) \
		-Wl,-soname,libibverbs.so.1 -Wl,--version-script=clib/shim/verbs.map

# The functions of the C library, for the software machine's device nodes; preloaded. The
# headers declare that no path is NULL, and so would have the check of it removed.
DEV = clib/shim/dev.c $(wildcard clib/shim/dev_*.c)
$(LIB)/soft/libculvert-dev.so: $(DEV) clib/shim/dev.map $(CLIB_DEPS)
	@mkdir -p $(@D)
	$(CC) $(CLIB_CFLAGS) -fno-delete-null-pointer-checks -o $@ $(DEV) clib/shim/gocore.c $(SOFT_LDFLAGS) \
		-Wl,-soname,libculvert-dev.so -Wl,--version-script=clib/shim/dev.map

# GDRCopy's library; in 2.6 it has no symbol versions.
$(LIB)/libgdrapi.so.2: clib/shim/gdrapi.c clib/shim/gdrapi_local.c clib/shim/gdrapi.map $(CLIB_DEPS)
	@mkdir -p $(@D)
	$(CC) $(CLIB_CFLAGS) -o $@ clib/shim/gdrapi.c clib/shim/gdrapi_local.c clib/shim/gocore.c $(CLIB_LDFLAGS) \
		-Wl,-soname,libgdrapi.so.2 -Wl,--version-script=clib/shim/gdrapi.map

# The names for -lcufile, -lgdrapi, -lcuda, -lcudart and -libverbs; by that of libcufile programs
# also load it themselves.
$(LIB)/libcufile.so: $(LIB)/libcufile.so.0
	ln -sf $(<F) $@
$(LIB)/watch/libcufile.so: $(LIB)/watch/libcufile.so.0
	ln -sf $(<F) $@
$(LIB)/libgdrapi.so: $(LIB)/libgdrapi.so.2
	ln -sf $(<F) $@
$(LIB)/soft/libcuda.so: $(LIB)/soft/libcuda.so.1
	ln -sf $(<F) $@
$(LIB)/soft/libcudart.so: $(LIB)/soft/libcudart.so.13
	ln -sf $(<F) $@
$(LIB)/soft/libibverbs.so: $(LIB)/soft/libibverbs.so.1
	ln -sf $(<F) $@

# The C programs, without a path to any library: "culvert run" sets it.
BIN ?= bin
PROGRAMS = rw rw++ strrev pinned uvm mapped archive
PROGRAM_FLAGS = -O2 -pthread -Wall -Wextra -Werror -Iclib/include
PROGRAM_LIBS = -L$(LIB) -L$(LIB)/soft -lcufile -lcudart -lcuda

## programs: the C programs, into bin/programs
.PHONY: programs
programs: $(PROGRAMS:%=$(BIN)/programs/%)

$(BIN)/programs/%: clib/programs/%.c $(wildcard clib/programs/*.h clib/include/*.h) | lib
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(PROGRAM_FLAGS) -o $@ $< $(PROGRAM_LIBS)

$(BIN)/programs/rw++: clib/programs/rw.c $(wildcard clib/include/*.h) | lib
	@mkdir -p $(@D)
	$(CXX) -x c++ -std=gnu++17 $(PROGRAM_FLAGS) -o $@ $< -x none $(PROGRAM_LIBS)

# Third-party Python programs, in their own environment (88 MB from PyPI, of which NIXL is
# 59 MB); python.mk has that of torch.
## clients: cuda-python, KvikIO, NIXL, torch and fastsafetensors from PyPI, for the tests with third-party programs
.PHONY: clients
clients: $(BIN)/clients/stamp

$(BIN)/clients/stamp: clib/clients/requirements.txt
	python3 -m venv $(BIN)/clients
	$(BIN)/clients/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	touch $@

# What programs/hardware.sh and versus.sh need on a machine with a GPU and without Go: our
# libcufile and Go core, the programs, the call-by-call tests and their results.
## lib-hardware: what the C programs need on a machine with a GPU, into bin/hardware
.PHONY: lib-hardware
lib-hardware: lib programs
	rm -rf $(BIN)/hardware && mkdir -p $(BIN)/hardware/lib
	cp $(LIB)/libcufile.so.0 $(LIB)/libculvert.so $(BIN)/hardware/lib
	cp $(PROGRAMS:%=$(BIN)/programs/%) clib/programs/*.sh clib/programs/stock.json clib/clients/*.py clib/testdata/*.txt $(BIN)/hardware
	CGO_ENABLED=0 go build -trimpath -o $(BIN)/hardware/cost-go ./clib/cost
	for p in driver runtime misuse fork quiet stress context cost lease leases host signals cancel streams later blocks; do \
		$(CC) -std=gnu11 $(PROGRAM_FLAGS) -pthread -Wl,--as-needed -o $(BIN)/hardware/$$p clib/testdata/$$p.c $(PROGRAM_LIBS) || exit 1; done
	go run ./clib/differential cases $(BIN)/hardware/cases.txt
	$(CC) -std=gnu11 $(PROGRAM_FLAGS) -o $(BIN)/hardware/play clib/testdata/differential/*.c -L$(LIB)/soft -lcuda -ldl
	$(CC) -std=gnu11 $(PROGRAM_FLAGS) -o $(BIN)/hardware/pace clib/testdata/pace.c -L$(LIB)/soft -lcuda -ldl
	$(CC) -std=gnu11 $(PROGRAM_FLAGS) -o $(BIN)/hardware/order clib/testdata/order.c -L$(LIB)/soft -lcuda -ldl
	$(CC) -std=gnu11 $(PROGRAM_FLAGS) -DNO_VECTOR -o $(BIN)/hardware/misuse-vendor clib/testdata/misuse.c $(PROGRAM_LIBS)

# Programs of others, for a machine with a GPU and no network. fio is nobody's to
# distribute here: FIO is the path of one with the libcufile engine, if you have one.
FIO ?=
CLIENTS_PYTHON ?= 3.12
CLIENTS_KIT = $(BIN)/clients-hardware

## clients-hardware: fio, NIXL, InstantTensor, fastsafetensors and ours, to be measured on a machine with a GPU (FIO=, CLIENTS_PYTHON=)
.PHONY: clients-hardware
clients-hardware: lib
	rm -rf $(CLIENTS_KIT) && mkdir -p $(CLIENTS_KIT)/lib/watch $(CLIENTS_KIT)/culvert $(CLIENTS_KIT)/clients
	cp $(LIB)/libcufile.so.0 $(LIB)/libculvert.so $(CLIENTS_KIT)/lib
	cp $(LIB)/watch/libcufile.so.0 $(CLIENTS_KIT)/lib/watch
	cp clib/clients/torch_gds.py clib/clients/nixl_client.py $(CLIENTS_KIT)/clients
	cp python/culvert/*.py $(CLIENTS_KIT)/culvert
	cp clib/clients/hardware/run.sh clib/clients/hardware/bench.py clib/clients/hardware/table.py \
		clib/clients/hardware/nixl_client.py clib/clients/hardware/loader.py $(CLIENTS_KIT)
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $(CLIENTS_KIT)/culvert-command ./cmd/culvert
	$(CC) -std=gnu11 $(PROGRAM_FLAGS) -o $(CLIENTS_KIT)/blocks clib/clients/hardware/blocks.c $(PROGRAM_LIBS)
	if [ -n "$(FIO)" ]; then install -s $(FIO) $(CLIENTS_KIT)/fio; fi
	python3 clib/clients/hardware/pack.py $(CLIENTS_KIT)/wheels $(CLIENTS_PYTHON) $$(grep -v '^#' clib/clients/hardware/requirements.txt)

# The libraries have their own directory, because all programs would use a
# libcuda.so.1 in a search path. "culvert run" and pkg-config know the directory.
# For the same reason the names of NVIDIA's tools are links in a directory of their own.
PREFIX ?= /usr/local
INSTALL_ROOT = $(DESTDIR)$(PREFIX)
# The command to install. One for another architecture cannot write its manual pages:
# $(BIN)/culvert does.
INSTALL_COMMAND ?= $(BIN)/culvert
INSTALL_DOC = $(INSTALL_ROOT)/share/doc/culvert

## install: command, libraries, headers, manual pages and completions under PREFIX
.PHONY: install install-command install-libraries uninstall
install: install-command install-libraries

install-command:
	CGO_ENABLED=0 go build -trimpath -o $(BIN)/culvert ./cmd/culvert
	install -d $(INSTALL_ROOT)/bin $(INSTALL_ROOT)/lib/culvert/gds $(INSTALL_DOC)
	install $(INSTALL_COMMAND) $(INSTALL_ROOT)/bin/culvert
	for name in gdsio gdscheck gds_stats gdsio_verify; do ln -sf ../../../bin/culvert $(INSTALL_ROOT)/lib/culvert/gds/$$name || exit 1; done
	install -d $(INSTALL_ROOT)/share/man/man1 $(INSTALL_ROOT)/share/bash-completion/completions $(INSTALL_ROOT)/share/zsh/site-functions $(INSTALL_ROOT)/share/fish/vendor_completions.d
	$(BIN)/culvert man $(INSTALL_ROOT)/share/man/man1
	$(BIN)/culvert completion bash > $(INSTALL_ROOT)/share/bash-completion/completions/culvert
	$(BIN)/culvert completion zsh > $(INSTALL_ROOT)/share/zsh/site-functions/_culvert
	$(BIN)/culvert completion fish > $(INSTALL_ROOT)/share/fish/vendor_completions.d/culvert.fish
	install -m 644 LICENSE NOTICE THIRD_PARTY_NOTICES.md $(INSTALL_DOC)
	go run ./internal/dist sbom $(INSTALL_COMMAND) > $(INSTALL_DOC)/culvert.spdx.json

install-libraries: lib
	install -d $(INSTALL_ROOT)/lib/culvert/soft $(INSTALL_ROOT)/lib/culvert/watch $(INSTALL_ROOT)/lib/pkgconfig $(INSTALL_ROOT)/include/culvert $(INSTALL_DOC)
	cp -P $(LIB)/*.so* $(INSTALL_ROOT)/lib/culvert
	cp -P $(LIB)/soft/*.so* $(INSTALL_ROOT)/lib/culvert/soft
	cp -P $(LIB)/watch/*.so* $(INSTALL_ROOT)/lib/culvert/watch
	install -m 644 clib/include/*.h $(INSTALL_ROOT)/include/culvert
	install -D -m 644 clib/include/infiniband/verbs.h $(INSTALL_ROOT)/include/culvert/infiniband/verbs.h
	version=$$(sed -n 's/^const Version = "\(.*\)"/\1/p' version.go); \
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$version|" clib/culvert.pc.in > $(INSTALL_ROOT)/lib/pkgconfig/culvert.pc
	go run ./internal/dist sbom $(LIB)/libculvert.so > $(INSTALL_DOC)/libculvert.spdx.json

## uninstall: remove what install put under PREFIX
uninstall:
	rm -rf $(INSTALL_ROOT)/lib/culvert $(INSTALL_ROOT)/include/culvert $(INSTALL_DOC)
	rm -f $(INSTALL_ROOT)/bin/culvert $(INSTALL_ROOT)/lib/pkgconfig/culvert.pc $(INSTALL_ROOT)/share/man/man1/culvert.1 $(INSTALL_ROOT)/share/man/man1/culvert-*.1 \
		$(INSTALL_ROOT)/share/bash-completion/completions/culvert $(INSTALL_ROOT)/share/zsh/site-functions/_culvert $(INSTALL_ROOT)/share/fish/vendor_completions.d/culvert.fish

lib-clean:
	rm -rf $(LIB)

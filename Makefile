# `make demo` shows what Hugewise does, `make test` proves that it does. Both see to their tools.

PREFIX ?= /usr/local
SECONDS ?= 10
CARGO_TARGET_DIR ?= target
cargo := scripts/tools rust cc -- cargo
# Maven finds a JDK 25 by itself, whatever it runs on.
maven := scripts/tools maven jdk25 -- mvn --batch-mode --quiet --file java/pom.xml -Dstyle.color=never
checked := scripts/tools rust lints cc -- cargo
# The binary is left out: its comments are the text of --help, not of rustdoc.
document := doc --workspace --exclude hugewise --no-deps --locked
binary := $(CARGO_TARGET_DIR)/release/hugewise
library := $(CARGO_TARGET_DIR)/release/libhugewise
header := crates/memory-c/include/hugewise.h
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
share := $(DESTDIR)$(PREFIX)/share

.DEFAULT_GOAL := help
.PHONY: help demo test test-java java build fmt lint doc bench bench-java fuzz clean install install-c

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## compare base pages with huge pages, on this machine
	@scripts/tools rust cc jdk
	@$(cargo) build --release --locked -p hugewise
# Exit status 1 is a negative verdict: an answer, too.
	@scripts/tools jdk -- $(binary) compare $(ARGS) || [ $$? -eq 1 ]

test: ## formatting, lints, documentation, the C comparison, every test, of Java too
	@scripts/tools rust lints cc jdk
	$(checked) fmt --all --check
	$(checked) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(cargo) $(document)
	scripts/tools cc -- benchmarks/touch/build
	$(cargo) test --workspace --locked
	$(MAKE) test-java

test-java: ## of that, the library for Java alone
	$(maven) install
	scripts/tools maven jdk25 -- java/try-jar

java: ## the library for Java, into the local Maven repository
	$(maven) install -DskipTests

# Only without the lib, which nobody needs here, the libraries for C are optimised as a whole.
build: ## the release binary and the libraries for C, in target/release
	$(cargo) build --release --locked -p hugewise
	$(cargo) rustc --release --locked -p hugewise-memory-c --crate-type cdylib --crate-type staticlib

fmt: ## format the code
	$(checked) fmt --all

lint: ## lints, warnings as errors
	$(checked) clippy --workspace --all-targets --locked -- -D warnings

doc: ## the documentation of the crates
	$(cargo) $(document)

bench: build ## the native touch loop against a plain C loop (minutes; RUN=--quick for a look)
	scripts/tools rust cc python -- benchmarks/touch/run --hugewise $(binary) $(RUN)

# An own RUN, also an empty one, runs the whole: --rounds, --parts.
bench-java: RUN ?= --quick
bench-java: build java ## the JMH benchmarks, with the coverage that proves each (minutes; RUN= for all of them)
	scripts/tools jdk25 python -- benchmarks/java/run --hugewise $(binary) $(RUN)

fuzz: ## every parser with random input, for SECONDS=10 each
	scripts/tools rust cc c++ -- fuzz/run $(SECONDS)

$(binary) $(library).so $(library).a:
	$(MAKE) build

# Builds nothing where there is a binary, so that `make build && sudo make install` works without
# a toolchain for root.
install: | $(binary) install-c ## binary, man pages, completions, C library and licence, to PREFIX=/usr/local
	install -D -m 755 $(binary) $(DESTDIR)$(PREFIX)/bin/hugewise
	install -d $(share)/man/man1
	$(binary) man --dir $(share)/man/man1
	install -d $(share)/bash-completion/completions $(share)/zsh/site-functions $(share)/fish/vendor_completions.d
	$(binary) completions bash > $(share)/bash-completion/completions/hugewise
	$(binary) completions zsh > $(share)/zsh/site-functions/_hugewise
	$(binary) completions fish > $(share)/fish/vendor_completions.d/hugewise.fish
	install -D -m 644 LICENSE $(share)/doc/hugewise/LICENSE

# The number in the library's soname.
install-c: abi = $(shell sed -n 's/^.define HUGEWISE_ABI_VERSION //p' $(header))
install-c: | $(library).so $(library).a ## of that, the C library, its header and pkg-config file alone
	install -D -m 644 $(header) $(DESTDIR)$(INCLUDEDIR)/hugewise.h
	install -D -m 755 $(library).so $(DESTDIR)$(LIBDIR)/libhugewise.so.$(abi)
	ln -sf libhugewise.so.$(abi) $(DESTDIR)$(LIBDIR)/libhugewise.so
	install -m 644 $(library).a $(DESTDIR)$(LIBDIR)/libhugewise.a
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)|' \
		crates/memory-c/hugewise.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/hugewise.pc

clean: ## all that was built
	rm -rf $(CARGO_TARGET_DIR) fuzz/target java/*/target

# Targets install missing tools first: see scripts/tools.

PREFIX ?= /usr/local
SECONDS ?= 10
CARGO_TARGET_DIR ?= target
cargo := scripts/tools rust cc -- cargo
# Maven selects a JDK 25 itself, whatever JVM it runs on.
maven := scripts/tools maven jdk25 -- mvn --batch-mode --quiet --file java/pom.xml -Dstyle.color=never
deployed := java/target/repository
deploy := -DaltDeploymentRepository=deployed::file:$(CURDIR)/$(deployed)
checked := scripts/tools rust lints cc -- cargo
# Without the binary, whose doc comments are the text of --help, not rustdoc.
document := doc --workspace --exclude hugewise --no-deps --locked
binary := $(CARGO_TARGET_DIR)/release/hugewise
library := $(CARGO_TARGET_DIR)/release/libhugewise
header := crates/memory-c/include/hugewise.h
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
share := $(DESTDIR)$(PREFIX)/share

.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-java test-java-pools races test-jcache test-reproducible release-java java build fmt lint doc bench bench-java bench-cache demo-cache oltp docs-data fuzz clean install install-c

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## compare base pages with huge pages on this machine
	@scripts/tools rust cc jdk
	@$(cargo) build --release --locked -p hugewise
# Exit statuses 1 and 3 are verdicts, not failures.
	@scripts/tools jdk -- $(binary) compare $(ARGS) || case $$? in 1 | 3) ;; *) exit 2 ;; esac

test: ## check formatting, lints and documentation; run all tests, including Java's
	@scripts/tools rust lints cc jdk
	$(checked) fmt --all --check
	$(checked) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(cargo) $(document)
	scripts/tools cc -- benchmarks/touch/build
	scripts/tools python -- benchmarks/docs-data --check
	scripts/test

test-full: ## run what 'make test' leaves out, with its tools, on a machine of its own (hours; PARTS= selects)
	@scripts/tools rust cc c++ jdk
	scripts/test-full $(PARTS)

# Deploys the artefacts of a release, without its conditions. OPTIONS of Maven can select tests.
test-java: ## run only the tests of the Java library
	rm -rf $(deployed) java/*/target/surefire-reports
	$(maven) -Prelease -Denforcer.skip -Dmaven.install.skip $(OPTIONS) deploy $(deploy)
	scripts/tools python -- java/skips
	scripts/tools maven jdk25 python -- java/try-jar $(deployed)

# Those that change pools, or may take pages of one, with the classes of test-java: the phase is after packaging, so
# that modules use the same jars. Few tests in each JVM: the faster compiler takes less time.
test-java-pools:
	rm -rf java/*/target/surefire-reports
	$(maven) --projects '!jmh,!races,!benchmarks,!services' -Dgroups=pools -Dexec.skip -Dtest.flags=-XX:TieredStopAtLevel=1 package
	scripts/tools python -- java/skips

races: ## run the race tests of the Java library (MODE=quick, default, tough or stress)
	$(maven) --projects races --also-make -Dmaven.test.skip.exec -Draces.mode=$(or $(MODE),default) test

# The kit has a licence of its own and is no dependency of the build.
test-jcache: ## run the compatibility kit of JCache (downloads it)
	$(maven) --projects jcache --also-make -DskipTests install
	$(maven) --projects jcache -Ptck verify

test-reproducible: ## build the Java library twice and compare the jars byte by byte (minutes)
	java/compare-builds

release-java: ## write a release of the Java library to java/target (docs/releasing.md; KEY= signs it)
	rm -rf $(deployed)
	umask 022 && $(maven) -Prelease -Dmaven.install.skip clean deploy $(deploy) $(if $(KEY),-Dgpg.keyname=$(KEY))
	scripts/tools maven jdk25 python -- java/try-jar $(deployed)

java: ## install the Java library in the local Maven repository
	$(maven) install -DskipTests

# Building only cdylib and staticlib, without lib, allows link-time optimisation of the C libraries.
build: ## build the release binary and the C libraries in target/release
	$(cargo) build --release --locked -p hugewise
	$(cargo) rustc --release --locked -p hugewise-memory-c --crate-type cdylib --crate-type staticlib

fmt: ## format the code
	$(checked) fmt --all

lint: ## run the lints, warnings as errors
	$(checked) clippy --workspace --all-targets --locked -- -D warnings

doc: ## build the documentation of the crates
	$(cargo) $(document)

bench: build ## compare the native touch loop with plain C (minutes; RUN=--quick for a test)
	scripts/tools rust cc python -- benchmarks/touch/run --hugewise $(binary) $(RUN)

# A given RUN replaces --quick, also an empty one; other options: --pairs, --parts.
bench-java: RUN ?= --quick
bench-java: build java ## run the JMH benchmarks with their coverage (minutes; RUN= for all)
	scripts/tools jdk25 python -- benchmarks/java/run --hugewise $(binary) $(RUN)

bench-cache: RUN ?= --quick
bench-cache: build java ## compare the Java cache with other caches (minutes; RUN= for all, which needs 9 GiB)
	scripts/tools jdk25 maven python -- benchmarks/cache/run --hugewise $(binary) $(RUN)

# The files of the result are in target/, not among the recorded ones.
demo-cache: build java ## read a store larger than its cache, on base and on huge pages (5 minutes; ARGS='--gib 4')
	scripts/tools jdk25 maven python -- benchmarks/demo-cache/run --hugewise $(binary) --out target/demo-cache.json $(ARGS)

# Called again, it adds the rounds that the file of rounds lacks.
oltp: build ## compare a JVM service with PostgreSQL on base and on huge pages (at most 2 hours; ARGS='--heaps 1 --pairs 6')
	scripts/tools jdk maven postgres python -- benchmarks/oltp/run --hugewise $(binary) --resume target/oltp.rounds --out target/oltp.json $(ARGS)

docs-data: ## write the figures of the documentation from the results of the benchmarks
	scripts/tools python -- benchmarks/docs-data

fuzz: ## fuzz every parser for SECONDS=10 each
	scripts/tools rust cc c++ -- fuzz/run $(SECONDS)

$(binary) $(library).so $(library).a:
	$(MAKE) build

# Order-only: does not rebuild an existing binary, so `make build && sudo make install` needs no toolchain
# for root.
install: | $(binary) install-c ## install binary, man pages, completions, C library and licence in PREFIX=/usr/local
	install -D -m 755 $(binary) $(DESTDIR)$(PREFIX)/bin/hugewise
	install -d $(share)/man/man1
	$(binary) man --dir $(share)/man/man1
	install -d $(share)/bash-completion/completions $(share)/zsh/site-functions $(share)/fish/vendor_completions.d
	$(binary) completions bash > $(share)/bash-completion/completions/hugewise
	$(binary) completions zsh > $(share)/zsh/site-functions/_hugewise
	$(binary) completions fish > $(share)/fish/vendor_completions.d/hugewise.fish
	install -D -m 644 LICENSE $(share)/doc/hugewise/LICENSE

# Version in the library's soname.
install-c: abi = $(shell sed -n 's/^.define HUGEWISE_ABI_VERSION //p' $(header))
install-c: | $(library).so $(library).a ## install only the C library, its header and pkg-config file
	install -D -m 644 $(header) $(DESTDIR)$(INCLUDEDIR)/hugewise.h
	install -D -m 755 $(library).so $(DESTDIR)$(LIBDIR)/libhugewise.so.$(abi)
	ln -sf libhugewise.so.$(abi) $(DESTDIR)$(LIBDIR)/libhugewise.so
	install -m 644 $(library).a $(DESTDIR)$(LIBDIR)/libhugewise.a
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)|' \
		crates/memory-c/hugewise.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/hugewise.pc

clean: ## delete all build output
	rm -rf $(CARGO_TARGET_DIR) fuzz/target java/target java/*/target

# `make demo` shows what Hugewise does, `make test` proves that it does. Both see to their tools.

PREFIX ?= /usr/local
SECONDS ?= 10
CARGO_TARGET_DIR ?= target
cargo := scripts/tools rust cc -- cargo
checked := scripts/tools rust lints cc -- cargo
# The binary is left out: its comments are the text of --help, not of rustdoc.
document := doc --workspace --exclude hugewise --no-deps --locked
binary := $(CARGO_TARGET_DIR)/release/hugewise
share := $(DESTDIR)$(PREFIX)/share

.DEFAULT_GOAL := help
.PHONY: help demo test build fmt lint doc bench fuzz clean install

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## compare base pages with huge pages, on this machine
	@scripts/tools rust cc jdk
	@$(cargo) build --release --locked
# Exit status 1 is a negative verdict: an answer, too.
	@scripts/tools jdk -- $(binary) compare $(ARGS) || [ $$? -eq 1 ]

test: ## formatting, lints, documentation, the C comparison, every test
	@scripts/tools rust lints cc jdk
	$(checked) fmt --all --check
	$(checked) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(cargo) $(document)
	scripts/tools cc -- benchmarks/touch/build
	$(cargo) test --workspace --locked

build: ## the release binary, target/release/hugewise
	$(cargo) build --release --locked

fmt: ## format the code
	$(checked) fmt --all

lint: ## lints, warnings as errors
	$(checked) clippy --workspace --all-targets --locked -- -D warnings

doc: ## the documentation of the crates
	$(cargo) $(document)

bench: build ## the native touch loop against a plain C loop (minutes; RUN=--quick for a look)
	scripts/tools rust cc python -- benchmarks/touch/run --hugewise $(binary) $(RUN)

fuzz: ## every parser with random input, for SECONDS=10 each
	scripts/tools rust cc c++ -- fuzz/run $(SECONDS)

$(binary):
	$(MAKE) build

# Builds nothing where there is a binary, so that `make build && sudo make install` works without
# a toolchain for root.
install: | $(binary) ## binary, man pages, completions and licence, to PREFIX=/usr/local
	install -D -m 755 $(binary) $(DESTDIR)$(PREFIX)/bin/hugewise
	install -d $(share)/man/man1
	$(binary) man --dir $(share)/man/man1
	install -d $(share)/bash-completion/completions $(share)/zsh/site-functions $(share)/fish/vendor_completions.d
	$(binary) completions bash > $(share)/bash-completion/completions/hugewise
	$(binary) completions zsh > $(share)/zsh/site-functions/_hugewise
	$(binary) completions fish > $(share)/fish/vendor_completions.d/hugewise.fish
	install -D -m 644 LICENSE $(share)/doc/hugewise/LICENSE

clean: ## all that was built
	rm -rf $(CARGO_TARGET_DIR) fuzz/target

# The verbs of this repository. Each works on a fresh clone; the first build compiles the
# query engine, which takes 15 to 25 minutes on two cores, and every later one seconds.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# How long `make soak` looks for faults: `make soak SECONDS_TOTAL=86400`; an hour by default.
SECONDS_TOTAL ?= 3600

# What to run of `make bench` and `make conformance`: `make bench WHAT=flights`; all by default.
WHAT ?=

.PHONY: help build demo test conformance hll-js soak lint bench docs format clean

help: ## what each verb does
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the tidemill binary, in target/release
	@scripts/build.sh

demo: ## unique aircraft, delays and destinations by airport and day, from 336,776 real flights
	@scripts/demo.sh

test: ## every test: Rust, the built binary, Python, the npm package
	@scripts/test.sh

conformance: ## test suites of others: make conformance WHAT=duckdb
	@scripts/conformance.sh $(WHAT)

hll-js: ## HyperLogLog as an npm package, in packages/hll-js/dist
	@scripts/hll-js.sh

soak: ## what never ends: random queries, kills and fuzzing, for SECONDS_TOTAL seconds
	@scripts/soak.sh $(SECONDS_TOTAL)

lint: ## formatting, clippy, Python, and the rules of the dependency tree
	@scripts/lint.sh

bench: ## side by side with other engines: make bench WHAT=flights
	@python3 bench/run.py $(WHAT)

docs: ## the documentation as a site, in target/docs
	@scripts/docs.sh

format: ## formats the Rust code
	@cargo fmt --all
	@cargo fmt --manifest-path packages/hll-js/Cargo.toml

clean: ## removes everything that was built
	@cargo clean

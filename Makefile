SHELL := bash
.PHONY: help demo test check test-long bench chaos repeat crds manifests image fmt

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: ## PureLB on this machine, without Kubernetes and without root; ARGS="--once" and others go to purelb-demo
	@scripts/demo $(ARGS)

test: ## every check, with a real control plane; installs what it needs, and tells what it leaves out
	@scripts/test

test-long: ## the same and the long forms: the oldest Kubernetes, long trouble, fuzzing, repetition; writes docs/tested.md
	@PURELB_TESTED=$$(mktemp); export PURELB_TESTED; scripts/test long; code=$$?; rm -f "$$PURELB_TESTED"; exit $$code

check: ## the quick part: no control plane
	@scripts/test quick

bench: ## benchmarks, with their floors in the same run
	@eval "$$(scripts/setup)" && cargo bench --workspace

chaos: ## three allocators in trouble for ten minutes; SECONDS=N for longer, PURELB_SEED=N to see a story again
	@eval "$$(scripts/setup)" && PURELB_CHAOS_SECONDS=$(or $(SECONDS),600) cargo test -p purelb-lab --test allocator -- --nocapture whatever_happens

repeat: ## stories of lab/tests/cluster, or of SUITE, TIMES times in a row on a busy machine: make repeat PROOF="trouble upgrade" TIMES=5
	@PURELB_SUITE=$(or $(SUITE),cluster) scripts/repeat $(or $(TIMES),5) $(PROOF)

crds: ## write deploy/crds anew from the API types
	@cargo run --quiet -p purelb -- crds --dir deploy/crds

manifests: ## write the one-file installs of deploy anew from their kustomizations
	@eval "$$(scripts/setup)" && scripts/manifests

image: ## write the container image into target/image
	@scripts/setup image && cargo lab image

fmt: ## format the code
	@cargo fmt --all

.PHONY: help test check bench crds fmt

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

test: ## every check, with a real control plane; installs what it needs
	@scripts/test

check: ## the quick part: no control plane
	@scripts/test quick

bench: ## benchmarks, with their floors in the same run
	@cargo bench --workspace

crds: ## write deploy/crds anew from the API types
	@cargo run --quiet -p purelb -- crds --dir deploy/crds

fmt: ## format the code
	@cargo fmt --all

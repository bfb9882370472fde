#!/usr/bin/env bash
# Builds the release binary.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
build_binary

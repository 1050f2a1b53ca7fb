//go:build tools

// Package tools names the API server of the oldest version that PureLB supports, so that go.mod and go.sum pin it.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)

//go:build tools

// Package tools names the GoBGP that the tests run as a third peer, so that go.mod and go.sum pin it.
package tools

import (
	_ "github.com/osrg/gobgp/v4/cmd/gobgp"
	_ "github.com/osrg/gobgp/v4/cmd/gobgpd"
)

//go:build linux

// Package diff_test compares epdns with NSD, Knot and BIND. The zones that epdns hands out
// by AXFR are loaded into all three; then every name of them, and many that are not there,
// are asked of all four. What differs must be in the list in classes_test.go, which
// docs/differences.md explains. And it compares epdns with the CoreDNS of a real control
// plane, which has the same EndpointSlices; that list is in coreclasses_test.go.
//
// All of it runs in namespaces of its own (network, mounts, processes), so ports are free and
// nothing is left over.
package diff_test

import (
	"context"
	"path/filepath"
	"testing"

	"epdns/test/netns"
	"epdns/test/run"
)

// Paths from here.
const (
	repository  = "../.."
	sample      = "../../registry/manifest/sample"
	testCluster = "../../testdata/cluster"
)

// epdns is the program under test.
var epdns string

func TestMain(m *testing.M) {
	netns.Main(netns.Tests{
		Programs: programs[nsd:],
		Prepare: func(dir string) error {
			_, err := run.Build(context.Background(), repository, dir)
			return err
		},
		Run: func(dir string) (int, error) {
			epdns = filepath.Join(dir, "epdns")
			return m.Run(), nil
		},
	})
}

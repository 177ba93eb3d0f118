//go:build linux

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"epdns/test/cluster"
	"epdns/test/run"
)

// Lab is where faults are tried, one after the other. One goroutine may use it.
type Lab struct {
	// Short is whether trials are as short as still shows something.
	Short bool

	// Race is whether epdns was built with the race detector.
	Race bool

	kube     *cluster.Cluster
	args     map[cluster.Component][]string // of the components from their next start on
	world    *world
	bin      string // epdns
	token    string // of the administrator
	ca       []byte // of the API server
	dir      string
	progress io.Writer
}

// silent is the label of Nodes that are to fall silent.
const silent = "silent"

// Build builds what a lab needs into a directory: epdns, with the race detector if that is
// wanted. The control plane must have been built before.
func Build(ctx context.Context, dir string, race bool) error {
	if err := cluster.Built(cluster.Options{}); err != nil {
		return err
	}
	root, err := run.Repository()
	if err != nil {
		return err
	}
	if race {
		_, err = run.BuildRace(ctx, root, dir)
	} else {
		_, err = run.Build(ctx, root, dir)
	}
	return err
}

// Open starts a control plane with some Services. The directory is that of [Build]. Close must be
// called.
func Open(ctx context.Context, dir string, progress io.Writer) (l *Lab, err error) {
	l = &Lab{bin: filepath.Join(dir, "epdns"), dir: dir, progress: progress, args: map[cluster.Component][]string{
		// A restarted API server has to forget, and 410 to be had, without a wait of minutes.
		cluster.APIServer: {"--etcd-compaction-interval=0", "--goaway-chance=0"},
		// A Node with this label has no kubelet any more.
		cluster.Kwok: {"--manage-all-nodes=false", "--manage-nodes-with-label-selector=" + silent + "!=yes"},
	}}
	if l.kube, err = cluster.Start(ctx, cluster.Options{Nodes: 3, Args: l.args}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	admin, err := os.ReadFile(l.kube.Kubeconfig)
	if err != nil {
		return l, err
	}
	token := regexp.MustCompile(`token: (\S+)`).FindSubmatch(admin)
	if token == nil {
		return l, fmt.Errorf("%s has no token", l.kube.Kubeconfig)
	}
	l.token = string(bytes.TrimSpace(token[1]))
	if l.ca, err = os.ReadFile(filepath.Join(l.kube.Dir, "ca.crt")); err != nil {
		return l, err
	}
	l.world, err = newWorld(ctx, l.kube)
	return l, err
}

// Close ends the control plane.
func (l *Lab) Close() error { return l.kube.Stop() }

func (l *Lab) logf(format string, args ...any) {
	fmt.Fprintf(l.progress, format+"\n", args...)
}

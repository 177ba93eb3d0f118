package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"epdns/registry"
	"epdns/registry/kube"
	"epdns/registry/manifest"
)

// sourceFlags say where to read what exists, the same for every command.
type sourceFlags struct {
	manifests  string
	kubeconfig string
	context    string
	namespaces []string

	partial bool // use what is right of manifests with faults

	// How a cluster is watched; zero is for commands that do not go on for long.
	auditEvery, syncDeadline time.Duration
	massEmpty                kube.MassEmpty
}

func (f *sourceFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.manifests, "manifests", "", "read this file or directory of YAML or JSON instead of a cluster; - is standard input")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "watch the cluster that this file names")
	fl.StringVar(&f.context, "context", "", "context of the kubeconfig")
	fl.StringArrayVarP(&f.namespaces, "namespace", "n", nil, "watch this namespace only; repeat for several")
}

// notEmpty finds a file flag that was given without a file, as an unset variable of a
// shell does: it must not mean something else.
func notEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return usagef("--%s is empty", name)
		}
	}
	return nil
}

func (f *sourceFlags) check() error {
	for i, ns := range f.namespaces {
		if len(validation.IsDNS1123Label(ns)) > 0 {
			return &fault{fmt.Sprintf("source.namespaces[%d]", i), fmt.Errorf("%q is no namespace: lower-case letters, digits and dashes, at most 63", ns)}
		}
	}
	if f.manifests != "" && (f.kubeconfig != "" || f.context != "" || len(f.namespaces) > 0) {
		return &fault{"source.manifests", errors.New("not together with kubeconfig, context or namespaces (--kubeconfig, --context, --namespace)")}
	}
	return nil
}

// files are where manifests come from, for people; empty where they come from a cluster.
func (f *sourceFlags) files() string {
	if f.manifests == "-" {
		return "standard input"
	}
	return f.manifests
}

// open finds the source. Files are read once, so that their mistakes are known
// before anything else is done; where partial says so, there is a source with them. A
// pipe may take its time: ctx ends the wait.
func (f *sourceFlags) open(ctx context.Context, log *slog.Logger) (registry.Source, error) {
	if err := f.check(); err != nil {
		return nil, asFlag(err)
	}
	if f.manifests == "" {
		return kube.New(kube.Config{
			Kubeconfig: f.kubeconfig, Context: f.context, Namespaces: f.namespaces,
			AuditEvery: f.auditEvery, SyncDeadline: f.syncDeadline, MassEmpty: f.massEmpty,
		}, log)
	}
	source, err := manifest.Open(f.manifests, log)
	if err != nil {
		return nil, err
	}
	source.Partial = f.partial
	loaded := make(chan error, 1)
	go func() { loaded <- source.Load() }()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%v: not read to its end: %w", source, context.Cause(ctx))
	case err := <-loaded:
		if err != nil && !(f.partial && errors.As(err, new(manifest.Faults))) {
			return nil, err
		}
		return source, err
	}
}

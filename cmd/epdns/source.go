package main

import (
	"log/slog"

	"github.com/spf13/cobra"

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
}

func (f *sourceFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.manifests, "manifests", "", "read this file or directory of YAML or JSON instead of a cluster; - is standard input")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "watch the cluster that this file names")
	fl.StringVar(&f.context, "context", "", "context of the kubeconfig")
	fl.StringArrayVar(&f.namespaces, "namespace", nil, "watch this namespace only; repeat for several")
}

// open finds the source. Files are read once, so that their mistakes are known
// before anything else is done.
func (f *sourceFlags) open(log *slog.Logger) (registry.Source, error) {
	if f.manifests == "" {
		return kube.New(kube.Config{Kubeconfig: f.kubeconfig, Context: f.context, Namespaces: f.namespaces}, log)
	}
	if f.kubeconfig != "" || f.context != "" || len(f.namespaces) > 0 {
		return nil, usagef("--manifests cannot be given together with --kubeconfig, --context or --namespace")
	}
	source, err := manifest.Open(f.manifests, log)
	if err != nil {
		return nil, err
	}
	if err := source.Load(); err != nil {
		return nil, err
	}
	return source, nil
}

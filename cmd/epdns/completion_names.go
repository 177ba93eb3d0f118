package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"epdns/registry"
	"epdns/registry/kube"
)

// This file completes what is not known before somebody looks: Services, namespaces and
// contexts, from where the flags that stand there already say.

const (
	// completionPatience is how long somebody waits who presses TAB. What has come by then
	// is all there is.
	completionPatience = 2 * time.Second
	// mostCompletions is how many are shown: more nobody reads.
	mostCompletions = 500
)

// flagText is the value of a flag, empty where the command has none of that name.
func flagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// flagList are the values of a flag that can be repeated, each once: where something is
// completed, flags are read twice.
func flagList(cmd *cobra.Command, name string) []string {
	f := cmd.Flags().Lookup(name)
	if f == nil {
		return nil
	}
	s, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(s.GetSlice())))
}

func kubeOf(cmd *cobra.Command) kube.Config {
	return kube.Config{Kubeconfig: flagText(cmd, "kubeconfig"), Context: flagText(cmd, "context")}
}

// completionContext ends when somebody who waits has lost patience.
func completionContext(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, completionPatience)
}

// listServices are the Services that can be meant and are wanted, of one namespace if that is
// known.
func listServices(cmd *cobra.Command, namespace string, wanted func(registry.Key) bool) (all []registry.Key) {
	ctx, cancel := completionContext(cmd)
	defer cancel()
	switch server, manifests := flagText(cmd, "server"), flagText(cmd, "manifests"); {
	case server != "":
		if r, err := newRemote(server); err == nil {
			all = r.services(ctx)
		}
	case manifests == "-": // belongs to the command
	case manifests != "":
		all = manifestServices(ctx, manifests)
	default:
		if api, err := kube.NewAPI(kubeOf(cmd)); err == nil {
			api.Services(ctx, namespace, func(k registry.Key) bool {
				if wanted(k) {
					all = append(all, k)
				}
				return len(all) < mostCompletions
			})
		}
	}
	return slices.DeleteFunc(all, func(k registry.Key) bool {
		return namespace != "" && k.Namespace != namespace || !wanted(k)
	})
}

func manifestServices(ctx context.Context, manifests string) []registry.Key {
	flags := sourceFlags{manifests: manifests, partial: true}
	source, err := flags.open(ctx, quietLog())
	if source == nil || err != nil && ctx.Err() != nil {
		return nil
	}
	store := registry.NewStore(quietLog())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go source.Run(ctx, store)
	select {
	case <-ctx.Done():
		return nil
	case <-store.Synced():
		return servicesOf(store)
	}
}

// services are those of a running server that somebody is behind.
func (r *remote) services(ctx context.Context) (all []registry.Key) {
	var last registry.Key
	w := &remoteWatch{remote: r, of: target{all: true}, known: known{}, say: func(string, ...any) {}}
	w.tell = func(round round) error {
		for i := range round.changes {
			k := registry.Key{Namespace: round.changes[i].Namespace, Name: round.changes[i].Service}
			if k != last {
				all, last = append(all, k), k
			}
		}
		return errEnough
	}
	w.stream(ctx)
	return all
}

var errEnough = errors.New("that is enough")

// completeService completes a Service as watch takes it, or with a zone a name as lookup
// does.
func completeService(cmd *cobra.Command, typed, zone string) (out []string) {
	namespaces := flagList(cmd, "namespace")
	before, _, slash := strings.Cut(typed, "/")
	namespace := ""
	switch {
	case slash:
		namespace = before
	case len(namespaces) == 1:
		namespace = namespaces[0]
	}
	text := func(k registry.Key) string {
		switch {
		case slash:
		case len(namespaces) == 1:
			return k.Name
		case zone != "":
			return k.Name + "." + k.Namespace + "." + strings.TrimSuffix(zone, ".")
		}
		return k.String()
	}
	for _, k := range listServices(cmd, namespace, func(k registry.Key) bool { return strings.HasPrefix(text(k), typed) }) {
		out = append(out, text(k))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// completeNamespace completes a namespace, completeContext a context of the kubeconfig.
func completeNamespace(cmd *cobra.Command, _ []string, typed string) (out []string, _ cobra.ShellCompDirective) {
	var all []string
	if flagText(cmd, "server") == "" && flagText(cmd, "manifests") == "" {
		ctx, cancel := completionContext(cmd)
		defer cancel()
		if api, err := kube.NewAPI(kubeOf(cmd)); err == nil {
			api.Namespaces(ctx, func(name string) bool {
				if strings.HasPrefix(name, typed) {
					all = append(all, name)
				}
				return len(all) < mostCompletions
			})
		}
	} else {
		for _, k := range listServices(cmd, "", func(k registry.Key) bool { return strings.HasPrefix(k.Namespace, typed) }) {
			all = append(all, k.Namespace)
		}
	}
	return withPrefix(all, typed), cobra.ShellCompDirectiveNoFileComp
}

func completeContext(cmd *cobra.Command, _ []string, typed string) (out []string, _ cobra.ShellCompDirective) {
	return withPrefix(kube.Config{Kubeconfig: flagText(cmd, "kubeconfig")}.Contexts(), typed), cobra.ShellCompDirectiveNoFileComp
}

func withPrefix(all []string, typed string) (out []string) {
	for _, text := range all {
		if strings.HasPrefix(text, typed) {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

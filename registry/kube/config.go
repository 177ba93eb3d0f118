package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config says which cluster to watch, and what of it.
type Config struct {
	// Kubeconfig is a file. Where it is empty, the service account of the pod we
	// run in is used, else the kubeconfig that kubectl would use.
	Kubeconfig string

	// Context is a context of the kubeconfig, empty for its current one. A Context
	// means a kubeconfig: the pod's service account is then passed over.
	Context string

	// Namespaces are those to watch. None means all.
	Namespaces []string

	// SyncDeadline, AuditEvery and MassEmpty are for the Source's fields of these names. 0 is
	// the default: 10 s, DefaultAuditEvery, and for a MassEmpty whose Hold is 0
	// DefaultMassEmpty. An AuditEvery or a Hold of less than 0 is never.
	SyncDeadline, AuditEvery time.Duration
	MassEmpty                MassEmpty
}

// DefaultAuditEvery is how often what is held is compared with the cluster.
const DefaultAuditEvery = 5 * time.Minute

// DefaultMassEmpty are the Services that keep their endpoints for a while.
var DefaultMassEmpty = MassEmpty{Above: 20, Share: 0.8, Hold: 10 * time.Second}

// ErrNoCluster is why there is no source where nothing says which cluster to watch.
var ErrNoCluster = errors.New("no cluster found")

// serviceAccountToken is where a pod finds its token (rest.InClusterConfig).
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// namespaces returns the scopes to watch: sorted, each once, "" for all.
func (cfg *Config) namespaces() ([]string, error) {
	if len(cfg.Namespaces) == 0 {
		return []string{""}, nil
	}
	for _, ns := range cfg.Namespaces {
		if len(validation.IsDNS1123Label(ns)) > 0 {
			return nil, fmt.Errorf("namespace %q is not a DNS label: lower-case letters, digits and dashes", ns)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(cfg.Namespaces))), nil
}

// resolve finds the cluster. The string says which one it is, for people.
func (cfg *Config) resolve() (*rest.Config, string, error) {
	if cfg.Kubeconfig != "" {
		return cfg.fromFiles(&clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}, cfg.Kubeconfig)
	}
	pod := podState()
	if pod == "" && cfg.Context == "" {
		rc, err := rest.InClusterConfig()
		if err != nil {
			return nil, "", fmt.Errorf("configuration of this pod: %w", err)
		}
		return rc, fmt.Sprintf("cluster %s (service account of this pod)", rc.Host), nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false // said below, once and in full
	rules.MigrationRules = nil     // would write to the home directory
	var missing []string
	for _, path := range rules.Precedence {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, path)
		}
	}
	files := strings.Join(rules.Precedence, string(filepath.ListSeparator))
	if len(missing) == len(rules.Precedence) {
		if cfg.Context != "" {
			pod = "a context was asked for"
		}
		return nil, "", fmt.Errorf("%w: the pod's service account is not used (%s) and there is no kubeconfig at %s; "+
			"give --kubeconfig FILE, or --manifests DIR to do without a cluster", ErrNoCluster, pod, files)
	}
	return cfg.fromFiles(rules, files)
}

// podState says why the environment of this pod can't be used, or nothing.
func podState() string {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" || os.Getenv("KUBERNETES_SERVICE_PORT") == "" {
		return "KUBERNETES_SERVICE_HOST is not set"
	}
	if _, err := os.Stat(serviceAccountToken); err != nil {
		return "no token at " + serviceAccountToken
	}
	return ""
}

// fromFiles reads kubeconfigs. what names them in errors.
func (cfg *Config) fromFiles(rules *clientcmd.ClientConfigLoadingRules, what string) (*rest.Config, string, error) {
	raw, err := rules.Load()
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return nil, "", fmt.Errorf("kubeconfig %s: %w", what, path.Err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig %s: %w", what, oneLine(err))
	}
	name := raw.CurrentContext
	if cfg.Context != "" {
		name = cfg.Context
	}
	names := slices.Sorted(maps.Keys(raw.Contexts))
	switch {
	case len(names) == 0:
		return nil, "", fmt.Errorf("kubeconfig %s: it has no contexts", what)
	case name == "":
		return nil, "", fmt.Errorf("kubeconfig %s: it has no current context; choose one with --context (there are: %s)", what, strings.Join(names, ", "))
	case raw.Contexts[name] == nil:
		return nil, "", fmt.Errorf("kubeconfig %s: no context %q (there are: %s)", what, name, strings.Join(names, ", "))
	}
	rc, err := clientcmd.NewNonInteractiveClientConfig(*raw, name, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig %s: context %q: %w", what, name, oneLine(err))
	}
	return rc, fmt.Sprintf("cluster %s (context %s of %s)", rc.Host, name, raw.Contexts[name].LocationOfOrigin), nil
}

// oneLine keeps the error and folds its text, which client-go likes to spread.
func oneLine(err error) error {
	if err == nil || !strings.ContainsAny(err.Error(), "\n\r") {
		return err
	}
	return foldedError{err}
}

type foldedError struct{ error }

func (e foldedError) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e foldedError) Unwrap() error { return e.error }

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"epdns/registry"
)

// API answers single questions about a cluster, for tools that people use. Nothing of it is
// watched.
type API struct {
	base   *url.URL
	client *http.Client
	where  string
}

// NewAPI finds the cluster that cfg means. It opens no connection.
func NewAPI(cfg Config) (*API, error) {
	rc, where, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	rc.UserAgent = userAgent()
	rc.WarningHandler = rest.NoWarnings{}
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, oneLine(err))
	}
	base, _, err := rest.DefaultServerUrlFor(rc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, oneLine(err))
	}
	return &API{base, client, where}, nil
}

// String names the cluster and how it was found.
func (a *API) String() string { return a.where }

// Services calls each for the Services of a namespace, or where it is empty of all of them,
// until it returns false. Where there is an error, some may have been told of.
func (a *API) Services(ctx context.Context, namespace string, each func(registry.Key) bool) error {
	return a.names(ctx, "services", namespace, each)
}

// Namespaces calls each for the name of each namespace, as Services does.
func (a *API) Namespaces(ctx context.Context, each func(name string) bool) error {
	return a.names(ctx, "namespaces", "", func(k registry.Key) bool { return each(k.Name) })
}

// pageSize is how many objects are asked for at a time.
const pageSize = 500

// names lists metadata page by page.
func (a *API) names(ctx context.Context, resource, namespace string, each func(registry.Key) bool) error {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		var list metav1.PartialObjectMetadataList
		if err := a.list(ctx, resource, namespace, query, &list); err != nil {
			return err
		}
		for _, o := range list.Items {
			if !each(registry.Key{Namespace: o.Namespace, Name: o.Name}) {
				return nil
			}
		}
		if list.Continue == "" {
			return nil
		}
		query.Set("continue", list.Continue)
	}
}

// Pod is a Pod as far as one who looks for a server needs it.
type Pod struct {
	Namespace, Name string
	Node, Phase     string
	Ready           bool
	Ports           map[string]int32 // by name, of all containers
}

// Pods returns those with these labels, as kubectl has a selector, of a namespace or where
// it is empty of all.
func (a *API) Pods(ctx context.Context, namespace, selector string) ([]Pod, error) {
	type page struct {
		Metadata struct{ Continue string }
		Items    []struct {
			Metadata struct{ Namespace, Name string }
			Spec     struct {
				NodeName   string
				Containers []struct {
					Ports []struct {
						Name          string
						ContainerPort int32
					}
				}
			}
			Status struct {
				Phase      string
				Conditions []struct{ Type, Status string }
			}
		}
	}
	var out []Pod
	query := url.Values{"labelSelector": {selector}, "limit": {strconv.Itoa(pageSize)}}
	for {
		var list page
		if err := a.list(ctx, "pods", namespace, query, &list); err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			pod := Pod{Namespace: item.Metadata.Namespace, Name: item.Metadata.Name, Node: item.Spec.NodeName,
				Phase: item.Status.Phase, Ports: map[string]int32{}}
			for _, c := range item.Spec.Containers {
				for _, p := range c.Ports {
					pod.Ports[p.Name] = p.ContainerPort
				}
			}
			for _, c := range item.Status.Conditions {
				pod.Ready = pod.Ready || c.Type == "Ready" && c.Status == "True"
			}
			out = append(out, pod)
		}
		if list.Metadata.Continue == "" {
			return out, nil
		}
		query.Set("continue", list.Metadata.Continue)
	}
}

// Proxy is the way to a port of a Pod through the API server, which needs the right to get
// pods/proxy: a URL to ask below, and who asks.
func (a *API) Proxy(p Pod, port int32) (*url.URL, *http.Client) {
	u := a.base.JoinPath("api/v1/namespaces", p.Namespace, "pods", fmt.Sprintf("%s:%d", p.Name, port), "proxy")
	return u, a.client
}

// maxListed is the longest list that is read.
const maxListed = 32 << 20

// list reads a list of a resource of the core group. Where metadata are enough, the API
// server is asked for no more.
func (a *API) list(ctx context.Context, resource, namespace string, query url.Values, to any) error {
	u := a.base.JoinPath("api/v1")
	if namespace != "" {
		u = u.JoinPath("namespaces", namespace)
	}
	u = u.JoinPath(resource)
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	if _, metadata := to.(*metav1.PartialObjectMetadataList); metadata {
		r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	}
	resp, err := a.client.Do(r)
	if err != nil {
		return fmt.Errorf("%s: %s", a.where, reason(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxListed))
	if err != nil {
		return fmt.Errorf("%s: list %s: %w", a.where, resource, err)
	}
	if resp.StatusCode != http.StatusOK {
		var status metav1.Status
		if json.Unmarshal(body, &status) != nil || status.Message == "" {
			status.Message = resp.Status
		}
		return fmt.Errorf("%s: list %s: %s", a.where, resource, strings.Join(strings.Fields(status.Message), " "))
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("%s: list %s: %w", a.where, resource, err)
	}
	return nil
}

// serviceAccountNamespace is where a pod finds its namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace is the one that is meant where none is given, as kubectl has it: that of the
// context, or of the pod we run in, else "default".
func (cfg Config) Namespace() (string, error) {
	namespace := ""
	if cfg.Kubeconfig == "" && cfg.Context == "" && podState() == "" {
		b, err := os.ReadFile(serviceAccountNamespace)
		if err != nil {
			return "", fmt.Errorf("namespace of this pod: %w", err)
		}
		namespace = strings.TrimSpace(string(b))
	} else {
		if _, _, err := cfg.resolve(); err != nil {
			return "", err
		}
		raw, err := cfg.rules().Load()
		if err != nil {
			return "", oneLine(err)
		}
		name := raw.CurrentContext
		if cfg.Context != "" {
			name = cfg.Context
		}
		if c := raw.Contexts[name]; c != nil {
			namespace = c.Namespace
		}
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return namespace, nil
}

// Contexts are those of the kubeconfig, by name.
func (cfg Config) Contexts() (names []string) {
	raw, err := cfg.rules().Load()
	if err != nil {
		return nil
	}
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (cfg Config) rules() *clientcmd.ClientConfigLoadingRules {
	if cfg.Kubeconfig != "" {
		return &clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false
	rules.MigrationRules = nil
	return rules
}

// ErrNoRight is why there is nothing to read where EndpointSlices may not be listed.
var ErrNoRight = errors.New("no right to read them")

// Trouble says why nothing has come from the cluster yet: what was wrong last with the
// requests for EndpointSlices, in the words of the log, and since when there is no
// connection, if that is what is wrong. It is empty where all is well, or too new to tell.
func (s *Source) Trouble() (what string, unreachable time.Time) {
	for _, f := range s.feeds {
		f.mu.Lock()
		if f.kind == endpointSlices && !f.status.Synced && f.lastError != nil {
			class, text := classify(f, f.lastError)
			what = class + ": " + text
			if errorReason(f.lastError) == ErrorUnreachable {
				unreachable = f.failing
			}
		}
		f.mu.Unlock()
	}
	return what, unreachable
}

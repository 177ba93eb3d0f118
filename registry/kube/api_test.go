package kube

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"epdns/registry"
)

// kubeconfigOf is a kubeconfig of a cluster with two contexts, "here" and, in namespace shop,
// "shopping".
func kubeconfigOf(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
clusters: [{name: one, cluster: {server: %q}}]
users: [{name: jane, user: {}}]
contexts:
- {name: here, context: {cluster: one, user: jane}}
- {name: shopping, context: {cluster: one, user: jane, namespace: shop}}
`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAPI(t *testing.T) {
	const metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(accept, text string) {
			if got := r.Header.Get("Accept"); got != accept {
				t.Errorf("%v: accepted is %q, not %q", r.URL, got, accept)
			}
			io.WriteString(w, text)
		}
		switch r.URL.RequestURI() {
		case "/api/v1/services?limit=500":
			answer(metadata, `{"metadata":{"continue":"next page"},"items":[{"metadata":{"namespace":"data","name":"db"}}]}`)
		case "/api/v1/services?continue=next+page&limit=500":
			answer(metadata, `{"items":[{"metadata":{"namespace":"shop","name":"web"}}]}`)
		case "/api/v1/namespaces/shop/services?limit=500":
			answer(metadata, `{"items":[{"metadata":{"namespace":"shop","name":"web"}}]}`)
		case "/api/v1/namespaces?limit=500":
			answer(metadata, `{"items":[{"metadata":{"name":"shop"}}]}`)
		case "/api/v1/pods?labelSelector=app%3Ddns&limit=500":
			answer("application/json", `{"metadata":{"continue":"2"},"items":[]}`)
		case "/api/v1/pods?continue=2&labelSelector=app%3Ddns&limit=500":
			answer("application/json", `{"items":[{"metadata":{"namespace":"dns","name":"a"},"spec":{"nodeName":"n1","containers":[
				{"ports":[{"name":"dns","containerPort":53}]},{"ports":[{"name":"http","containerPort":9153}]}]},
				"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}]}`)
		case "/api/v1/namespaces/dns/pods/a:9153/proxy/readyz":
			io.WriteString(w, "ok")
		case "/api/v1/namespaces/broken/services?limit=500":
			io.WriteString(w, "<html>")
		case "/api/v1/namespaces/down/services?limit=500":
			http.Error(w, "no", http.StatusBadGateway)
		default:
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"kind":"Status","message":"services is forbidden:\nUser \"jane\" cannot"}`)
		}
	}))
	defer server.Close()
	api, err := NewAPI(Config{Kubeconfig: kubeconfigOf(t, server.URL)})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	web, db := registry.Key{Namespace: "shop", Name: "web"}, registry.Key{Namespace: "data", Name: "db"}
	services := func(namespace string, most int) (got []registry.Key, err error) {
		err = api.Services(ctx, namespace, func(k registry.Key) bool {
			got = append(got, k)
			return len(got) < most
		})
		return got, err
	}
	if got, err := services("", 1); err != nil || !reflect.DeepEqual(got, []registry.Key{db}) {
		t.Errorf("the first of the Services: %v, %v", got, err)
	}
	if got, err := services("", 5); err != nil || !reflect.DeepEqual(got, []registry.Key{db, web}) {
		t.Errorf("Services: %v, %v", got, err)
	}
	if got, err := services("shop", 5); err != nil || !reflect.DeepEqual(got, []registry.Key{web}) {
		t.Errorf("of a namespace: %v, %v", got, err)
	}
	var namespaces []string
	if err := api.Namespaces(ctx, func(name string) bool { namespaces = append(namespaces, name); return true }); err != nil || !reflect.DeepEqual(namespaces, []string{"shop"}) {
		t.Errorf("namespaces: %v, %v", namespaces, err)
	}
	pods, err := api.Pods(ctx, "", "app=dns")
	want := []Pod{{Namespace: "dns", Name: "a", Node: "n1", Phase: "Running", Ready: true, Ports: map[string]int32{"dns": 53, "http": 9153}}}
	if err != nil || !reflect.DeepEqual(pods, want) {
		t.Fatalf("pods: %+v, %v", pods, err)
	}
	u, client := api.Proxy(pods[0], 9153)
	resp, err := client.Get(u.JoinPath("readyz").String())
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "ok" {
		t.Errorf("through the proxy: %q, %v", body, err)
	}
	for namespace, says := range map[string]string{
		"secret": `list services: services is forbidden: User "jane" cannot`,
		"down":   "list services: 502 Bad Gateway",
		"broken": "list services: invalid character",
	} {
		if _, err := services(namespace, 5); err == nil || !strings.Contains(err.Error(), server.URL) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, expected %q", namespace, err, says)
		}
	}
}

func TestNamespaceOfContext(t *testing.T) {
	path := kubeconfigOf(t, "http://127.0.0.1:1")
	for context, want := range map[string]string{"": "default", "here": "default", "shopping": "shop"} {
		cfg := Config{Kubeconfig: path, Context: context}
		if got, err := cfg.Namespace(); err != nil || got != want {
			t.Errorf("context %q: %q, %v, expected %q", context, got, err, want)
		}
	}
	if got, err := (Config{Kubeconfig: path, Context: "nowhere"}).Namespace(); err == nil {
		t.Errorf("of no context: %q", got)
	}
	if got := (Config{Kubeconfig: path}).Contexts(); !reflect.DeepEqual(got, []string{"here", "shopping"}) {
		t.Errorf("contexts are %q", got)
	}
	if got := (Config{Kubeconfig: path + ".missing"}).Contexts(); got != nil {
		t.Errorf("contexts of no file are %q", got)
	}
}

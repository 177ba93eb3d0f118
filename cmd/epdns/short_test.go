package main

import (
	"fmt"
	"testing"

	"epdns/registry"
	"epdns/zones"
)

// keys reads Services as NAMESPACE/SERVICE.
func keys(t *testing.T, texts ...string) (all []registry.Key) {
	t.Helper()
	for _, text := range texts {
		k, err := parseService(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
	return all
}

func TestMeantServices(t *testing.T) {
	all := keys(t, "shop/web", "shop/web-admin", "shop/api", "shop/jobs", "data/db", "data/web", "test/web", "prod/web")
	for _, c := range []struct{ of, want string }{
		{"shop/wbe", "; do you mean shop/web?"},
		{"shop/webb", "; do you mean shop/web?"},
		{"shop/job", "; do you mean shop/jobs?"},
		{"shpo/jobs", "; do you mean shop/jobs?"},
		{"shpo/web", "; do you mean data/web or prod/web or shop/web?"},
		{"default/db", "; do you mean data/db?"},
		{"shpo/jbos", "; do you mean shop/jobs?"},
		{"shop/mail", ""},
		{"elsewhere/mail", ""},
	} {
		if got := meantServicesText(keys(t, c.of)[0], all); got != c.want {
			t.Errorf("of %s it says %q, expected %q", c.of, got, c.want)
		}
	}
}

// What is typed for a Service, and which name that is.
func TestServiceNames(t *testing.T) {
	short, long := zones.DefaultZone("registry.local"), zones.DefaultZone("k8s.test.")
	long.Layout = zones.Kubernetes
	for _, c := range []struct {
		typed      string
		namespaces []string
		zone       zones.Zone
		want       string // empty: an error
	}{
		{"shop/web", nil, short, "web.shop.registry.local"},
		{"shop/web", nil, long, "web.shop.svc.k8s.test"},
		{"web", []string{"shop"}, short, "web.shop.registry.local"},
		{"svc/web", []string{"shop"}, short, "web.shop.registry.local"},
		{"service/web", []string{"shop"}, long, "web.shop.svc.k8s.test"},
		{"svc/web", nil, short, "web.svc.registry.local"}, // there may be such a namespace
		{"shop/web", []string{"shop", "data"}, short, "web.shop.registry.local"},
		{"shop/web", []string{"data"}, short, ""},
		{"web", nil, short, ""},
		{"web", []string{"shop", "data"}, short, ""},
		{"shop/", nil, short, ""},
		{"shop/web/1", []string{"shop"}, short, ""},
	} {
		f := sourceFlags{manifests: "dir", namespaces: c.namespaces}
		k, err := f.service(c.typed, false)
		got := ""
		if err == nil {
			got = serviceName(k, c.zone)
			if back, ok := serviceOf(got+".", []zones.Zone{c.zone}); !ok || back != k {
				t.Errorf("%s is Service %v, %v, and not %v", got, back, ok, k)
			}
		}
		if got != c.want {
			t.Errorf("%s in %q: %q, %v, expected %q", c.typed, c.namespaces, got, err, c.want)
		}
	}
	for typed, want := range map[string]bool{
		"web": true, "shop/web": true, "svc/web": true, "/": true,
		"web.shop.registry.local": false, "web.": false, ".": false, "": false, "10.1.2.3": false, "::1": false,
		"registry": false, "_http": false, "Web": false,
	} {
		if got := isShort(typed, "registry."); got != want {
			t.Errorf("%q is a Service's own name: %v, expected %v", typed, got, want)
		}
	}
}

func TestNameHint(t *testing.T) {
	short, long := zones.DefaultZone("registry.local"), zones.DefaultZone("k8s.test")
	long.Layout = zones.Kubernetes
	in := []zones.Zone{short, long}
	all := keys(t, "shop/web", "data/db")
	for name, want := range map[string]string{
		"wbe.shop.registry.local.":            "there is no Service shop/wbe; do you mean shop/web?",
		"_http._tcp.WBE.shop.registry.local.": "there is no Service shop/wbe; do you mean shop/web?",
		"wbe.shop.svc.k8s.test.":              "there is no Service shop/wbe; do you mean shop/web?",
		"web.shop.svc.registry.local.":        "there is no svc in the names of registry.local; do you mean web.shop.registry.local?",
		"x.web.shop.registry.local.":          "", // the Service is there
		"mail.shop.registry.local.":           "",
		"shop.registry.local.":                "",
		"registry.local.":                     "",
		"wbe.shop.example.com.":               "",
		"1.2.3.10.in-addr.arpa.":              "",
	} {
		if got := nameHint(name, in, all); got != want {
			t.Errorf("of %s it says %q, expected %q", name, got, want)
		}
	}
}

func TestOutsideHint(t *testing.T) {
	z := zones.DefaultZone("registry.local")
	all := keys(t, "shop/web")
	for name, want := range map[string]string{
		"web.shop.":                   "do you mean web.shop.registry.local?",
		"web.shop.svc.cluster.local.": "do you mean web.shop.registry.local?",
		"api.test.svc.cluster.local.": "do you mean api.test.registry.local?",
		"web.data.":                   "",
		"www.example.com.":            "",
		"svc.cluster.local.":          "",
		".":                           "",
	} {
		if got := outsideHint(name, z, all); got != want {
			t.Errorf("of %s it says %q, expected %q", name, got, want)
		}
	}
}

func TestCalledAs(t *testing.T) {
	for _, c := range []struct {
		argv []string
		name string
		args string
	}{
		{nil, "epdns", "[]"},
		{[]string{"epdns"}, "epdns", "[]"},
		{[]string{"/usr/bin/epdns", "serve"}, "epdns", "[serve]"},
		{[]string{"epdns-1.2", "serve"}, "epdns", "[serve]"},
		{[]string{"/usr/local/bin/kubectl-epdns", "explain", "web"}, "kubectl-epdns", "[explain web]"},
		{[]string{"kubectl-epdns.exe"}, "kubectl-epdns", "[]"},
		{[]string{"kubectl_complete-epdns", "watch", ""}, "kubectl-epdns", "[__complete watch ]"},
	} {
		name, args := calledAs(c.argv)
		if got := fmt.Sprint(args); name != c.name || got != c.args {
			t.Errorf("%q: %s %s, expected %s %s", c.argv, name, got, c.name, c.args)
		}
	}
}

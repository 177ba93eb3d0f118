//go:build linux

package clients_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const snippets = "../../deploy/snippets/clients"

// snippet is a configuration as it is shipped, with Service lamp in namespace dock in place of web
// in shop, and these texts, each of which is there, replaced by those that follow them.
func snippet(t *testing.T, file string, changes ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(snippets, file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i, changes := 0, append([]string{"web.shop.", "lamp.dock."}, changes...); i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			t.Fatalf("%s has no %q", file, changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	return text
}

var wholeFile = regexp.MustCompile("(?m)^<!-- (\\S+) -->\n```\\w*\n((?s:.*?))```$")

// A block of a page that stands below the name of a file in a comment is all of that file.
func TestSnippetsInPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/clients/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range wholeFile.FindAllStringSubmatch(string(text), -1) {
			file, err := os.ReadFile(filepath.Join("../..", m[1]))
			if err != nil {
				t.Errorf("%s: %v", page, err)
			} else if m[2] != string(file) {
				t.Errorf("%s should have %s as it is:\n%s", page, m[1], file)
			}
			shown[filepath.Base(m[1])] = true
		}
	}
	files, err := filepath.Glob(snippets + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !shown[filepath.Base(file)] {
			t.Errorf("no page has %s", file)
		}
	}
}

// pod is an endpoint that has more than an address.
type pod struct {
	address, name, zone string
	unready             bool
}

// service makes these the pods behind Service lamp, a list for each EndpointSlice. Those of one are
// of one family.
func (dir manifests) service(t *testing.T, annotations map[string]string, lists ...[]pod) {
	t.Helper()
	ports := []object{{"name": "http", "port": 8080, "protocol": "TCP"}}
	items := []object{{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"namespace": "dock", "name": "lamp", "annotations": annotations},
		"spec":     object{"clusterIP": "None", "ports": ports},
	}}
	for i, list := range lists {
		family, endpoints := "IPv4", []object{}
		for _, p := range list {
			if strings.Contains(p.address, ":") {
				family = "IPv6"
			}
			e := object{"addresses": []string{p.address}, "conditions": object{"ready": !p.unready}}
			if p.name != "" {
				e["targetRef"] = object{"kind": "Pod", "namespace": "dock", "name": p.name}
			}
			if p.zone != "" {
				e["zone"] = p.zone
			}
			endpoints = append(endpoints, e)
		}
		items = append(items, object{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
			"metadata": object{"namespace": "dock", "name": fmt.Sprintf("lamp-%d", i+1),
				"labels": object{"kubernetes.io/service-name": "lamp"}},
			"addressType": family, "ports": ports, "endpoints": endpoints,
		})
	}
	dir.list(t, "lamp", items...)
}

// configured is a configuration file of epdns, whose zone has these lines besides its name.
func configured(t *testing.T, zone string, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "epdns.yaml")
	text := "apiVersion: epdns/v1alpha1\nkind: Config\nzones:\n- name: registry.local\n"
	for line := range strings.Lines(zone) {
		text += "  " + line
	}
	if err := os.WriteFile(path, []byte(text+"\n"+strings.Join(more, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

package epdns_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// goPackage is what "go list" says of a package.
type goPackage struct {
	ImportPath, Doc, Dir string
	Imports, Deps        []string
}

func goList(t *testing.T, args ...string) (out []goPackage) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Doc,Dir,Imports,Deps"}, args...)...)
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	for d := json.NewDecoder(strings.NewReader(string(b))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
}

// floors are what a package must not reach, even through others, and why.
var floors = []struct {
	of     string
	no     []string
	reason string
}{
	{"epdns/registry", []string{"epdns/cmd/", "epdns/dnsserver", "epdns/dnsserver/", "epdns/registry/", "epdns/zones", "epdns/zones/", "k8s.io/client-go", "github.com/miekg/dns"}, "it is what exists: no DNS, no connection, no source"},
	{"epdns/internal/protobuf", []string{"epdns/", "k8s.io/", "google.golang.org/"}, "a format, whatever is in it"},
	{"epdns/registry/statedir", []string{"epdns/", "k8s.io/", "github.com/"}, "a file, whatever is in it"},
	{"epdns/zones/rank", []string{"epdns/", "net", "k8s.io/", "github.com/"}, "numbers only"},
	{"epdns/zones", []string{"epdns/dnsserver", "epdns/cmd", "epdns/registry/", "k8s.io/client-go", "github.com/miekg/dns"}, "what names mean, without a socket or a source"},
	{"epdns/dnsserver", []string{"epdns/cmd", "epdns/registry/", "k8s.io/client-go"}, "packets know nothing of Kubernetes"},
	{"epdns/dnsserver/batch", []string{"epdns/", "k8s.io/", "github.com/"}, "datagrams, whatever is in them"},
	{"epdns/registry/kube", []string{"epdns/zones", "epdns/dnsserver", "k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/client-go/dynamic"}, "straight into the store: no typed client, no second copy of the world"},
	{"epdns/registry/manifest", []string{"epdns/zones", "epdns/dnsserver", "k8s.io/client-go"}, "files only"},
	{"epdns/cmd/epdns", []string{"testing", "k8s.io/kubernetes", "k8s.io/client-go/kubernetes", "k8s.io/client-go/informers"}, "the program carries what it uses"},
}

// Imports go down, and the program is not larger than it needs to be.
func TestFloors(t *testing.T) {
	packages := goList(t, "./...")
	for _, f := range floors {
		i := slices.IndexFunc(packages, func(p goPackage) bool { return p.ImportPath == f.of })
		if i < 0 {
			t.Errorf("there is no package %s", f.of)
			continue
		}
		for _, dep := range packages[i].Deps {
			for _, no := range f.no {
				below := strings.HasSuffix(no, "/") && strings.HasPrefix(dep, no)
				if dep == no && f.of != dep || below || strings.HasPrefix(dep, no+"/") && strings.Contains(no, ".") {
					t.Errorf("%s reaches %s, but: %s", f.of, dep, f.reason)
				}
			}
		}
	}
	for _, p := range packages {
		for _, imported := range p.Imports {
			if p.ImportPath != "epdns/cmd/epdns" && (imported == "epdns/registry/kube" || imported == "epdns/registry/manifest") {
				t.Errorf("%s imports %s: sources are chosen by the program alone", p.ImportPath, imported)
			}
		}
	}
}

// Every package says what it is.
func TestPackageDocs(t *testing.T) {
	for _, p := range goList(t, "./...") {
		if p.ImportPath != "epdns" && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

package epdns_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writeService writes the manifest of a Service with these IPv4 pods, at one
// stroke as editors and kubelets do. It returns the directory.
func writeService(t *testing.T, dir, namespace, name string, addresses ...string) string {
	t.Helper()
	http, port := "http", int32(8080)
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &http, Port: &port}},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Name: http, Port: 80}}},
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{service, slice}})
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, filepath.Join(dir, name+".json"), string(data))
	return dir
}

func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// becomes waits until a question has this answer.
func (p *program) becomes(t *testing.T, q question, w want) {
	t.Helper()
	eventually(t, func() error { return errors.Join(p.answer(q, w), p.running()) })
	r, err := q.send(p.dns.Port())
	if err != nil {
		t.Fatal(err)
	}
	if err := dig(t, q, p.dns.Port()).agrees(r); err != nil {
		t.Error(err)
	}
}

// answer asks once.
func (p *program) answer(q question, w want) error {
	r, err := q.send(p.dns.Port())
	if err == nil {
		err = w.check(r)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", q, err)
	}
	return nil
}

// TestManifestsAreReadAgain goes through a day of somebody who edits files under a
// running server.
func TestManifestsAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/cluster")); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--manifests", dir)
	late := ask("late.shop.registry.local.", dns.TypeA)
	jobs := ask("jobs.shop.registry.local.", dns.TypeA)
	if err := p.answer(late, nxdomain()); err != nil {
		t.Fatal(err)
	}

	// A new file, and a new pod in it.
	writeService(t, dir, "shop", "late", "10.3.0.1")
	p.becomes(t, late, noerror("10.3.0.1"))
	writeService(t, dir, "shop", "late", "10.3.0.1", "10.3.0.2")
	p.becomes(t, late, noerror("10.3.0.1", "10.3.0.2"))
	p.becomes(t, ask("10-3-0-2.late.shop.registry.local.", dns.TypeA), noerror("10.3.0.2"))

	// A file breaks in its second document. What it said before stays, and other
	// files go on.
	path := filepath.Join(dir, "jobs.yaml")
	good := readFile(t, path)
	replaceFile(t, path, strings.Replace(good, "addressType: IPv4", "addressType: [IPv4", 1))
	p.logged(t, `"level":"WARN"`, path, "document 2")
	writeService(t, dir, "shop", "late", "10.3.0.3")
	p.becomes(t, late, noerror("10.3.0.3"))
	if err := p.answer(jobs, noerror("10.1.1.41")); err != nil {
		t.Errorf("while its file is broken: %v", err)
	}

	// It is mended, with a change.
	replaceFile(t, path, strings.Replace(good, "10.1.1.41", "10.1.1.43", 1))
	p.becomes(t, jobs, noerror("10.1.1.43"))
	p.logged(t, path, "right again")

	// A file goes, and its Service with it.
	if err := os.Remove(filepath.Join(dir, "late.json")); err != nil {
		t.Fatal(err)
	}
	p.becomes(t, late, nxdomain())
	if err := p.answer(jobs, noerror("10.1.1.43")); err != nil {
		t.Error(err)
	}
}

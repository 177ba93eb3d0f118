package epdns_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"epdns/internal/fakeapi"
)

// fakeAPI is an API server behind a gate, over HTTP/2 and TLS.
type fakeAPI struct {
	*gate
	*fakeapi.Server
	kubeconfig string
	client     *http.Client // one more that it trusts
}

// newFakeAPI starts one. It ends with the test.
func newFakeAPI(t *testing.T, jsonOnly bool) *fakeAPI {
	t.Helper()
	a := &fakeAPI{gate: newGate(t), Server: fakeapi.New()}
	a.JSONOnly = jsonOnly // before anybody asks
	server := httptest.NewUnstartedServer(a.Server)
	server.Listener.Close()
	server.Listener = a.gate
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that were cut
	server.EnableHTTP2 = true
	server.StartTLS()
	a.client = server.Client()
	t.Cleanup(func() {
		a.gate.Close()
		server.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	a.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, a.kubeconfig, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: fake
clusters: [{name: fake, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: anybody, user: {}}]
contexts: [{name: fake, context: {cluster: fake, user: anybody}}]
`, a.addr, base64.StdEncoding.EncodeToString(ca)))
	return a
}

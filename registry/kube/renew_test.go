package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"epdns/internal/fakeapi"
	"epdns/internal/freeport"
	"epdns/registry"
)

// newCertificate makes a certificate for 127.0.0.1 that vouches for itself, and its PEM.
func newCertificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// An API server that comes back with a certificate of another authority, and a token that
// has changed, are taken as soon as the files say so.
func TestRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	write := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	api := fakeapi.New()
	api.Apply(service("web"))
	api.Apply(slice("web", "web-1", "10.0.0.1"))
	serve := func(addr, secret string, cert tls.Certificate) (string, func()) {
		t.Helper()
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		checked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+secret {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			api.ServeHTTP(w, r)
		})
		server := &http.Server{Handler: checked, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
		go server.ServeTLS(listener, "", "")
		return listener.Addr().String(), func() { server.Close() }
	}

	first, firstCA := newCertificate(t)
	write(ca, firstCA)
	write(token, []byte("one"))
	addr, stop := serve(freeport.Local(t), "one", first)
	src, err := newSource(&rest.Config{
		Host: "https://" + addr, BearerTokenFile: token, TLSClientConfig: rest.TLSClientConfig{CAFile: ca},
	}, "cluster", []string{""}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	store := registry.NewStore(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- src.Run(ctx, store) }()
	<-store.Synced()
	stop()

	second, secondCA := newCertificate(t)
	_, stop = serve(addr, "two", second)
	defer stop()
	api.Apply(slice("web", "web-2", "10.0.0.2"))
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for svc := range store.Watch(ctx, "shop", "web") {
			if len(svc.Slices) == 2 {
				return
			}
		}
	}()
	waitFor(t, func() bool { return src.Status()[0].Errors[ErrorUnreachable] > 0 })
	if store.Snapshot("shop", "web") == nil {
		t.Error("what was known is gone")
	}
	write(ca, secondCA)
	waitFor(t, func() bool { return src.Status()[0].Errors[ErrorUnauthorized] > 0 })
	write(token, []byte("two"))
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Errorf("not watching again: %+v", src.Status()[0])
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// waitFor waits until something that happens elsewhere has.
func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !what(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing happens")
		}
	}
}

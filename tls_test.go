package epdns_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// writeCertificate writes a certificate for dns.test with its key into a directory, and
// returns the certificate.
func writeCertificate(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		DNSNames:     []string{"dns.test"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der},
		"tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// trusting is a client that trusts that one certificate.
func trusting(cert *x509.Certificate) *dns.Client {
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &dns.Client{Net: "tcp-tls", Timeout: grace, TLSConfig: &tls.Config{RootCAs: pool, ServerName: "dns.test", NextProtos: []string{"dot"}}}
}

const withTLS = "source: {manifests: cluster}\nreverse: [10.0.0.0/8]\ntls: {listen: [\"127.0.0.1:0\"], cert: tls.crt, key: tls.key}\n"

// TestTLS: what is answered over TLS is what is answered otherwise, with the certificate
// that the files hold.
func TestTLS(t *testing.T) {
	file := settings(t, withTLS)
	old := writeCertificate(t, filepath.Dir(file))
	p := serve(t, "--config", file)
	var addr string
	for _, r := range p.log(t) {
		if addrs, ok := r["tls"].([]any); ok {
			addr = fmt.Sprint(addrs[0])
		}
	}
	if addr == "" {
		t.Fatal("it does not say where it listens for TLS")
	}
	open, err := trusting(old).Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, c := range table {
		m := new(dns.Msg).SetQuestion(c.name, c.qtype)
		over, _, err := trusting(old).ExchangeWithConn(m, open)
		if err != nil {
			t.Fatalf("%s %s: %v", c.name, typeText(c.qtype), err)
		}
		plain, err := ask(c.name, c.qtype).overTCP().send(p.dns.Port())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := whole(over.Answer), whole(plain.sections[answers]); over.Rcode != plain.rcode || !slices.Equal(got, want) {
			t.Errorf("%s %s: over TLS %s %q, over TCP %s %q", c.name, typeText(c.qtype), rcodeName(over.Rcode), got, rcodeName(plain.rcode), want)
		}
	}

	// dig checks the certificate as OpenSSL does, and asks for padding.
	_, port, _ := strings.Cut(addr, ":")
	out := runDig(t, "@127.0.0.1", "-p", port, "+tls", "+tls-ca="+filepath.Join(filepath.Dir(file), "tls.crt"), "+tls-hostname=dns.test",
		"+padding=128", "-q", "jobs.shop.registry.local.", "-t", "A")
	for _, want := range []string{"status: NOERROR", "\tA\t10.1.1.41", "(TLS)", "MSG SIZE  rcvd: 468"} {
		if !strings.Contains(out, want) {
			t.Errorf("dig does not say %q:\n%s", want, out)
		}
	}

	tr := dns.Transfer{TLS: trusting(old).TLSConfig}
	env, err := tr.In(new(dns.Msg).SetAxfr(zone), addr)
	if err != nil {
		t.Fatal(err)
	}
	var rrs []dns.RR
	for e := range env {
		if e.Error != nil {
			t.Fatal(e.Error)
		}
		rrs = append(rrs, e.RR...)
	}
	if want := transferred(t, p, zone, "AXFR"); !slices.Equal(whole(rrs), whole(want)) {
		t.Errorf("%d records over TLS, %d over TCP", len(rrs), len(want))
	}

	renewed := writeCertificate(t, filepath.Dir(file))
	q := new(dns.Msg).SetQuestion(zone, dns.TypeSOA)
	eventually(t, func() error {
		_, _, err := trusting(renewed).Exchange(q, addr)
		return err
	})
	if _, _, err := trusting(old).ExchangeWithConn(q, open); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "tls.crt"), []byte("no certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // it looks once a second, when somebody comes
		if _, _, err := trusting(renewed).Exchange(q, addr); err != nil {
			t.Fatal(err)
		}
		for _, r := range p.log(t) {
			if r["level"] == "ERROR" {
				return nil
			}
		}
		return errors.New("nothing is said of the file that is none")
	})
	p.logged(t, "cannot be used", "tls.crt: there is no certificate in PEM in it")
}

// TestBadTLSFiles: one line that names the file, and nothing is served.
func TestBadTLSFiles(t *testing.T) {
	for what, c := range map[string]struct {
		bad  func(dir string) error
		says string
	}{
		"no certificate": {func(dir string) error { return os.Remove(dir + "/tls.crt") }, "TLS certificate %s/tls.crt: no such file or directory"},
		"no key":         {func(dir string) error { return os.Remove(dir + "/tls.key") }, "TLS key %s/tls.key: no such file or directory"},
		"rubbish":        {func(dir string) error { return os.WriteFile(dir+"/tls.crt", []byte("x"), 0o600) }, "TLS certificate %s/tls.crt: there is no certificate in PEM in it"},
		"an empty key":   {func(dir string) error { return os.WriteFile(dir+"/tls.key", nil, 0o600) }, "TLS key %s/tls.key of certificate %[1]s/tls.crt: failed to find any PEM data in key input"},
		"another's key": {func(dir string) error {
			cert, err := os.ReadFile(dir + "/tls.crt")
			if err != nil {
				return err
			}
			writeCertificate(t, dir)
			return os.WriteFile(dir+"/tls.crt", cert, 0o600)
		}, "TLS key %s/tls.key of certificate %[1]s/tls.crt: private key does not match public key"},
	} {
		t.Run(what, func(t *testing.T) {
			file := settings(t, withTLS)
			dir := filepath.Dir(file)
			writeCertificate(t, dir)
			if err := c.bad(dir); err != nil {
				t.Fatal(err)
			}
			_, stderr, code := once(t, environment(), "serve", "--config", file, "--listen", "127.0.0.1:0", "--http", "")
			if want := "epdns: " + fmt.Sprintf(c.says, dir) + "\n"; code != 1 || stderr != want {
				t.Errorf("it exits with %d and says %q, expected %q", code, stderr, want)
			}
			if strings.Count(stderr, "\n") != 1 {
				t.Errorf("not one line: %q", stderr)
			}
		})
	}
}

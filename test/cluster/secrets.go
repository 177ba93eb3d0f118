package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Users who have a token. Only Admin has rights; tests bind roles to the others.
const (
	Admin   = "admin"
	Limited = "limited"
	Nobody  = "nobody"
)

var users = []string{Admin, Limited, Nobody}

// secrets are a cluster's keys: those that Go needs too stay in memory, the components read
// the files.
type secrets struct {
	ca     *x509.CertPool
	caPEM  []byte
	tokens map[string]string // by user
}

// Names of the files that newSecrets writes.
const (
	caFile      = "ca.crt"
	certFile    = "serving.crt"
	keyFile     = "serving.key"
	accountFile = "service-accounts.key"
	tokenFile   = "tokens.csv"
)

func newSecrets(dir string) (*secrets, error) {
	s := &secrets{ca: x509.NewCertPool(), tokens: map[string]string{}}

	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// An hour back, for clocks that get set while a cluster starts.
	from, until := time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "epdns test cluster"},
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		return nil, err
	}
	s.ca.AddCert(ca)
	s.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "localhost"},
		NotBefore:    from,
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 96, 0, 1)},
	}, ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}

	accounts, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}

	var tokens strings.Builder
	for _, user := range users {
		s.tokens[user] = rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s", s.tokens[user], user, user)
		if user == Admin {
			tokens.WriteString(`,"system:masters"`)
		}
		tokens.WriteByte('\n')
	}

	for name, content := range map[string][]byte{
		caFile:      s.caPEM,
		certFile:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		keyFile:     pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		accountFile: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(accounts)}),
		tokenFile:   []byte(tokens.String()),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// kubeconfigName is the file in a cluster's directory.
func kubeconfigName(user string) string { return user + ".kubeconfig" }

// writeKubeconfigs writes one file for each user.
func (s *secrets) writeKubeconfigs(dir, server string) error {
	for _, user := range users {
		text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[1]s
clusters:
- name: epdns-test
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]s
  user:
    token: %[4]s
contexts:
- name: %[1]s
  context:
    cluster: epdns-test
    user: %[1]s
`, user, server, base64.StdEncoding.EncodeToString(s.caPEM), s.tokens[user])
		if err := os.WriteFile(filepath.Join(dir, kubeconfigName(user)), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

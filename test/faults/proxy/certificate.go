package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// certificate is what the proxy shows, and the authority that signed it.
type certificate struct {
	pair      tls.Certificate
	ca        []byte // PEM
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newCertificate() (*certificate, error) { return new(certificate).next(true) }

// next is another one, of the same authority or of a new one.
func (c *certificate) next(newAuthority bool) (*certificate, error) {
	from, until := time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	out := &certificate{ca: c.ca, authority: c.authority, key: c.key}
	if newAuthority {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		ca := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "epdns test proxy"},
			NotBefore: from, NotAfter: until, KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
		if err != nil {
			return nil, err
		}
		if out.authority, err = x509.ParseCertificate(der); err != nil {
			return nil, err
		}
		out.key, out.ca = key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "proxy"},
		NotBefore: from, NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, out.authority, key.Public(), out.key)
	if err != nil {
		return nil, err
	}
	out.pair = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return out, nil
}

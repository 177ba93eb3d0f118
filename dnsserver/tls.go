package dnsserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// TLSConfig is DNS over TLS (RFC 7858). Without an address there is none.
type TLSConfig struct {
	Listen []string // addresses as those of Config.Listen, for TCP alone

	// Cert and Key are files in PEM: a certificate with those that it is signed by, and
	// its key. They are read again when they change.
	Cert, Key string
}

// TLSAddrs are the addresses that are bound for TLS, in the order of TLSConfig.Listen,
// each with its real port.
func (s *Server) TLSAddrs() []netip.AddrPort { return s.bound(true) }

// prepareTLS reads the certificate, unless it is the one in use; nil where there is no
// TLS. An error names the file.
func (s *Server) prepareTLS(cfg TLSConfig) (*certificate, error) {
	if len(cfg.Listen) == 0 {
		return nil, nil
	}
	if c := s.certificate.Load(); c != nil && c.cert == cfg.Cert && c.key == cfg.Key {
		return c, nil // which reads them again by itself
	}
	c := &certificate{cert: cfg.Cert, key: cfg.Key, log: s.log}
	c.checked, c.version = time.Now(), c.versions()
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// tlsConfig has each handshake take the certificate of then.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c := s.certificate.Load(); c != nil {
				return c.get(hello)
			}
			return nil, errors.New("there is no TLS any more")
		},
		NextProtos: []string{"dot"},  // IANA "TLS ALPN Protocol IDs"
		MinVersion: tls.VersionTLS12, // RFC 8996 section 5
	}
}

// shake does the handshake, for which there is as much time as for a query.
func (t *tcpServer) shake(ctx context.Context, c *tls.Conn) bool {
	t.limit(c)
	if err := c.HandshakeContext(ctx); err != nil {
		t.unshaken.Add(1)
		return false
	}
	return true
}

// cut closes a connection at once. To close one of TLS may take seconds: it says
// goodbye, and the other side may not be reading.
func (c *tcpConn) cut() {
	if t, ok := c.Conn.(*tls.Conn); ok {
		t.NetConn().Close()
		return
	}
	c.Conn.Close()
}

// certificate is the certificate of this server, which is read again when its files
// have changed. What cannot be used is logged, and the one before stays.
type certificate struct {
	cert, key string // files
	log       *slog.Logger
	current   atomic.Pointer[tls.Certificate]

	mu      sync.Mutex
	checked time.Time
	version [2]fileVersion // of the files that were read last
}

// fileVersion tells apart what a file held at two times.
type fileVersion struct {
	modified time.Time
	size     int64
}

// certificateCheck is how long a certificate is used without a look at its files.
const certificateCheck = time.Second

// get is called by each handshake. One of them looks at the files, the others do not
// wait for it.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.mu.TryLock() {
		defer c.mu.Unlock()
		c.check(time.Now())
	}
	return c.current.Load(), nil
}

func (c *certificate) check(now time.Time) {
	if now.Sub(c.checked) < certificateCheck {
		return
	}
	c.checked = now
	version := c.versions()
	if version == c.version {
		return
	}
	c.version = version
	if err := c.load(); err != nil {
		c.log.Error("the TLS certificate has changed and cannot be used; the one before stays", "error", err)
	}
}

// versions are what the files are now; nothing of one that cannot be read.
func (c *certificate) versions() (out [2]fileVersion) {
	for i, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			out[i] = fileVersion{info.ModTime(), info.Size()}
		}
	}
	return out
}

// load reads the files and puts the certificate in use.
func (c *certificate) load() error {
	pair, err := loadCertificate(c.cert, c.key)
	if err != nil {
		return err
	}
	c.current.Store(pair)
	level, what := slog.LevelInfo, "read the TLS certificate"
	if time.Now().After(pair.Leaf.NotAfter) {
		level, what = slog.LevelWarn, "the TLS certificate has expired"
	}
	c.log.Log(context.Background(), level, what, "file", c.cert, "until", pair.Leaf.NotAfter.UTC())
	return nil
}

// loadCertificate reads a certificate and its key. An error names the file.
func loadCertificate(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := readFile(certFile)
	if err == nil {
		err = checkCertificate(cert)
	}
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %s: %w", certFile, err)
	}
	key, err := readFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("TLS key %s: %w", keyFile, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("TLS key %s of certificate %s: %s", keyFile, certFile, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return &pair, nil
}

// checkCertificate says what is wrong with the first certificate of a file.
func checkCertificate(text []byte) error {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return errors.New("there is no certificate in PEM in it")
		}
		if block.Type == "CERTIFICATE" {
			_, err := x509.ParseCertificate(block.Bytes)
			return err
		}
	}
}

// readFile reads a file. The error does not name it.
func readFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err
	}
	return text, err
}

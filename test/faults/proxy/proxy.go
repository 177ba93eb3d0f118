package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy is a running proxy. Any goroutine may call its methods, at any time; a fault holds for the
// connections and watches that are open, too.
type Proxy struct {
	// URL is where it listens.
	URL string

	target *url.URL
	client *http.Transport
	server *http.Server
	line   *line
	cert   atomic.Pointer[certificate]

	answer atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	events atomic.Pointer[func(*Event) int]
	goAway atomic.Uint64 // in a million
	pages  atomic.Pointer[pager]

	mu       sync.Mutex
	requests []Request
}

// Request is one that came.
type Request struct {
	At       time.Time
	Path     string
	Watch    bool
	Version  string // resourceVersion that was asked for
	Continue string // of a list in pages
}

// New starts a proxy in front of the API server at target, whose certificate ca has signed. Close
// must be called.
func New(target string, ca []byte) (*Proxy, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("proxy to %q: %w", target, err)
	}
	pool := x509.NewCertPool()
	if to.Scheme == "https" && !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("proxy: there is no certificate of the authority")
	}
	cert, err := newCertificate()
	if err != nil {
		return nil, fmt.Errorf("proxy: make a certificate: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{
		URL:    "https://" + l.Addr().String(),
		target: to,
		line:   newLine(l),
		// Lists are not compressed, so that they can be changed on their way.
		client: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true, DisableCompression: true},
	}
	p.cert.Store(cert)
	quiet := log.New(io.Discard, "", 0) // what it is told to do looks like errors
	reverse := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:      p.client,
		FlushInterval:  -1,
		ModifyResponse: p.modify,
		ErrorLog:       quiet,
		// A server that is gone is no answer.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{
		ErrorLog: quiet,
		TLSConfig: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &p.cert.Load().pair, nil
		}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			p.mu.Lock()
			p.requests = append(p.requests, Request{time.Now(), r.URL.Path, isWatch(r), q.Get("resourceVersion"), q.Get("continue")})
			p.mu.Unlock()
			if rand.Uint64N(1e6) < p.goAway.Load() {
				w.Header().Set("Connection", "close") // which is GOAWAY in HTTP/2
			}
			if f := p.answer.Load(); f != nil && (*f)(w, r) {
				return
			}
			if pages := p.pages.Load(); pages != nil && isList(r) && q.Get("limit") != "" {
				pages.serve(w, r, p)
				return
			}
			reverse.ServeHTTP(w, r)
		}),
	}
	go p.server.ServeTLS(p.line, "", "") // until Close
	return p, nil
}

// Close ends it and all its connections.
func (p *Proxy) Close() error {
	p.line.set(Line{})
	err := p.server.Close()
	p.client.CloseIdleConnections()
	return err
}

// Port is the one it listens on.
func (p *Proxy) Port() int { return p.line.Addr().(*net.TCPAddr).Port }

// CA is the certificate, in PEM, that a client has to trust.
func (p *Proxy) CA() []byte { return p.cert.Load().ca }

// Kubeconfig leads there, with a token that the API server knows.
func (p *Proxy) Kubeconfig(token string) []byte {
	return kubeconfig(p.URL, "certificate-authority-data: "+base64.StdEncoding.EncodeToString(p.CA()), "token: "+token)
}

// KubeconfigOfFiles leads there, with the certificate and the token in files, to be changed while
// the client runs.
func (p *Proxy) KubeconfigOfFiles(ca, token string) []byte {
	return kubeconfig(p.URL, "certificate-authority: "+ca, "tokenFile: "+token)
}

func kubeconfig(server, ca, user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: it
clusters:
- name: it
  cluster:
    server: %s
    %s
users:
- name: it
  user:
    %s
contexts:
- name: it
  context: {cluster: it, user: it}
`, server, ca, user)
}

// Renew takes a new certificate, of the same authority or of a new one, and resets all connections,
// as a restarted server would.
func (p *Proxy) Renew(newAuthority bool) error {
	next, err := p.cert.Load().next(newAuthority)
	if err != nil {
		return fmt.Errorf("proxy: renew the certificate: %w", err)
	}
	p.cert.Store(next)
	p.Reset()
	return nil
}

// Line is how bytes move. The zero value is as fast as they can.
type Line struct {
	Stalled bool          // nothing moves, nothing is closed; what was sent comes when that is over
	Rate    int           // octets a second to each client; 0 is no limit
	Delay   time.Duration // of each piece that is sent to a client
}

// SetLine changes how bytes move from now on.
func (p *Proxy) SetLine(l Line) { p.line.set(l) }

// Reset resets all connections. New ones are accepted.
func (p *Proxy) Reset() { p.line.reset() }

// Answer lets f answer requests: those for which it returns true. Nil is nobody.
func (p *Proxy) Answer(f func(http.ResponseWriter, *http.Request) (done bool)) {
	if f == nil {
		p.answer.Store(nil)
		return
	}
	p.answer.Store(&f)
}

// Events lets times decide how often an event of a watch reaches the client: 0 is not at all. Nil
// is once for each. It is called by several goroutines.
func (p *Proxy) Events(times func(*Event) int) {
	if times == nil {
		p.events.Store(nil)
		return
	}
	p.events.Store(&times)
}

// GoAway has that share of the requests, 0 to 1, end their connection, but not before they are
// through.
func (p *Proxy) GoAway(share float64) { p.goAway.Store(uint64(share * 1e6)) }

// Requests are those that came after a time.
func (p *Proxy) Requests(after time.Time) (out []Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if r.At.After(after) {
			out = append(out, r)
		}
	}
	return out
}

// Fail answers as an API server does that refuses: with a Status. Reason is one of the API's, such
// as "Expired".
func Fail(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": struct{}{}, "status": "Failure",
		"message": message, "reason": reason, "code": code,
	})
}

// resources are those that are listed and watched. Everything else passes.
var resources = []string{"endpointslices", "services", "nodes"}

func isResource(r *http.Request) bool {
	for _, name := range resources {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+name) {
			return true
		}
	}
	return false
}

func isWatch(r *http.Request) bool {
	switch r.URL.Query().Get("watch") {
	case "", "0", "false":
		return false
	}
	return isResource(r)
}

func isList(r *http.Request) bool { return isResource(r) && !isWatch(r) }

// modify filters what watches bring.
func (p *Proxy) modify(r *http.Response) error {
	if r.StatusCode == http.StatusOK && isWatch(r.Request) {
		r.Header.Del("Content-Length") // of a watch that was over at once
		r.Body = newFilter(r.Body, r.Header.Get("Content-Type"), func(e *Event) int {
			if times := p.events.Load(); times != nil {
				return (*times)(e)
			}
			return 1
		})
	}
	return nil
}

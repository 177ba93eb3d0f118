package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// renewing is a transport that is made anew, from files that may have changed, where the
// API server's certificate is not to be trusted or ours or the token is not taken. client-go
// looks at tokens each minute, and at certificates every five.
type renewing struct {
	make  func() (http.RoundTripper, error)
	login bool // our credentials are in files

	mu  sync.Mutex
	now http.RoundTripper
	at  time.Time // when it was made
}

// renewPause is between two transports: what is wrong may stay so.
const renewPause = 3 * time.Second

func newRenewing(rc *rest.Config) (t *renewing, err error) {
	t = &renewing{
		make: func() (http.RoundTripper, error) {
			pings.Lock()
			defer pings.Unlock()
			defer setPings()()
			return rest.TransportFor(withOwnDial(rc))
		},
		login: rc.BearerTokenFile != "" || rc.CertFile != "",
		at:    time.Now(),
	}
	t.now, err = t.make()
	return t, err
}

// withOwnDial is a configuration whose transport client-go does not take for one that it
// has already.
func withOwnDial(rc *rest.Config) *rest.Config {
	if rc.Dial == nil {
		return rc
	}
	own, dial := rest.CopyConfig(rc), rc.Dial
	own.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(ctx, network, address)
	}
	return own
}

// RoundTrip implements [http.RoundTripper].
func (t *renewing) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	now := t.now
	t.mu.Unlock()
	resp, err := now.RoundTrip(r)
	bad := (*tls.CertificateVerificationError)(nil)
	if errors.As(err, &bad) || err == nil && resp.StatusCode == http.StatusUnauthorized && t.login {
		t.renew(now)
	}
	return resp, err
}

// renew takes the place of a transport that has failed, for the requests that follow.
func (t *renewing) renew(failed http.RoundTripper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != failed || time.Since(t.at) < renewPause {
		return
	}
	t.at = time.Now()
	if next, err := t.make(); err == nil { // else a file is not whole yet
		t.now = next
		utilnet.CloseIdleConnectionsFor(failed)
	}
}

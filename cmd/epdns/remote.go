package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"epdns/registry"
	"epdns/registry/kube"
)

// askFlags say whom a command asks: a running server, or what exists itself.
type askFlags struct {
	source sourceFlags
	server string
	short  bool // --namespace is that of a Service, and no limit to what is read
}

func (f *askFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.server, "server", "", "ask a running epdns by the URL of its HTTP address, such as http://127.0.0.1:9153")
	f.source.register(cmd)
}

// remote is the server to ask, or nil where there is none. With a server, flags
// that say what to read and how, others among them, have no meaning.
func (f *askFlags) remote(cmd *cobra.Command, others ...string) (*remote, error) {
	if !cmd.Flags().Changed("server") {
		return nil, notEmpty(cmd, "config", "manifests", "kubeconfig", "context")
	}
	for _, flag := range append([]string{"manifests", "kubeconfig", "context", "namespace"}, others...) {
		if cmd.Flags().Changed(flag) && !(f.short && flag == "namespace") {
			return nil, usagef("--server cannot be given together with --%s", flag)
		}
	}
	r, err := newRemote(f.server)
	if err != nil {
		return nil, usageError{fmt.Errorf("--server %w", err)}
	}
	return r, nil
}

// open finds the source that s names, where there is no server to ask.
func (f *askFlags) open(ctx context.Context, s *sourceFlags, log *slog.Logger) (registry.Source, error) {
	source, err := s.open(ctx, log)
	if errors.Is(err, kube.ErrNoCluster) {
		err = fmt.Errorf("%w, or --server URL to ask a running epdns", err)
	}
	return source, err
}

// remote is a running epdns.
type remote struct {
	base   *url.URL
	client *http.Client
}

func newRemote(text string) (*remote, error) {
	u, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"http", "https", "dns"}, u.Scheme) || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is no URL such as http://127.0.0.1:9153", text)
	}
	return &remote{u, &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: 10 * time.Second,
	}}}, nil
}

func (r *remote) String() string { return r.base.Redacted() }

// lostError is an error of the network: trying again may help.
type lostError struct{ error }

func (e lostError) Unwrap() error { return e.error }

// speaksNoHTTP says whether somebody took the connection and answered something else,
// or nothing.
func speaksNoHTTP(err error) bool {
	if errors.As(err, new(*net.OpError)) {
		return false
	}
	// Who speaks first, before a request, is told by words alone.
	text := err.Error()
	odd := strings.Contains(text, "malformed HTTP") || strings.Contains(text, "readLoopPeekFail")
	timeout := net.Error(nil)
	return errors.Is(err, io.EOF) || odd || errors.As(err, &timeout) && timeout.Timeout()
}

// advised is an error of a request to a server, with what to do where that is known.
func advised(ctx context.Context, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("%w; is epdns running there? What is meant is the address of --http", err)
	}
	if ctx.Err() == nil && speaksNoHTTP(err) {
		err = fmt.Errorf("no HTTP there (%w): is it the address of --http?", err)
	}
	return err
}

// get asks for a page of this media type. Whatever else comes is an error.
func (r *remote) get(ctx context.Context, path string, query url.Values, mediaType string) (io.ReadCloser, error) {
	if err := r.needsHTTP(); err != nil {
		return nil, err
	}
	u := r.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", mediaType)
	resp, err := r.client.Do(req)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // without the whole URL
		}
		return nil, lostError{fmt.Errorf("ask %v: %w", r, advised(ctx, err))}
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		err := fmt.Errorf("ask %v for %s: %s: %s", r, path, resp.Status, harmless(strings.Join(strings.Fields(string(b)), " ")))
		if resp.StatusCode >= 500 {
			return nil, lostError{err}
		}
		return nil, err
	}
	if got, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); got != mediaType {
		resp.Body.Close()
		return nil, fmt.Errorf("ask %v for %s: the reply is %q, not %s: is this an epdns?", r, path, got, mediaType)
	}
	return resp.Body, nil
}

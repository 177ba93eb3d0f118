package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/miekg/dns"
)

// lookup asks a running server, again while it has not read all that exists.
func (r *remote) lookup(ctx context.Context, q lookupQuestion) (*dns.Msg, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for late := fmt.Errorf("%v has not answered", r); ; {
		reply, err := r.lookupOnce(ctx, q)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, late
		case err != nil:
			return nil, err
		case !notReady(reply):
			return reply, nil
		}
		late = fmt.Errorf("%v is not ready: it has not read all that exists", r)
		select {
		case <-ctx.Done():
			return nil, late
		case <-tick.C:
		}
	}
}

func (r *remote) lookupOnce(ctx context.Context, q lookupQuestion) (*dns.Msg, error) {
	body, err := r.get(ctx, "/lookup", q.values(), dnsMessage)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	wire, err := io.ReadAll(io.LimitReader(body, dns.MaxMsgSize))
	if err != nil {
		return nil, fmt.Errorf("ask %v: %w", r, err)
	}
	m, err := unpackReply(wire)
	if err != nil {
		return nil, fmt.Errorf("ask %v: %w", r, err)
	}
	return m, nil
}

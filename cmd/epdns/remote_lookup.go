package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/miekg/dns"

	"epdns/zones"
)

// lookup asks a running server, again while it has not read all that exists.
func (r *remote) lookup(ctx context.Context, q lookupQuestion) (reply *dns.Msg, err error) {
	err = r.untilReady(ctx, func() (*dns.Msg, error) {
		if r.byDNS() {
			reply, err = r.lookupDNS(ctx, q)
			return reply, err
		}
		wire, err := r.read(ctx, "/lookup", q.values(), dnsMessage, dns.MaxMsgSize)
		if err != nil {
			return nil, err
		}
		reply, err = r.reply(wire)
		return reply, err
	})
	return reply, err
}

// maxExplained is the longest explanation that is read: of a Service of more than
// 100,000 endpoints.
const maxExplained = 64 << 20

// explain asks a running server for an explanation.
func (r *remote) explain(ctx context.Context, q explainQuestion) (x *explained, err error) {
	err = r.untilReady(ctx, func() (*dns.Msg, error) {
		text, err := r.read(ctx, "/explain", q.values(), applicationJSON, maxExplained)
		if err != nil {
			return nil, err
		}
		x = &explained{}
		if err := json.Unmarshal(text, x); err != nil {
			return nil, fmt.Errorf("ask %v: the reply cannot be read: %w", r, err)
		}
		x.msg, err = r.reply(x.Message)
		return x.msg, err
	})
	return x, err
}

// firstZone is the zone in which a running server has Services by their own names, or one
// to assume where it does not say.
func (r *remote) firstZone(ctx context.Context, otherwise zones.Zone) zones.Zone {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	text, err := r.read(ctx, "/status.json", nil, applicationJSON, maxExplained)
	if err != nil {
		return otherwise // what is wrong is told by the question
	}
	var s seenZones
	if json.Unmarshal(text, &s) != nil || len(s.Zones) == 0 {
		return otherwise
	}
	z := zones.DefaultZone(s.Zones[0].Name)
	if s.Zones[0].Layout == "kubernetes" {
		z.Layout = zones.Kubernetes
	}
	return z
}

// seenZones is what of /status.json tells where names are.
type seenZones struct {
	Zones []struct{ Name, Layout string }
}

func (r *remote) reply(wire []byte) (*dns.Msg, error) {
	m, err := unpackReply(wire)
	if err != nil {
		return nil, fmt.Errorf("ask %v: %w", r, err)
	}
	return m, nil
}

// read asks for all of a page.
func (r *remote) read(ctx context.Context, path string, query url.Values, mediaType string, most int64) ([]byte, error) {
	body, err := r.get(ctx, path, query, mediaType)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, most))
	if err != nil {
		return nil, fmt.Errorf("ask %v: %w", r, err)
	}
	return text, nil
}

// untilReady asks again while the server has not read all that exists.
func (r *remote) untilReady(ctx context.Context, ask func() (*dns.Msg, error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	late := fmt.Errorf("no HTTP from %v (is it the address of --http?)", r)
	if r.byDNS() {
		late = fmt.Errorf("no answer from %v", r)
	}
	for {
		reply, err := ask()
		switch {
		case err != nil && ctx.Err() != nil:
			return late
		case err != nil:
			return err
		case !notReady(reply):
			return nil
		}
		late = fmt.Errorf("%v is not ready: it has not read all that exists", r)
		select {
		case <-ctx.Done():
			return late
		case <-tick.C:
		}
	}
}

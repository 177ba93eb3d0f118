package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"epdns/registry"
	"epdns/zones"
)

// This file is explain as a form:
//
//	/ask?from=WHO&name=NAME&type=TYPE&subnet=PREFIX&tcp=true
//
// WHO is an address, or a Node, a zone, a region or NAMESPACE/SERVICE, of which an address
// is looked up to ask from. NAME may be NAMESPACE/SERVICE, too.

// askTypes are those to choose from.
var askTypes = []string{"A", "AAAA", "SRV", "PTR", "CNAME", "TXT", "SOA", "NS", "ANY"}

// askView is the form, and what it has led to.
type askView struct {
	From, Name, Type, Subnet string
	TCP                      bool

	Types []string
	Fault string // what is wrong with the form
	page  *page

	// The answer, where something was asked.
	Asked    bool
	As       string // the address that who asks was taken for, where that is another text
	Question string
	Status   string
	Flags    string
	Errors   []string
	X        *zones.Explanation // nil: answered without looking at what exists
	Set      []zones.ExplainedKnob
	Answered []zones.ExplainedEndpoint
	MoreOf   int // answered, beyond those
	Left     []zones.ExplainedEndpoint
	MoreLeft []string
	Warning  string
	Reply    string // as lookup prints it
	Command  string // that says the same
	Octets   int
}

const (
	maxAnswered  = 200
	maxAskers    = 300
	maxParameter = 300 // octets of what is typed
)

// ask is the form that a URL fills, with the answer.
func (g *page) ask(ctx context.Context, u *url.URL) (*view, error) {
	x := &askView{Types: askTypes, Type: "A", page: g}
	v := &view{Title: "Who gets what", Nav: "ask", Template: "ask", Data: x}
	par, err := parameters(u, "from", "name", "type", "subnet", "tcp")
	if err != nil {
		return nil, errorOf(http.StatusBadRequest, err)
	}
	for _, text := range par {
		if len(text) > maxParameter {
			return nil, errorOf(http.StatusBadRequest, fmt.Errorf("%q is too long", cut(text)))
		}
	}
	x.From, x.Name, x.Subnet = strings.TrimSpace(par["from"]), strings.TrimSpace(par["name"]), strings.TrimSpace(par["subnet"])
	x.Type, x.TCP = cmp.Or(strings.ToUpper(par["type"]), "A"), par["tcp"] == "true"
	if !slices.Contains(askTypes, x.Type) {
		x.Types = append(slices.Clone(askTypes), x.Type)
	}
	if x.Name == "" {
		if len(par) > 0 && x.From+x.Subnet != "" {
			x.Fault = "Which name? One such as web.shop.registry.local, or shop/web"
		}
		return v, nil
	}
	done, err := g.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := g.fill(x); err != nil {
		x.Fault = strings.ToUpper(err.Error()[:1]) + err.Error()[1:]
		v.Status = http.StatusBadRequest
	}
	return v, nil
}

// fill asks what the form says.
func (g *page) fill(x *askView) error {
	set := g.p.zones.Load()
	var q explainQuestion
	q.tcp = x.TCP
	name := x.Name
	if key, err := parseService(name); err == nil {
		if g.p.registry.Snapshot(key.Namespace, key.Name) == nil {
			return fmt.Errorf("there is no Service %v", key)
		}
		names := set.NamesOf(key)
		if len(names) == 0 {
			return fmt.Errorf("no zone that is served has Service %v", key)
		}
		name = names[0]
	}
	if err := q.setName(name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	typ := x.Type
	if q.qtype == dns.TypePTR {
		typ, x.Type = "", "PTR" // of an address
	}
	if err := q.setType(typ); err != nil {
		return fmt.Errorf("type: %w", err)
	}
	if err := q.setSubnet(x.Subnet); err != nil {
		return fmt.Errorf("for whom: %w", err)
	}
	from, err := g.asker(x.From)
	if err != nil {
		return fmt.Errorf("who asks: %w", err)
	}
	q.from = from
	if from.String() != x.From {
		x.As = from.String()
	}
	e, err := q.explain(g.dns.NewResponder())
	if err != nil {
		return fmt.Errorf("name: %w", err)
	}
	server := "URL"
	if addr := g.http.Addr(); addr != nil {
		server = "http://localhost:" + portOf(addr.String())
	}
	x.show(&q, e, server)
	return nil
}

// show takes what a page needs from an answer.
func (x *askView) show(q *explainQuestion, e *explained, server string) {
	x.Asked = true
	x.Question = q.name + " " + dns.Type(q.qtype).String() + " over " + strings.ToUpper(e.Transport)
	x.Status, x.Flags, x.Octets = statusText(e.msg), strings.TrimSpace(flagsText(e.msg)), len(e.Message)
	for _, ede := range extendedErrors(e.msg) {
		x.Errors = append(x.Errors, fmt.Sprintf("%d (%s)", ede.InfoCode, extendedErrorText(ede)))
	}
	x.Command = "epdns explain " + shellWord(q.name) + " " + dns.Type(q.qtype).String() + " --from " + q.from.String()
	if q.subnet.IsValid() {
		x.Command += " --subnet " + q.subnet.String()
	}
	if q.tcp {
		x.Command += " --tcp"
	}
	x.Command += " --server " + server
	e.msg.Answer = e.msg.Answer[:min(len(e.msg.Answer), maxAnswered)]
	e.msg.Extra = e.msg.Extra[:min(len(e.msg.Extra), maxAnswered)]
	var reply bytes.Buffer
	printReply(&reply, e.msg)
	x.Reply = reply.String()
	if x.X = e.Explanation; x.X == nil {
		return
	}
	for _, k := range x.X.Knobs {
		if k.IsSet() {
			x.Set = append(x.Set, k)
		}
	}
	if x.X.Records > bindMax {
		x.Warning = tooManyText(x.X.Records, q.qtype) + "; the knob limit makes it fewer"
	}
	n := answeredOf(x.X.Endpoints)
	x.Answered, x.Left = x.X.Endpoints[:min(n, maxAnswered)], x.X.Endpoints[n:]
	x.MoreOf = n - len(x.Answered)
	more := map[string]uint64{}
	for i := maxLeftOut; i < len(x.Left); i++ {
		more[x.Left[i].Why]++
	}
	x.Left = x.Left[:min(len(x.Left), maxLeftOut)]
	for _, why := range byCount(more) {
		x.MoreLeft = append(x.MoreLeft, fmt.Sprintf("and %d more: %s", more[why], why))
	}
}

// Askers are names to choose from: of zones, regions and Nodes, as many as are of use.
func (x askView) Askers() (out []string) {
	nodes := x.page.p.registry.AllNodes()
	for _, of := range []func(*registry.Node) string{
		func(n *registry.Node) string { return n.Zone },
		func(n *registry.Node) string { return n.Region },
		func(n *registry.Node) string { return n.Name },
	} {
		seen := map[string]bool{"": true}
		for _, n := range nodes {
			if name := of(n); !seen[name] && len(out) < maxAskers {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	return out
}

// shellWord is a text as one word of a shell's: who copies a command gets nothing else.
func shellWord(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// maxTried is how many addresses are tried for a place.
const maxTried = 64

// asker is an address to ask from. Nothing is this machine.
func (g *page) asker(text string) (netip.Addr, error) {
	var q lookupQuestion
	err := q.setFrom(text)
	if err == nil {
		return q.from, nil
	}
	if key, err := parseService(text); err == nil {
		svc := g.p.registry.Snapshot(key.Namespace, key.Name)
		if svc == nil {
			return netip.Addr{}, fmt.Errorf("there is no Service %v", key)
		}
		for _, m := range svc.Members() {
			if m.Ready && m.Addr.IsValid() {
				return m.Addr, nil
			}
		}
		return netip.Addr{}, fmt.Errorf("no endpoint of Service %v is ready", key)
	}
	set := g.p.zones.Load()
	tried, known := 0, false
	for addr, where := range g.addresses(text) {
		known = true
		if is := placeOf(set, addr); where(is) {
			return addr, nil
		}
		if tried++; tried == maxTried {
			break
		}
	}
	if known {
		return netip.Addr{}, fmt.Errorf("no address is known to be in %q: its Nodes and endpoints tell none that counts (see clients.sources in the configuration)", cut(text))
	}
	return netip.Addr{}, fmt.Errorf("%q is no address, and no Node, zone, region or Service that is known", cut(text))
}

// addresses are those that may be at a place of that name: of Nodes, and where none has that
// name, of endpoints. Each comes with what must be so if it is taken to be there.
func (g *page) addresses(name string) iter.Seq2[netip.Addr, func(*zones.ExplainedAsker) bool] {
	levels := []struct {
		node     func(*registry.Node) string
		endpoint func(*registry.Endpoint) string
		is       func(*zones.ExplainedAsker) bool
	}{
		{func(n *registry.Node) string { return n.Name }, func(e *registry.Endpoint) string { return e.Node }, func(a *zones.ExplainedAsker) bool { return a.Node == name }},
		{func(n *registry.Node) string { return n.Zone }, func(e *registry.Endpoint) string { return e.Zone }, func(a *zones.ExplainedAsker) bool { return a.Zone == name }},
		{func(n *registry.Node) string { return n.Region }, func(e *registry.Endpoint) string { return e.Region }, func(a *zones.ExplainedAsker) bool { return a.Region == name }},
	}
	return func(yield func(netip.Addr, func(*zones.ExplainedAsker) bool) bool) {
		for _, l := range levels {
			for _, n := range g.p.registry.AllNodes() {
				if l.node(n) != name {
					continue
				}
				for _, addr := range n.Addresses {
					if !yield(addr, l.is) {
						return
					}
				}
				for _, p := range n.PodCIDRs {
					if !yield(p.Addr().Next(), l.is) {
						return
					}
				}
			}
		}
		for svc := range g.p.registry.All() {
			for _, slice := range svc.Slices {
				for _, e := range slice.Endpoints.All() {
					for _, l := range levels {
						if l.endpoint(&e) == name && !yield(e.Addr, l.is) {
							return
						}
					}
				}
			}
		}
	}
}

// placeOf is where an address is taken to be.
func placeOf(set *zones.Set, addr netip.Addr) *zones.ExplainedAsker {
	q := &zones.Question{Name: []byte{0}, Type: zones.TypeA, From: addr.Unmap()}
	a := zones.NewAnswer()
	set.Lookup(q, a)
	return &a.Explain().Asker
}

// badParameter is an error of one.
func badParameter(name string, err error) error {
	return errorOf(http.StatusBadRequest, fmt.Errorf("parameter %q: %w", name, err))
}

// cut is the beginning of a text, for messages.
func cut(text string) string {
	const most = 60
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// errBusy is for those who would have too much done at once.
var errBusy = errorOf(http.StatusServiceUnavailable, errors.New("others are asking; try again in a moment"))

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"epdns/registry"
	"epdns/zones"
)

// This file compares what a resolver answers with what epdns does, and says what becomes of
// answers on the way: each finding is a line, which ends with what to do.
//
//	through ADDR: NAME TYPE: WHY; WHAT TO DO
//	warning: through ADDR: NAME TYPE: WHY; WHAT TO DO
//
// Nothing is written to the cluster. Whether changes get through in time shows in TTLs, in what
// comes when they are over, and in changes that happen to come meanwhile.

// way is one to epdns.
type way struct {
	asker
	out      io.Writer
	truth    *truth
	zone     string // without its final dot
	software string // empty if not known
	found    int    // faults
	begun    time.Time
	looked   time.Time // when all that is in a cache was there at the latest; zero before
	told     map[string]bool
	hint     string // behind what may come of another configuration
}

// slack is what changes, questions and clocks may be late.
const slack = time.Second

// newWay is the one through a resolver to what a store has.
func newWay(out io.Writer, to netip.AddrPort, store *zones.Store, services []*registry.Service) *way {
	return &way{asker: asker{to: to}, out: out, truth: newTruth(store, services), begun: time.Now(), told: map[string]bool{}}
}

// check asks until ctx ends at the latest, for these names or for some of each kind, and returns
// how many faults there are.
func (w *way) check(ctx context.Context, services []*registry.Service, in []zones.Zone, names []string) int {
	version := w.version(ctx)
	w.software = cmp.Or(softwareOf(w.to.Addr(), version), w.software)
	if version != "" {
		fmt.Fprintf(w.out, "%v: it calls itself \"%s\"\n", w, version)
	}
	var routed *zones.Zone
	for _, z := range in {
		w.zone = strings.TrimSuffix(z.Name, ".")
		found, reached := w.checkRoute(ctx)
		if found && routed == nil {
			routed = &z
		}
		if !reached {
			return w.found
		}
	}
	if routed == nil {
		return w.found
	}
	w.zone = strings.TrimSuffix(routed.Name, ".")
	all := w.truth.named(names)
	if len(names) == 0 {
		all = w.truth.choose(services, *routed)
	}
	if len(all) == 0 {
		w.warn("", "there is no Service whose answer is the same for all who ask, so nothing to compare; --name NAME has one asked for nevertheless")
		return w.found
	}
	w.truth.note(all)
	following, stop := context.WithCancel(ctx)
	defer stop()
	go w.truth.follow(following, all)

	for _, s := range all {
		w.look(ctx, s)
		w.look(ctx, s) // from a cache, if there is one
	}
	w.looked = time.Now()
	w.checkOrder(ctx, all)
	w.checkSubnets(ctx, services, *routed, all)
	w.checkFreshness(ctx, all)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		w.fault("", "not all questions had an answer in time; --timeout gives more")
	case w.found == 0 && ctx.Err() == nil:
		fmt.Fprintf(w.out, "%v: %s, answered as epdns answers\n", w, counted(w.asked, "question"))
	}
	return w.found
}

func (w *way) String() string {
	if w.to.Port() == 53 {
		return "through " + w.to.Addr().String()
	}
	return "through " + w.to.String()
}

func (w *way) fault(what, format string, args ...any) {
	w.found++
	w.tell("", what, fmt.Sprintf(format, args...))
}

// once says whether something is told for the first time: one subject is enough.
func (w *way) once(finding string) bool {
	first := !w.told[finding]
	w.told[finding] = true
	return first
}

func (w *way) warn(what, format string, args ...any) {
	w.tell("warning: ", what, fmt.Sprintf(format, args...))
}

func (w *way) tell(prefix, what, text string) {
	if what != "" {
		what += ": "
	}
	fmt.Fprintf(w.out, "%s%v: %s%s\n", prefix, w, what, text)
}

func (w *way) remedy(a ailment) string { return remedy(a, w.software, w.zone) }

// version is what the server calls itself (RFC 4892), empty if it does not say.
func (w *way) version(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m := newQuery("version.bind.", dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	reply, _, err := w.exchange(ctx, m)
	if err != nil {
		return ""
	}
	w.recognize(reply)
	if len(reply.Answer) == 0 {
		return ""
	}
	txt, ok := reply.Answer[0].(*dns.TXT)
	if !ok {
		return ""
	}
	return plain(strings.Join(txt.Txt, " "))
}

// plain is a text from elsewhere, which is safe for terminals.
func plain(text string) string {
	const most = 100
	text = harmless(text)
	if all := []rune(text); len(all) > most {
		text = string(all[:most])
	}
	return text
}

// checkRoute says whether questions for the zone come to epdns, and whether the server answers
// at all.
func (w *way) checkRoute(ctx context.Context) (found, reached bool) {
	m := newQuery("dns-version."+w.zone+".", dns.TypeTXT)
	want := w.truth.answer(m.Question[0].Name, dns.TypeTXT)
	if want == nil || len(want.Answer) == 0 {
		return true, true // what cannot be asked for tells nothing
	}
	reply, _, err := w.exchange(ctx, m)
	switch {
	case err != nil && reply == nil:
		w.fault("", "%s", w.unanswered(ctx, m, err))
		return false, false
	case reply.Rcode == dns.RcodeSuccess && slices.Equal(recordSet(reply), recordSet(want)):
		return true, true
	}
	w.recognize(reply)
	status := statusText(reply) + w.extended(reply)
	switch reply.Rcode {
	case dns.RcodeRefused:
		w.fault(w.zone, "%s: it has no way to epdns for this zone, or does not serve this machine; %s", status, w.remedy(noRoute))
	case dns.RcodeNameError:
		where := ""
		if w.zone == "local" || strings.HasSuffix(w.zone, ".local") {
			where = ", such as the root servers, which know of no local"
		}
		w.fault(w.zone, "%s: it asks others than epdns%s; %s", status, where, w.remedy(noRoute))
	case dns.RcodeServerFailure:
		m.CheckingDisabled = true
		m.Id = dns.Id()
		if unchecked, _, err := w.exchange(ctx, m); err == nil && unchecked.Rcode == dns.RcodeSuccess && len(unchecked.Answer) > 0 {
			w.fault(w.zone, "%s with DNSSEC, and an answer without; the zone is not signed: %s", status, w.remedy(badDNSSEC))
			break
		}
		w.fault(w.zone, "%s: it does not reach epdns (is the address right that it sends the zone to, is port 53 open from there, over UDP and TCP?), epdns has not read the cluster (/readyz), or it has no way for this zone; %s", status, w.remedy(badUpstream))
	case dns.RcodeSuccess:
		w.fault(w.zone, "its answer for %s TXT is not epdns's: who answers has a zone of the same name, or drops such records; %s", strings.TrimSuffix(m.Question[0].Name, "."), w.remedy(noRoute))
	default:
		w.fault(w.zone, "%s for %s TXT; is this a resolver?", status, strings.TrimSuffix(m.Question[0].Name, "."))
	}
	return false, true
}

// extended are the extended errors of a reply, for behind its status.
func (w *way) extended(m *dns.Msg) (text string) {
	for _, e := range extendedErrors(m) {
		text += ", " + plain(extendedErrorText(e))
	}
	return text
}

// recognize learns the software from a reply, if nothing has told it.
func (w *way) recognize(reply *dns.Msg) {
	for _, e := range extendedErrors(reply) {
		if knotMark.MatchString(e.ExtraText) && w.software == "" {
			w.software = isKnot
		}
	}
}

// look asks for a subject once and says what can be said at once.
func (w *way) look(ctx context.Context, s *subject) {
	if ctx.Err() != nil || s.failed {
		return
	}
	want := w.truth.answer(s.name, s.qtype)
	if want == nil {
		return
	}
	asked := time.Now()
	s.history.note(recordSet(want), asked)
	m := newQuery(s.name, s.qtype)
	reply, cut, err := w.exchange(ctx, m)
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case err != nil && cut:
		s.failed = true
		if w.once("cut") {
			w.fault(s.String(), "a part comes over UDP, and the rest does not over TCP (%v); %s", err, w.remedy(noTCP))
		}
		return
	case err != nil:
		s.failed = true
		text := err.Error()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			text = "no answer within " + (udpTries * udpWait).String()
		}
		w.fault(s.String(), "%s, though there was one for %s", text, w.zone)
		return
	}
	w.recognize(reply)
	if !w.checkStatus(s, reply, want) {
		return
	}
	w.checkTTL(s, reply, want)
	w.checkContent(s, reply, want, asked)
	if s.qtype == dns.TypeSRV && len(reply.Answer) > 0 && len(sections(want)[2]) > 0 && len(sections(reply)[2]) == 0 && w.once("additional") {
		w.warn(s.String(), "the addresses of the targets are left out, and clients such as HAProxy ask for each: %s", w.remedy(noAdditional))
	}
}

// checkStatus says whether an answer is of the kind that it should be. The first one need not,
// if it may come from a cache.
func (w *way) checkStatus(s *subject, reply, want *dns.Msg) (good bool) {
	records, wanted := len(reply.Answer) > 0, len(want.Answer)
	if reply.Rcode == want.Rcode && records == (wanted > 0) {
		return true
	}
	answers := reply.Rcode == dns.RcodeSuccess || reply.Rcode == dns.RcodeNameError
	if answers && s.role != roleReverse && w.looked.IsZero() {
		w.keep(s, reply)
		return false
	}
	s.failed = true
	status := statusText(reply) + w.extended(reply)
	switch {
	case reply.Rcode == dns.RcodeSuccess && records:
		status = counted(len(reply.Answer), "record")
	case reply.Rcode == dns.RcodeSuccess:
		status = "no records" + w.extended(reply)
	}
	has := "and epdns has " + counted(wanted, "record")
	switch {
	case s.role == roleReverse:
		w.warn(s.String(), "%s: the way back from addresses does not lead to epdns, which clients can do without; %s", status, w.remedy(noReverseRoute))
	case wanted > 0 && s.qtype == dns.TypeA && isPrivate(want) && (wanted <= bindMax || reply.Rcode != dns.RcodeServerFailure):
		if w.once("private") {
			w.fault(s.String(), "%s, %s: private addresses are dropped, as if they came from outside (DNS rebinding); %s", status, has, w.remedy(privateDropped))
		}
	case wanted > bindMax && reply.Rcode == dns.RcodeServerFailure:
		if !w.told["private"] {
			w.fault(s.String(), "%s, %s; %s", status, has, w.remedy(tooManyRecords))
		}
	case wanted > 0 && (s.qtype == dns.TypeAAAA || s.qtype == dns.TypeSRV) && w.told["private"]:
		// By the same setting: targets have such addresses, too.
	case wanted > 0 && s.qtype == dns.TypeAAAA:
		w.fault(s.String(), "%s, %s: IPv6 addresses do not get through; %s", status, has, w.remedy(ipv6Filtered))
	case wanted > 0 && s.qtype == dns.TypeSRV:
		w.fault(s.String(), "%s, %s: SRV does not get through; %s", status, has, w.remedy(srvFiltered))
	case wanted > 0:
		w.fault(s.String(), "%s, %s; %s", status, has, w.remedy(servedStale))
	case records:
		w.fault(s.String(), "%s, and epdns has none; %s", status, w.remedy(servedStale))
	case want.Rcode == dns.RcodeSuccess && reply.Rcode == dns.RcodeNameError:
		w.fault(s.String(), "%s, and by epdns the name exists without such records: to clients it says that there are none of other types either", status)
	default:
		w.fault(s.String(), "%s, and epdns says %s", status, statusText(want))
	}
	return false
}

// allowed is how long an answer may be kept.
func (w *way) allowed(s *subject) time.Duration {
	ttl := 0
	if want := w.truth.answer(s.name, s.qtype); want != nil {
		ttl = max(0, least(want))
	}
	return time.Duration(ttl) * time.Second
}

// carrierGrade is what some clusters have for Pods, and resolvers take for private as well (RFC
// 6598).
var carrierGrade = netip.MustParsePrefix("100.64.0.0/10")

func isPrivate(m *dns.Msg) bool {
	return !slices.ContainsFunc(m.Answer, func(rr dns.RR) bool {
		var ip netip.Addr
		switch rr := rr.(type) {
		case *dns.A:
			ip, _ = netip.AddrFromSlice(rr.A)
		case *dns.AAAA:
			ip, _ = netip.AddrFromSlice(rr.AAAA)
		default:
			return false // an alias, or what is no address
		}
		ip = ip.Unmap()
		return !ip.IsPrivate() && !carrierGrade.Contains(ip)
	})
}

// keep remembers the TTL and the order of a reply.
func (w *way) keep(s *subject, reply *dns.Msg) {
	s.highest = max(s.highest, least(reply))
	if s.seen == nil {
		s.seen = recordOrder(reply)
	}
}

func recordOrder(m *dns.Msg) (all []string) {
	for _, rr := range m.Answer {
		all = append(all, recordData(rr))
	}
	return all
}

// longNegative is how much longer what is not there may be kept without harm, in seconds.
const longNegative = 5

func (w *way) checkTTL(s *subject, reply, want *dns.Msg) {
	w.keep(s, reply)
	got, most := least(reply), least(want)
	if got <= most || most < 0 {
		return
	}
	const text = "it keeps this for %d s, and epdns says %d s: %s%s"
	switch none := len(reply.Answer) == 0; {
	case none && w.once("TTL of none") && got > longNegative || !none && w.once("TTL"):
		w.fault(s.String(), text, got, most, w.remedy(ttlRaised), w.hint)
	case none && got <= longNegative && w.looked.IsZero() && w.once("short TTL of none"):
		// Later, the SOA may be one that came with another name and was kept for that.
		w.warn(s.String(), text, got, most, w.remedy(ttlRaised), w.hint)
	}
}

// checkContent compares the records with what epdns has had for as long as a cache may be late.
func (w *way) checkContent(s *subject, reply, want *dns.Msg, asked time.Time) {
	if len(reply.Answer) == 0 {
		return
	}
	got := recordSet(reply)
	if s.role == roleReverse || s.role == roleNamed && !w.truth.steady(s.name, s.qtype) {
		if s.role == roleReverse && !slices.Equal(got, recordSet(want)) {
			w.warn(s.String(), "it says %s, and epdns %s; %s", strings.Join(got, ", "), strings.Join(recordSet(want), ", "), w.remedy(noReverseRoute))
		}
		return
	}
	allowed := w.allowed(s) + slack
	switch stale, missing := s.history.differences(got, asked, w.begun, allowed); {
	case len(stale) > 0 && len(missing) == len(recordSet(want)):
		w.fault(s.String(), "it has nothing of what epdns has for %v: %s in place of %s. Who answers it is another server, or stands still; %s", allowed, some(stale), some(missing), w.remedy(servedStale))
	case len(stale) > 0:
		w.fault(s.String(), "it still has what epdns has not had for %v: %s; %s", allowed, some(stale), w.remedy(servedStale))
	case len(missing) > 0:
		w.fault(s.String(), "it has %d of %d records, without what epdns has had for %v: %s; it leaves some out, or its answers are old: %s", len(got), len(got)+len(missing), allowed, some(missing), w.remedy(servedStale))
	}
}

// some are the first of a list.
func some(list []string) string {
	const few = 3
	text := strings.Join(list[:min(few, len(list))], ", ")
	if len(list) > few {
		text += fmt.Sprintf(" and %d more", len(list)-few)
	}
	return text
}

// checkOrder says whether one answer comes in several orders.
func (w *way) checkOrder(ctx context.Context, all []*subject) {
	i := slices.IndexFunc(all, func(s *subject) bool {
		return (s.role == roleOrdinary || s.role == roleMany || s.role == roleNamed) && s.qtype == dns.TypeA && !s.failed && len(s.seen) >= fewLeast
	})
	if i < 0 {
		return
	}
	s := all[i]
	before, ttl := s.seen, s.highest
	kept, orders := false, 1
	for range 6 {
		if !sleep(ctx, 200*time.Millisecond) {
			return
		}
		reply, _, err := w.exchange(ctx, newQuery(s.name, s.qtype))
		if err != nil || least(reply) > ttl {
			return // a new answer, which may have an order of its own
		}
		kept = kept || least(reply) < ttl
		ttl = least(reply)
		if order := recordOrder(reply); !slices.Equal(order, before) && sameRecords(order, before) {
			orders++
			before = order
		}
	}
	if kept && orders > 1 {
		w.warn(s.String(), "one answer comes in changing orders, which spreads clients, and matters only where the order is to rank them (most sort addresses themselves; SRV has priorities): %s", w.remedy(reordered))
	}
}

func sameRecords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Subnets for documentation (RFC 5737), for which nobody asks.
var subnets = []string{"198.51.100.0", "203.0.113.0"}

// checkSubnets says whether answers for one EDNS Client Subnet are given to another: the asker's
// own, if the resolver sets it.
func (w *way) checkSubnets(ctx context.Context, services []*registry.Service, zone zones.Zone, asked []*subject) {
	for _, svc := range services[:min(len(services), maxLooked)] {
		name := nameIn(svc.Key, zone)
		want := w.truth.answer(name, dns.TypeA)
		if want == nil || len(want.Answer) == 0 || w.truth.steady(name, dns.TypeA) || slices.ContainsFunc(asked, func(s *subject) bool { return s.name == name }) {
			continue // all get the same, or it is in a cache
		}
		first := w.askFor(ctx, name, subnets[0])
		if first == nil || first.scope == 0 || !sleep(ctx, 1100*time.Millisecond) { // for a TTL to be lower
			return
		}
		second := w.askFor(ctx, name, subnets[1])
		if second != nil && second.ttl < first.ttl && second.subnet != subnets[1] {
			w.fault(strings.TrimSuffix(name, ".")+" A", "it asks for its clients' subnets and keeps the answer for all: others get what suits the first; %s", w.remedy(subnetsMixed))
		}
		return
	}
}

// subnetReply is what is told of a subnet.
type subnetReply struct {
	subnet string
	scope  uint8
	ttl    int
}

func (w *way) askFor(ctx context.Context, name, subnet string) *subnetReply {
	q := lookupQuestion{}
	if err := q.setSubnet(subnet + "/24"); err != nil {
		return nil
	}
	reply, _, err := w.exchange(ctx, newQuery(name, dns.TypeA, &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: q.subnet.Addr().AsSlice()}))
	if err != nil {
		return nil
	}
	r := &subnetReply{ttl: least(reply)}
	if opt := reply.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_SUBNET); ok {
				r.subnet, r.scope = e.Address.String(), e.SourceScope
			}
		}
	}
	return r
}

// checkFreshness asks again when what came first is over: what comes then must be fresh, and
// right.
func (w *way) checkFreshness(ctx context.Context, all []*subject) {
	end, _ := ctx.Deadline()
	var again []*subject
	var longest, late time.Duration
	var of []string
	for _, s := range all {
		if s.failed || s.role == roleReverse {
			continue
		}
		wait := max(w.allowed(s), time.Duration(s.highest)*time.Second) + slack + slack/4
		if w.looked.Add(wait + slack).After(end) {
			late, of = max(late, wait), append(of, s.String())
			continue
		}
		longest = max(longest, wait)
		again = append(again, s)
	}
	if late > 0 {
		w.warn("", "whether answers are fresh was not looked at for %s, which may be kept for longer than there is time; --timeout %v is enough", some(of), (time.Since(w.begun) + late + 2*slack).Round(time.Second))
	}
	if len(again) == 0 || !sleep(ctx, time.Until(w.looked.Add(longest))) {
		return
	}
	for _, s := range again {
		if !w.servesStale(ctx, s) {
			w.look(ctx, s)
		}
	}
}

// servesStale says whether an answer that is over is given once more.
func (w *way) servesStale(ctx context.Context, s *subject) bool {
	reply, _, err := w.exchange(ctx, newQuery(s.name, s.qtype))
	want := w.truth.answer(s.name, s.qtype)
	if err != nil || want == nil {
		return false
	}
	for _, e := range extendedErrors(reply) {
		if e.InfoCode == dns.ExtendedErrorCodeStaleAnswer || e.InfoCode == dns.ExtendedErrorCodeStaleNXDOMAINAnswer {
			if w.once("stale") {
				w.fault(s.String(), "it says that its answer is stale (%s); %s. epdns says so, too, while it has lost the cluster", plain(extendedErrorText(e)), w.remedy(servedStale))
			}
			return true
		}
	}
	ttl, most := least(reply), least(want)
	over := ttl > most && s.highest <= most || ttl == 0 && most > 0 && !countsToZero[w.software]
	if over && len(reply.Answer) > 0 && len(want.Answer) > 0 {
		if w.once("stale") {
			w.fault(s.String(), "what is over is given once more, with a TTL of %d s, however old: %s", ttl, w.remedy(servedStale))
		}
		return true
	}
	return false
}

// inZones says whether a name is in one of the zones.
func inZones(name string, in []zones.Zone) bool {
	name = strings.ToLower(dns.Fqdn(name))
	return slices.ContainsFunc(in, func(z zones.Zone) bool {
		return dns.IsSubDomain(dns.Fqdn(cmp.Or(z.Name, ".")), name)
	})
}

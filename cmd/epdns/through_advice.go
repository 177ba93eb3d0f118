package main

import (
	"net/netip"
	"regexp"
	"strings"
)

// This file says which setting of which software is meant. docs/forwarders.md has the same, as
// whole files, which tests start.

// ailment is something wrong on the way.
type ailment uint8

const (
	noRoute ailment = iota
	noReverseRoute
	badDNSSEC
	badUpstream
	ttlRaised
	servedStale
	reordered
	tooManyRecords
	noTCP
	noAdditional
	privateDropped
	ipv6Filtered
	srvFiltered
	subnetsMixed
)

// Software, as remedies know it.
const (
	isCoreDNS   = "CoreDNS"
	isUnbound   = "unbound"
	isBIND      = "BIND"
	isDnsmasq   = "dnsmasq"
	isKnot      = "Knot Resolver"
	isResolved  = "systemd-resolved"
	isNodeLocal = "NodeLocal DNSCache"
	isEpdns     = "epdns"
)

// remedies are the settings, by software. CoreDNS's is told where the software is not known:
// it is what clusters have.
var remedies = map[ailment]map[string]string{
	noRoute: {
		isCoreDNS:   "its Corefile needs a block for the zone, as in deploy/snippets/coredns.Corefile",
		isNodeLocal: "it needs a stub domain, as in deploy/snippets/nodelocaldns.yaml",
		isUnbound:   "it needs a stub-zone of that name, as in deploy/snippets/unbound.conf",
		isBIND:      "it needs a zone of type forward, as in deploy/snippets/named.zones.conf",
		isDnsmasq:   "it needs server=/ZONE/ADDRESS, as in deploy/snippets/dnsmasq.conf",
		isKnot:      "it needs policy.FORWARD for the zone, as in deploy/snippets/kresd.conf",
		isResolved:  "it needs Domains=~ZONE beside DNS=ADDRESS, as in deploy/snippets/resolved.conf; without, names in .local are for multicast DNS",
	},
	noReverseRoute: {
		isCoreDNS:   "a block for the Pods' prefix, as in deploy/snippets/coredns.Corefile, sends it to epdns",
		isNodeLocal: "reverse zones go to the cluster's CoreDNS, which needs a block for the Pods' prefix, as in deploy/snippets/coredns.Corefile",
		isUnbound:   "it needs a stub-zone and a local-zone of type transparent for the Pods' prefix, as in deploy/snippets/unbound.conf",
		isBIND:      "it needs a zone of type forward for the Pods' prefix, and disable-empty-zone, as in deploy/snippets/named.zones.conf and named.options.conf",
		isDnsmasq:   "it needs rev-server=PREFIX,ADDRESS, as in deploy/snippets/dnsmasq.conf",
		isKnot:      "the reverse zone has to stand in policy.FORWARD, too, as in deploy/snippets/kresd.conf",
		isResolved:  "Domains= needs a route for the reverse zone, as in deploy/snippets/resolved.conf",
	},
	badDNSSEC: {
		isUnbound:  `it needs domain-insecure: "ZONE"`,
		isBIND:     `it needs validate-except { "ZONE"; }`,
		isDnsmasq:  "leave dnssec out, or give it an older dnssec-no-timecheck; names sent on by server=/ZONE/ are not to be validated",
		isKnot:     "it needs trust_anchors.set_insecure({'ZONE'}), as in deploy/snippets/kresd.conf",
		isResolved: "set DNSSEC=no, or a negative trust anchor for the zone",
		isCoreDNS:  "the server behind it validates: send the zone to epdns itself",
	},
	badUpstream: {
		isCoreDNS: "its log (plugin errors) says what happens between it and epdns",
		isUnbound: "if epdns is at a loopback address, it needs do-not-query-localhost: no",
	},
	ttlRaised: {
		isCoreDNS:   "in the zone's block, give cache a minimum of 0 as the third number of success and denial, as in deploy/snippets/coredns.Corefile; without, it is 5 s",
		isNodeLocal: "its stub domains have cache 30, which keeps everything for at least 5 s: put the blocks of deploy/snippets/coredns.Corefile into its Corefile instead",
		isUnbound:   "cache-min-ttl must be 0",
		isBIND:      "min-cache-ttl and min-ncache-ttl must be 0",
		isDnsmasq:   "leave min-cache-ttl, neg-ttl and local-ttl out",
		isKnot:      "cache.min_ttl(0), as in deploy/snippets/kresd.conf; without, it is 5 s",
	},
	servedStale: {
		isCoreDNS: "leave serve_stale out of cache in the zone's block",
		isUnbound: "serve-expired must be no",
		isBIND:    "stale-answer-enable must be no",
		isDnsmasq: "leave use-stale-cache out",
		isKnot:    "do not load the module serve_stale",
	},
	reordered: {
		isCoreDNS: "leave loadbalance out of the zone's block",
		isUnbound: "rrset-roundrobin: no keeps it",
		isBIND:    "rrset-order { order none; } keeps it",
		isDnsmasq: "it always turns addresses around",
		isKnot:    "reorder_RR(false) keeps it",
	},
	tooManyRecords: {
		isBIND:    "it needs max-records-per-type 0, as in deploy/snippets/named.options.conf; without, it takes 100; or the annotation registry.local/limit makes them fewer",
		isCoreDNS: "a BIND behind it takes 100 records of a type: max-records-per-type; the annotation registry.local/limit makes them fewer",
	},
	noTCP: {
		isCoreDNS: "answers that do not fit into a datagram need TCP: open port 53 for it, in Services, firewalls and NetworkPolicies, to the resolver and from there to epdns",
	},
	noAdditional: {
		isUnbound: "minimal-responses: no leaves them in, as in deploy/snippets/unbound.conf",
		isBIND:    "minimal-responses no leaves them in",
		isDnsmasq: "it does not keep them in its cache",
		isKnot:    "it always does so",
	},
	privateDropped: {
		isUnbound: `private-address drops them: it needs private-domain: "ZONE"`,
		isDnsmasq: "stop-dns-rebind drops them: it needs rebind-domain-ok=/ZONE/",
		isKnot:    "the module rebinding drops them: do not load it, or have the zone pass before it",
		isBIND:    `deny-answer-addresses drops them: it needs except-from { "ZONE"; }`,
		isCoreDNS: "a resolver behind it drops them: send the zone to epdns itself, as in deploy/snippets/coredns.Corefile",
	},
	ipv6Filtered: {
		isDnsmasq: "leave filter-AAAA out",
		isUnbound: "private-address may have fd00::/8: it needs private-domain",
		isBIND:    "the plugin filter-aaaa must not be used for this zone",
		isCoreDNS: "a template or acl for AAAA does that: not in the zone's block",
	},
	srvFiltered: {
		isDnsmasq: "leave filterwin2k out, which drops SRV and SOA",
	},
	subnetsMixed: {
		isCoreDNS: "leave cache out of a block with rewrite edns0 subnet (docs/coredns.md)",
	},
}

// remedy is what to do about an ailment, of a zone.
func remedy(a ailment, software, zone string) string {
	of := remedies[a]
	text, known := of[software]
	if !known && software == isNodeLocal {
		text, known = of[isCoreDNS] // which it is made of
	}
	zone = strings.TrimSuffix(zone, ".")
	switch {
	case a == noTCP:
		return of[isCoreDNS] // of all
	case known:
		return strings.ReplaceAll(text, "ZONE", zone)
	case software == "" && of[isCoreDNS] != "":
		return "if it is CoreDNS, " + strings.ReplaceAll(of[isCoreDNS], "ZONE", zone) + "; for others see docs/forwarders.md"
	}
	return "docs/forwarders.md has the settings of forwarders"
}

// countsToZero are those for whom a TTL of 0 is that of the last second of an answer, which
// somebody else may have asked for meanwhile. What they give when it is over has a TTL of its
// own: 30 s (unbound), 1 s (Knot Resolver).
var countsToZero = map[string]bool{isUnbound: true, isKnot: true}

// knotMark is what Knot Resolver puts into extended errors: where in its code they come from.
var knotMark = regexp.MustCompile(`^[A-Z0-9]{4}$`)

// Addresses that tell the software.
var addressed = map[netip.Addr]string{
	netip.MustParseAddr("127.0.0.53"):    isResolved,
	netip.MustParseAddr("127.0.0.54"):    isResolved,
	netip.MustParseAddr("169.254.20.10"): isNodeLocal,
}

// callsItself are the forms of version.bind.
var callsItself = []struct {
	form     *regexp.Regexp
	software string
}{
	{regexp.MustCompile(`(?i)^unbound\b`), isUnbound},
	{regexp.MustCompile(`(?i)^dnsmasq\b`), isDnsmasq},
	{regexp.MustCompile(`(?i)^CoreDNS\b`), isCoreDNS},
	{regexp.MustCompile(`(?i)^(BIND )?9\.\d+\.\d+`), isBIND},
	{regexp.MustCompile(`(?i)^knot ?resolver|^kresd`), isKnot},
	{regexp.MustCompile(`(?i)^epdns\b`), isEpdns},
}

// softwareOf guesses by the address, and by what the server calls itself, which may be empty.
func softwareOf(at netip.Addr, version string) string {
	for _, c := range callsItself {
		if c.form.MatchString(version) {
			return c.software
		}
	}
	return addressed[at]
}

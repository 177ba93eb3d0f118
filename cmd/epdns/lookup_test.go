package main

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"epdns/zones"
)

func TestLookupQuestion(t *testing.T) {
	for _, c := range []struct{ name, typ, from, want string }{
		{"web.shop.registry.local", "", "", "web.shop.registry.local. A 127.0.0.1"},
		{"Web.shop.registry.local.", "srv", "10.0.0.1", "Web.shop.registry.local. SRV 10.0.0.1"},
		{".", "NS", "::ffff:10.0.0.1", ". NS 10.0.0.1"},
		{`a\.b.shop.registry.local`, "TYPE1", "", `a\.b.shop.registry.local. A 127.0.0.1`},
		{"web.shop.registry.local", "type65280", "2001:DB8::1", "web.shop.registry.local. TYPE65280 2001:db8::1"},
		{"10.1.2.3", "", "", "3.2.1.10.in-addr.arpa. PTR 127.0.0.1"},
		{"10.1.2.3", "ptr", "", "3.2.1.10.in-addr.arpa. PTR 127.0.0.1"},
		{"::1", "", "", "1." + strings.Repeat("0.", 31) + "ip6.arpa. PTR 127.0.0.1"},
		{"::ffff:10.1.2.3", "", "", "3.2.1.10.in-addr.arpa. PTR 127.0.0.1"},

		{"", "", "", `NAME "" is no domain name`},
		{"a..b", "", "", `NAME "a..b" is no domain name: a label is empty`},
		{".a", "", "", `NAME ".a" is no domain name`},
		{"web." + strings.Repeat("a", 64) + ".registry.local", "", "", `is no domain name: label "` + strings.Repeat("a", 64) + `" has 64 octets, and 63 is the most`},
		{strings.Repeat("a.", 128), "", "", "is no domain name: it has more than 255 octets"},
		{`a\.b..c`, "", "", "is no domain name"},
		{"shop/near", "", "", "near.shop.registry.local. A 127.0.0.1"},
		{"shop/Near", "", "", `NAME "shop/Near" is not NAMESPACE/SERVICE`},
		{"near", "", "", `NAME "near" is no whole name: do you mean near.NAMESPACE.registry.local, or Service near of the namespace`},
		{"near.", "", "", "near. A 127.0.0.1"},
		{"a b", "", "", `character ' '`},
		{"bücher.registry.local", "", "", `character 'ü'`},
		{"a.b", "B", "", `TYPE "B" is not known`},
		{"a.b", "TYPE", "", `TYPE "TYPE" is not known`},
		{"a.b", "TYPE65536", "", `TYPE "TYPE65536" is not known`},
		{"a.b", "TYPE252", "", "transfer"},
		{"a.b", "OPT", "", "nothing to ask for"},
		{"10.1.2.3", "A", "", "PTR records only"},
		{"a.b", "A", "fe80::1%eth0", `--from "fe80::1%eth0" is no IP address`},
	} {
		f := questionFlags{from: c.from}
		args := []string{c.name}
		if c.typ != "" {
			args = append(args, c.typ)
		}
		q, err := f.question(args, zones.DefaultZone("registry.local"), &sourceFlags{manifests: "dir"})
		got := q.name + " " + dns.Type(q.qtype).String() + " " + q.from.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s %s %s: %s, want %s", c.name, c.typ, c.from, got, c.want)
			continue
		}
		if err != nil {
			continue
		}
		u := url.URL{RawQuery: q.values().Encode()}
		if again, _, err := readQuestion(&u); err != nil || again != q {
			t.Errorf("a server reads %v as %+v, %v, meant was %+v", &u, again, err, q)
		}
	}
}

// reply makes a reply of records in presentation form.
func reply(rcode int, answer, authority, additional string) *dns.Msg {
	m := new(dns.Msg).SetRcode(new(dns.Msg).SetQuestion("web.shop.registry.local.", dns.TypeSRV), rcode)
	m.Authoritative = true
	m.SetEdns0(1232, false)
	for to, text := range map[*[]dns.RR]string{&m.Answer: answer, &m.Ns: authority, &m.Extra: additional} {
		for line := range strings.Lines(text) {
			rr, err := dns.NewRR(line)
			if err != nil {
				panic(err)
			}
			*to = append(*to, rr)
		}
	}
	return m
}

func TestPrintReply(t *testing.T) {
	const soa = "registry.local. 5 IN SOA ns.dns.registry.local. hostmaster.registry.local. 1 7200 1800 86400 5"
	found := reply(dns.RcodeSuccess, "web.shop.registry.local. 5 IN SRV 0 1 8080 10-0-0-1.web.shop.registry.local.", "",
		"10-0-0-1.web.shop.registry.local. 5 IN A 10.0.0.1")
	none := reply(dns.RcodeNameError, "", soa, "")
	unready := reply(dns.RcodeServerFailure, "", "", "")
	unready.Authoritative = false
	unready.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotReady, ExtraText: "later"}}
	if !notReady(unready) || notReady(none) {
		t.Error("which one is not ready?")
	}
	for _, c := range []struct {
		m                        *dns.Msg
		text, short, json, table string
	}{
		{found,
			";; status: NOERROR, flags: qr aa rd; answer: 1, authority: 0, additional: 1\n" +
				"\n;; ANSWER SECTION:\nweb.shop.registry.local.\t5\tIN\tSRV\t0 1 8080 10-0-0-1.web.shop.registry.local.\n" +
				"\n;; ADDITIONAL SECTION:\n10-0-0-1.web.shop.registry.local.\t5\tIN\tA\t10.0.0.1\n",
			"0 1 8080 10-0-0-1.web.shop.registry.local.\n",
			`{"name":"web.shop.registry.local.","type":"SRV","status":"NOERROR","authoritative":true,"truncated":false,` +
				`"answer":[{"name":"web.shop.registry.local.","type":"SRV","ttl":5,"data":"0 1 8080 10-0-0-1.web.shop.registry.local."}],` +
				`"authority":[],"additional":[{"name":"10-0-0-1.web.shop.registry.local.","type":"A","ttl":5,"data":"10.0.0.1"}]}` + "\n",
			"NAME                      TTL  TYPE  DATA\n" +
				"web.shop.registry.local.  5    SRV   0 1 8080 10-0-0-1.web.shop.registry.local.\n"},
		{none,
			";; status: NXDOMAIN, flags: qr aa rd; answer: 0, authority: 1, additional: 0\n" +
				"\n;; AUTHORITY SECTION:\nregistry.local.\t5\tIN\tSOA\tns.dns.registry.local. hostmaster.registry.local. 1 7200 1800 86400 5\n",
			"",
			`{"name":"web.shop.registry.local.","type":"SRV","status":"NXDOMAIN","authoritative":true,"truncated":false,"answer":[],` +
				`"authority":[{"name":"registry.local.","type":"SOA","ttl":5,"data":"ns.dns.registry.local. hostmaster.registry.local. 1 7200 1800 86400 5"}],"additional":[]}` + "\n",
			""},
		{unready,
			";; status: SERVFAIL, flags: qr rd; answer: 0, authority: 0, additional: 0\n;; extended error: 14 (Not Ready: later)\n",
			"",
			`{"name":"web.shop.registry.local.","type":"SRV","status":"SERVFAIL","extendedErrors":[{"code":14,"text":"Not Ready: later"}],` +
				`"authoritative":false,"truncated":false,"answer":[],"authority":[],"additional":[]}` + "\n",
			""},
	} {
		for _, form := range []struct {
			output string
			short  bool
			want   string
		}{{"text", false, c.text}, {"text", true, c.short}, {"json", false, c.json}, {"table", false, c.table}} {
			f := lookupFlags{output: outputFlag{form: form.output, forms: []string{"text", "table", "json"}}, short: form.short}
			show, err := f.printer()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := show(&out, c.m); err != nil {
				t.Fatal(err)
			}
			if out.String() != form.want {
				t.Errorf("got:\n%swant:\n%s", out.String(), form.want)
			}
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/miekg/dns"
)

// A reply is printed as dig prints it, less what is the same each time: the
// records can be read by whatever reads zone files (RFC 1035 section 5), and all
// else stands behind semicolons.

// sections are the records of a reply, without its OPT.
func sections(m *dns.Msg) (out [3][]dns.RR) {
	out[0], out[1] = m.Answer, m.Ns
	for _, rr := range m.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			out[2] = append(out[2], rr)
		}
	}
	return out
}

func printReply(w io.Writer, m *dns.Msg) error {
	var out bytes.Buffer
	all := sections(m)
	fmt.Fprintf(&out, ";; status: %s, flags:%s; answer: %d, authority: %d, additional: %d\n",
		statusText(m), flagsText(m), len(all[0]), len(all[1]), len(all[2]))
	for _, e := range extendedErrors(m) {
		fmt.Fprintf(&out, ";; extended error: %d (%s)\n", e.InfoCode, extendedErrorText(e))
	}
	for i, name := range []string{"ANSWER", "AUTHORITY", "ADDITIONAL"} {
		if len(all[i]) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n;; %s SECTION:\n", name)
		for _, rr := range all[i] {
			fmt.Fprintln(&out, rr)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

func flagsText(m *dns.Msg) (text string) {
	for _, f := range []struct {
		name string
		set  bool
	}{{"qr", m.Response}, {"aa", m.Authoritative}, {"tc", m.Truncated}, {"rd", m.RecursionDesired}, {"ra", m.RecursionAvailable}} {
		if f.set {
			text += " " + f.name
		}
	}
	return text
}

// printReplyShort prints the data of the answer's records.
func printReplyShort(w io.Writer, m *dns.Msg) error {
	var out bytes.Buffer
	for _, rr := range m.Answer {
		fmt.Fprintln(&out, recordData(rr))
	}
	_, err := w.Write(out.Bytes())
	return err
}

func recordData(rr dns.RR) string { return strings.TrimPrefix(rr.String(), rr.Header().String()) }

// replyJSON is what "lookup -o json" prints.
type replyJSON struct {
	Name           string       `json:"name"`
	Type           string       `json:"type"`
	Status         string       `json:"status"`
	ExtendedErrors []errorJSON  `json:"extendedErrors,omitempty"`
	Authoritative  bool         `json:"authoritative"`
	Truncated      bool         `json:"truncated"`
	Answer         []recordJSON `json:"answer"`
	Authority      []recordJSON `json:"authority"`
	Additional     []recordJSON `json:"additional"`
}

type errorJSON struct {
	Code uint16 `json:"code"`
	Text string `json:"text"`
}

type recordJSON struct {
	Name string `json:"name"`
	Type string `json:"type"`
	TTL  uint32 `json:"ttl"`
	Data string `json:"data"`
}

func printReplyJSON(w io.Writer, m *dns.Msg) error {
	return json.NewEncoder(w).Encode(newReplyJSON(m))
}

func newReplyJSON(m *dns.Msg) *replyJSON {
	out := &replyJSON{
		Name:          m.Question[0].Name,
		Type:          dns.Type(m.Question[0].Qtype).String(),
		Status:        statusText(m),
		Authoritative: m.Authoritative,
		Truncated:     m.Truncated,
	}
	for _, e := range extendedErrors(m) {
		out.ExtendedErrors = append(out.ExtendedErrors, errorJSON{e.InfoCode, extendedErrorText(e)})
	}
	all := sections(m)
	for i, to := range []*[]recordJSON{&out.Answer, &out.Authority, &out.Additional} {
		*to = []recordJSON{}
		for _, rr := range all[i] {
			h := rr.Header()
			*to = append(*to, recordJSON{h.Name, dns.Type(h.Rrtype).String(), h.Ttl, recordData(rr)})
		}
	}
	return out
}

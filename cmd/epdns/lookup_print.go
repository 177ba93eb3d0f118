package main

import (
	"bytes"
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
	appendReply(onScreen(w), &out, m)
	_, err := w.Write(out.Bytes())
	return err
}

// appendReply adds a reply as it looks on a screen.
func appendReply(s *screen, out *bytes.Buffer, m *dns.Msg) {
	all := sections(m)
	fmt.Fprintf(out, ";; status: %s, flags:%s; answer: %d, authority: %d, additional: %d\n",
		s.paint(statusStyle(m), statusText(m)), flagsText(m), len(all[0]), len(all[1]), len(all[2]))
	for _, e := range extendedErrors(m) {
		fmt.Fprintf(out, ";; extended error: %s\n", s.paint(yellow, fmt.Sprintf("%d (%s)", e.InfoCode, extendedErrorText(e))))
	}
	for i, name := range sectionNames {
		if len(all[i]) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s\n", s.paint(faint, ";; "+name+" SECTION:"))
		for _, rr := range all[i] {
			fmt.Fprintf(out, "%s%s\n", rr.Header(), s.paint(bold, recordData(rr)))
		}
	}
}

var sectionNames = [3]string{"ANSWER", "AUTHORITY", "ADDITIONAL"}

// statusStyle shows at a glance whether there is an answer, that there is none, or nothing.
func statusStyle(m *dns.Msg) style {
	switch m.Rcode {
	case dns.RcodeSuccess:
		return green
	case dns.RcodeNameError:
		return yellow
	}
	return red
}

// printReplyTable prints the records of the answer as a table, on a wide screen those of all
// sections.
func printReplyTable(w io.Writer, m *dns.Msg) error {
	s := onScreen(w)
	header := []string{"NAME", "TTL", "TYPE", "DATA"}
	if s.wide {
		header = append([]string{"SECTION"}, header...)
	}
	var rows [][]painted
	for i, records := range sections(m) {
		for _, rr := range records {
			h := rr.Header()
			row := plainCells(h.Name, fmt.Sprint(h.Ttl), dns.Type(h.Rrtype).String(), recordData(rr))
			row[3].style = bold
			if s.wide {
				row = append(plainCells(sectionNames[i]), row...)
			} else if i > 0 {
				continue
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	var out bytes.Buffer
	s.printTable(&out, 0, header, rows, 0)
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

// replyJSON is what "lookup -o json" and "-o yaml" print.
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

func printReplyJSON(w io.Writer, m *dns.Msg) error { return printJSON(w, newReplyJSON(m)) }

func printReplyYAML(w io.Writer, m *dns.Msg) error { return printYAML(w, newReplyJSON(m)) }

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

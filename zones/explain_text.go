package zones

import (
	"fmt"
	"net/netip"
)

// maxExplained is the size of the answer that TXT records explain: what a reply over
// UDP has room for beside its OPT record.
const maxExplained = 1232 - 11

// maxExplainText is about how much the strings of such a record have. No more than this
// is useful to read, and annotations can be long and many.
const maxExplainText = 4096

// appendExplain appends one TXT record: why the asker gets what it gets from the
// Service whose _explain name this is. It is made for people: it allocates, but looks
// at no endpoint that is not answered.
func (a *Answer) appendExplain(dst []byte, owner int) []byte {
	if a.inner == nil {
		a.inner = NewAnswer()
	}
	q, inner := *a.question, a.inner
	q.Name = a.service.suffix
	for _, q.Type = range []uint16{TypeA, TypeAAAA} {
		a.set.Lookup(&q, inner)
		if !inner.isNegative {
			break
		}
	}
	message := make([]byte, headerSize, maxExplained)
	inner.AppendTo(append(append(message, q.Name...), 0, 0, 0, 0), 0, maxExplained, 0)
	lines := inner.outline().Lines()
	if !inner.isNegative {
		for i, endpoint := range inner.order[:inner.decision.written] {
			r, endpoint := inner.records.having(endpoint)
			record := r.record(r.at(r.first(endpoint)))
			addr, _ := netip.AddrFromSlice(record[fixedSize:])
			lines = append(lines, fmt.Sprintf("%d. %s", i+1, addr))
		}
	}
	start := len(dst)
	dst = appendFixed(dst, owner, TypeTXT, 0, 0)
	for i, line := range lines {
		if len(dst)-start > maxExplainText && i+1 < len(lines) {
			dst = appendString(dst, fmt.Sprintf("%d more lines", len(lines)-i))
			break
		}
		dst = appendString(dst, line)
	}
	length := len(dst) - start - fixedSize
	dst[start+fixedSize-2], dst[start+fixedSize-1] = byte(length>>8), byte(length)
	return dst
}

// appendString appends a character-string (RFC 1035 section 3.3), of which it keeps
// what there is room for.
func appendString(dst []byte, text string) []byte {
	text = text[:min(len(text), 255)]
	return append(append(dst, byte(len(text))), text...)
}

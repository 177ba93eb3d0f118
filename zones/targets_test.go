package zones

import (
	"bytes"
	"net/netip"
	"testing"

	"epdns/registry"
)

// SRV records and addresses that are written together are what one by one makes of the
// same order, and where there is room for all of it and each endpoint is a target of its
// own they are written so.
func TestTogetherAsOneByOne(t *testing.T) {
	together, otherwise := 0, 0
	for seed := range uint64(60) {
		c := newCrowd(seed, 12+int(seed%12))
		builder, err := NewBuilder(testConfig())
		if err != nil {
			t.Fatal(err)
		}
		builder.room.sizes = sizes{whole: 1 << 30}
		builder.SetNodes(c.someNodes())
		for range 10 {
			k := asks(t, builder.Build([]*registry.Service{c.step()}, someTime))
			for _, label := range []string{"", "_http._tcp.", "_metrics._tcp.", "_all.", "_http._tcp._serving.", "pod-1."} {
				q := Question{Name: k.parse(label + web), Type: TypeSRV, From: netip.MustParseAddr(pick(c.world, "10.0.0.1", "10.1.0.2", "203.0.113.9"))}
				k.set.Lookup(&q, k.answer)
				if k.answer.records.set == nil || k.answer.isNegative {
					continue
				}
				extra := pick(c.world, 512, 1232, 4000, 1<<16, 1<<20)
				limit := max(extra, pick(c.world, 1232, 1<<16))
				if k.together(limit, extra, pick(c.world, headerSize, 40)) {
					together++
				} else {
					otherwise++
				}
			}
		}
	}
	if together < 100 || otherwise < 100 {
		t.Errorf("%d written together, %d otherwise", together, otherwise)
	}
}

// together compares both ways to write an answer's SRV records, and says whether they were
// written together.
func (k *asking) together(limit, extra, owner int) bool {
	k.Helper()
	a := k.answer
	a.fitting = 1000
	a.rank(1000)
	const base = 3 // not where the buffer begins
	start := append(make([]byte, base+headerSize), a.question.Name...)
	one, two := writer{start, base, base + limit, base + extra}, writer{bytes.Clone(start), base, base + limit, base + extra}
	var n, m Counts
	done := a.appendTogether(&one, owner, &n)
	written := a.appendSRVs(&two, owner, &m)
	two.limit = two.extra
	if written == len(a.order) {
		a.appendGlue(&two, &m)
	}
	switch {
	case done && (n != m || !bytes.Equal(one.dst, two.dst)):
		k.Fatalf("%s: together %+v\n%x\none by one %+v\n%x", nameText(a.question.Name), n, one.dst, m, two.dst)
	case !done && (n != Counts{} || !bytes.Equal(one.dst, start)):
		k.Fatalf("%s: %+v appended, though it is not written together", nameText(a.question.Name), n)
	}
	return done
}

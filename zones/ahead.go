package zones

import "bytes"

// few Services lie near the processor in any case: with fewer than these, to look ahead
// takes longer than it saves.
const few = 3000

// Asked is a name in wire form, lower-case, and the type that is asked for.
type Asked struct {
	Name []byte
	Type uint16
}

// ahead is a question that LookAhead has come so far with.
type ahead struct {
	key     []byte // of the Service that the name is at or below
	label   []byte // the first one below it, nil for its own name
	typ     uint16
	hash    uint64
	page    *lowerPage[*service]
	list    []slot[*service]
	service *service
}

// LookAhead has the processor fetch what the answers to some questions are made of, for
// all of them side by side. Where there are many Services it lies far away, each thing says
// where the next is, and each answer by itself would wait for one after the other. No answer
// depends on it.
func (a *Answer) LookAhead(s *Set, asked []Asked) {
	if len(asked) < 2 || s.Services() < few {
		return
	}
	a.ahead = a.ahead[:0]
	for i := range asked {
		a.aim(s, &asked[i])
	}
	// In each of these loops no step waits for what another reads. The sum is for the
	// compiler, which would leave out what is of no use.
	sum := 0
	for i := range a.ahead {
		q := &a.ahead[i]
		q.list = q.page.list(q.hash)
	}
	for i := range a.ahead {
		list := a.ahead[i].list
		for j := 0; j < len(list); j += 2 { // which are a line of memory
			sum += int(list[j].hash)
		}
	}
	for i := range a.ahead {
		q := &a.ahead[i]
		for j := range q.list {
			if at := &q.list[j]; at.hash == uint32(q.hash>>32) {
				q.service = at.value
				sum += int(at.key[0]) + at.value.touch()
				break
			}
		}
	}
	for i := range a.ahead {
		if q := &a.ahead[i]; q.service != nil {
			sum += q.touchLists()
		}
	}
	for i := range a.ahead {
		if q := &a.ahead[i]; q.service != nil {
			sum += q.touchRecords()
		}
	}
	a.looked = sum
}

// aim adds a question, if its name is where Services are.
func (a *Answer) aim(s *Set, asked *Asked) {
	name := asked.Name
	labels := a.split(name)
	for i, z := range s.cfg.zones {
		n := labels - z.labels
		if n < 0 || !bytes.Equal(name[a.offsets[n]:], z.apex) {
			continue
		}
		if z.layout == Kubernetes {
			n-- // svc
		}
		if n < 2 {
			return
		}
		q := ahead{key: name[a.offsets[n-2]:a.offsets[n]], typ: asked.Type}
		if n > 2 {
			q.label = a.label(name, 0)
		}
		q.hash = hashOf(q.key)
		q.page = s.services[i].page(q.hash)
		a.ahead = append(a.ahead, q)
		return
	}
}

// named says whether the name is an endpoint's, by a label of its own.
func (q *ahead) named() bool {
	return q.label != nil && q.label[0] != '_' && (q.label[0] < '0' || q.label[0] > '9')
}

// touch reads each line of memory that a Service takes.
func (s *service) touch() int {
	return len(s.cname) + int(s.ttl) + s.srv.size + len(s.areas.runs) +
		s.published.a.n + len(s.published.ports) + len(s.labels) + int(s.trial.in)
}

// touchLists reads where a Service has its records.
func (q *ahead) touchLists() (sum int) {
	s := q.service
	if q.named() {
		for i := 0; i < min(len(s.labels), fewLabels); i += 2 { // which are less than a line of memory
			sum += int(s.labels[i].node)
		}
	}
	switch q.typ {
	case TypeA:
		sum += s.v4.size
	case TypeAAAA:
		sum += s.v6.size
	case TypeSRV:
		sum += s.v4.size + touch(s.srv.wire) + touch(s.suffix)
		for i := 0; i < min(len(s.srv.offs), line); i += line / 4 {
			sum += int(s.srv.offs[i])
		}
	}
	return sum
}

// touchRecords reads them.
func (q *ahead) touchRecords() (sum int) {
	s := q.service
	if q.named() {
		for i := range min(len(s.labels), fewLabels) {
			sum += int(s.labels[i].name[0])
		}
	}
	switch q.typ {
	case TypeA, TypeSRV:
		sum += touch(s.v4.wire)
	case TypeAAAA:
		sum += touch(s.v6.wire)
	}
	return sum
}

const (
	line      = 64 // octets of memory that a processor fetches at a time
	fewLabels = 16 // of which one that is looked for is near all
)

// touch reads the lines of some octets, as many as a reply may have.
func touch(b []byte) (sum int) {
	for i := 0; i < min(len(b), 8*line); i += line {
		sum += int(b[i])
	}
	return sum
}

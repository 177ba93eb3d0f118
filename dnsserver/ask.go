package dnsserver

import "epdns/zones"

// NewResponder returns a Responder for queries that come by another way than
// through the Server's sockets. It answers them as a Server of this configuration,
// which need not listen; they are not in its Stats. Names outside the zones are not
// passed on.
func NewResponder(cfg Config, a Authority) *Responder {
	r := newResponder(a)
	r.shared = newShared(&cfg)
	return r
}

// NewResponder returns a Responder as the function of that name does.
func (s *Server) NewResponder() *Responder {
	r := newResponder(s.authority)
	r.shared = s.shared.Load()
	return r
}

// Explain is why the last reply was what it was, or nil if it was made without asking
// the zones, as that to a malformed query is. The message of that query must be as it
// was. It takes time and memory.
func (r *Responder) Explain() *zones.Explanation {
	if !r.looked {
		return nil
	}
	if r.query.subnet != nil && !r.question.Subnet.IsValid() {
		r.noteUnbelieved()
	}
	return r.answer.Explain()
}

// noteUnbelieved notes the subnet of the query for the explanation.
func (r *Responder) noteUnbelieved() {
	if prefix, known, err := parseSubnet(r.query.subnet); known && err == nil {
		r.question.Unbelieved = prefix
	}
}

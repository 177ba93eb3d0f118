package dnsserver

// NewResponder returns a Responder for queries that come by another way than
// through the Server's sockets. It answers them alike; they are not in its Stats.
func NewResponder(a Authority) *Responder { return newResponder(a, &counters{}) }

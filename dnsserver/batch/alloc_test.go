//go:build !race

package batch

import "testing"

// From a datagram to its reply nothing is allocated.
func TestNoAllocation(t *testing.T) {
	for _, p := range places {
		for _, size := range []int{1, DefaultSize} {
			s := listen(t, p.network, p.addr, Options{Size: size})
			c := dial(t, s, p.ask)
			query, reply := []byte("query"), make([]byte, 100)
			round := func() {
				for range 3 {
					if _, err := c.Write(query); err != nil {
						t.Fatal(err)
					}
				}
				for done := 0; done < 3; {
					messages, err := s.Receive()
					if err != nil {
						t.Fatal(err)
					}
					for i := range messages {
						messages[i].Reply = append(messages[i].Reply, messages[i].Data...)
					}
					s.Send(len(messages))
					done += len(messages)
				}
				for range 3 {
					if _, err := c.Read(reply); err != nil {
						t.Fatal(err)
					}
				}
			}
			if n := testing.AllocsPerRun(100, round); n != 0 {
				t.Errorf("%s %s asked at %s, batches of %d: %v allocations", p.network, p.addr, p.ask, size, n)
			}
		}
	}
}

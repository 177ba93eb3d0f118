package zones

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Config says which zones are served and how. The zero value of each field but
// Zones is a good default.
type Config struct {
	// Zones are the zones that hold the Services. The first one is where PTR
	// records point to.
	Zones []Zone

	// Reverse are the prefixes answered with authority: within them a name that
	// does not exist is NXDOMAIN. Elsewhere only addresses of known endpoints are
	// answered and all else is REFUSED, so that a forwarder can go on.
	Reverse []netip.Prefix

	// Nameservers are the addresses of ns.dns.<zone>. Where there are none, it is
	// the address that the question came to.
	Nameservers []netip.Addr

	// Clients says what is known of those who ask.
	Clients Clients

	// NoExplain leaves out the names _explain.<svc>.<ns>.<zone>.
	NoExplain bool

	// ChurnTTL is the longest TTL of a Service that has changed within the last 30
	// seconds or of which an endpoint is terminating, in whole seconds up to an hour.
	// 0 leaves TTLs alone.
	ChurnTTL time.Duration
}

// Zone is one zone. The zero value of each field but Name is its default.
type Zone struct {
	Name string // "registry.local", with or without the final dot

	Layout        Layout
	Empty         Empty
	EndpointNames EndpointNames

	// Namespaces, as globs, and Selector, of the Service's labels as a Rule's, say which
	// Services are in the zone. What is empty selects all.
	Namespaces []string
	Selector   string

	// Defaults are the values of knobs for all Services, and Rules set those of some:
	// the first one that matches counts. The annotations of a Service beat both, each
	// knob by itself.
	Defaults Values
	Rules    []Rule
}

// Layout is how names are built.
type Layout uint8

const (
	Short      Layout = iota // <svc>.<ns>.<zone>
	Kubernetes               // <svc>.<ns>.svc.<zone>, as cluster DNS has them
)

// Empty is what a Service is that exists with no endpoint that has a name.
type Empty uint8

const (
	NoData   Empty = iota // a name without records
	Nonexist              // no name, by the letter of the Kubernetes DNS specification 2.4.1
)

// EndpointNames is what SRV and PTR records point to where an endpoint has no host name.
type EndpointNames uint8

const (
	ByAddress EndpointNames = iota // its address, with dashes
	ByPod                          // its pod's name, if that can be a label
)

var (
	layouts       = choice[Layout]{"layout", []string{"short", "kubernetes"}}
	empties       = choice[Empty]{"empty", []string{"nodata", "nxdomain"}}
	endpointNames = choice[EndpointNames]{"endpointNames", []string{"address", "pod"}}
)

// choice is a set of values with names, as configuration files have them.
type choice[T ~uint8] struct {
	what  string
	names []string
}

func (c *choice[T]) parse(text string) (T, error) {
	v, ok := c.find(text)
	if !ok {
		return 0, fmt.Errorf("%s %q is not %s", c.what, text, c.list())
	}
	return v, nil
}

func (c *choice[T]) find(text string) (v T, ok bool) {
	i := slices.Index(c.names, text)
	return T(max(i, 0)), i >= 0
}

func (c *choice[T]) list() string {
	last := len(c.names) - 1
	return strings.Join(c.names[:last], ", ") + " or " + c.names[last]
}

func (c *choice[T]) text(v T) string {
	if int(v) < len(c.names) {
		return c.names[v]
	}
	return fmt.Sprint(uint8(v))
}

func (l Layout) String() string        { return layouts.text(l) }
func (e Empty) String() string         { return empties.text(e) }
func (n EndpointNames) String() string { return endpointNames.text(n) }

// UnmarshalText reads a name: short or kubernetes.
func (l *Layout) UnmarshalText(text []byte) (err error) {
	*l, err = layouts.parse(string(text))
	return err
}

// UnmarshalText reads a name: nodata or nxdomain.
func (e *Empty) UnmarshalText(text []byte) (err error) {
	*e, err = empties.parse(string(text))
	return err
}

// UnmarshalText reads a name: address or pod.
func (n *EndpointNames) UnmarshalText(text []byte) (err error) {
	*n, err = endpointNames.parse(string(text))
	return err
}

// DefaultZone has nothing but a name.
func DefaultZone(name string) Zone { return Zone{Name: name} }

const maxTTL = time.Hour

// maxApex leaves room for the names that every zone has.
const maxApex = maxName - len("\x0bdns-version")

// Validate names the first thing that is wrong.
func (c *Config) Validate() error {
	if len(c.Zones) == 0 {
		return errors.New("no zone is given")
	}
	var apexes [][]byte
	for _, z := range c.Zones {
		apex, err := z.check()
		if err != nil {
			return fmt.Errorf("zone %q: %w", z.Name, err)
		}
		for i, other := range apexes {
			if string(apex) == string(other) {
				return fmt.Errorf("zone %q is given twice", z.Name)
			}
			// Names below would be answered by one zone or the other.
			if within(apex, other) {
				return fmt.Errorf("zone %q: it lies within zone %q", z.Name, c.Zones[i].Name)
			}
			if within(other, apex) {
				return fmt.Errorf("zone %q: zone %q lies within it", z.Name, c.Zones[i].Name)
			}
		}
		apexes = append(apexes, apex)
	}
	for i, p := range c.Reverse {
		if !p.IsValid() || p.Addr().Is4In6() {
			return fmt.Errorf("reverse prefix %v is not valid", p)
		}
		for _, q := range c.Reverse[:i] {
			if p.Overlaps(q) {
				return fmt.Errorf("reverse prefixes %v and %v overlap", q, p)
			}
		}
	}
	for i, a := range c.Nameservers {
		if !a.IsValid() || a.IsUnspecified() || a.Zone() != "" || a.Is4In6() {
			return fmt.Errorf("nameserver %v is no address to ask", a)
		}
		if slices.Contains(c.Nameservers[:i], a) {
			return fmt.Errorf("nameserver %v is given twice", a)
		}
	}
	if c.ChurnTTL < 0 || c.ChurnTTL > maxTTL || c.ChurnTTL%time.Second != 0 {
		return fmt.Errorf("churn TTL %v is not whole seconds from 0s to 1h", c.ChurnTTL)
	}
	return c.Clients.validate()
}

func (z *Zone) check() (apex []byte, err error) {
	if apex, err = ParseName(z.Name); err != nil {
		return nil, err
	}
	if len(apex) == 1 {
		return nil, errors.New("the root cannot be served")
	}
	for _, c := range nameText(apex) {
		if c != '-' && c != '.' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return nil, fmt.Errorf("character %q is not allowed in a zone name", c)
		}
	}
	for _, tree := range [][]byte{inAddrArpa, ip6Arpa} {
		if within(apex, tree) || within(tree, apex) {
			return nil, errors.New("reverse zones are given as prefixes")
		}
	}
	if len(apex) > maxApex {
		return nil, fmt.Errorf("it has more than %d octets, which leaves no room for names in it", maxApex)
	}
	if z.Layout > Kubernetes || z.Empty > Nonexist || z.EndpointNames > ByPod {
		return nil, fmt.Errorf("no such choice: layout %v, empty %v, endpointNames %v", z.Layout, z.Empty, z.EndpointNames)
	}
	if _, err := newOnly(z.Namespaces, z.Selector); err != nil {
		return nil, err
	}
	if _, err := newKnobs(z); err != nil {
		return nil, err
	}
	return apex, nil
}

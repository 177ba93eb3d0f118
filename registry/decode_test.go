package registry

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"epdns/internal/protobuf"
)

// compare says where DecodeSlice and the generated code, whose object is translated, do
// not mean the same.
func compare(octets []byte) error {
	var o discoveryv1.EndpointSlice
	refused := o.Unmarshal(octets)
	ours := bytes.Clone(octets)
	got, problems, from, err := decodeSlice(ours)
	clear(ours) // a Slice that had a part of them would now differ
	switch {
	case err != nil && refused != nil:
		return nil
	case err != nil:
		// The generated code reads an entry whose texts are of another wire type, or are
		// longer than the entry, as if they were not. Nobody writes such a thing.
		if strings.Contains(err.Error(), "entry of a map") {
			return nil
		}
		return fmt.Errorf("refused: %w", err)
	case refused != nil:
		// Then it must be about a field that means nothing here.
		o.Reset()
		if err := o.Unmarshal(reduced(octets, meaning)); err != nil {
			return fmt.Errorf("taken, where the generated code says: %w", refused)
		}
	}
	want, wantProblems := translateSlice(&o)
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%+v, want %+v", got, want)
	}
	if !reflect.DeepEqual(problems, wantProblems) {
		return fmt.Errorf("problems %q, want %q", problems, wantProblems)
	}
	if at := triggerTime(o.Annotations[corev1.EndpointsLastChangeTriggerTime]); from != at {
		return fmt.Errorf("it tells of %d, want %d", from, at)
	}
	return nil
}

// message says which fields of a message mean something: those of a number map to
// number, those that are texts or entries to text.
type message map[int32]message

var (
	number = message{-1: nil}
	text   = message{-2: nil}
	name   = message{1: text}

	// meaning is what DecodeSlice reads.
	meaning = message{
		sliceMeta: {1: text, 3: text, 5: text, 8: {1: number}, 11: text, 12: text},
		sliceEndpoints: {
			1: text, 2: {1: number, 2: number, 3: number}, 3: text, 4: {1: text, 3: text},
			6: text, 7: text, 8: {1: name, 2: name},
		},
		slicePorts:       {1: text, 2: text, 3: number},
		sliceAddressType: text,
	}
)

// reduced leaves out what means nothing.
func reduced(octets []byte, of message) (out []byte) {
	for m := protobuf.Read(octets); m.Next(); {
		inner, ok := of[m.Field]
		_, isNumber := inner[-1]
		_, isText := inner[-2]
		switch {
		case !ok:
		case isNumber:
			out = append(out, num(m.Field, m.Number())...)
		case isText:
			out = append(out, field(m.Field, m.Text())...)
		default:
			out = append(out, field(m.Field, string(reduced(m.Octets(), inner)))...)
		}
	}
	return out
}

// field and num are the fields of a message.
func field(n int32, content ...string) []byte {
	whole := strings.Join(content, "")
	b := binary.AppendUvarint(nil, uint64(n)<<3|2)
	return append(binary.AppendUvarint(b, uint64(len(whole))), whole...)
}

func num(n int32, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(n)<<3), v)
}

// anySlice is an EndpointSlice with any of its fields, most of them with a meaning.
func anySlice(r *rand.Rand) *discoveryv1.EndpointSlice {
	pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	maybe := func(texts ...string) *string {
		if r.IntN(4) == 0 {
			return nil
		}
		return ptr(pick(texts...))
	}
	flag := func() *bool {
		return [...]*bool{nil, ptr(false), ptr(true)}[r.IntN(3)]
	}
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pick("shop", "", "Not.A.Label"), Name: pick("web-1", "web-2", ""), UID: types.UID(pick("1", "", "4c2b7f0e")),
			GenerateName: "web-", ResourceVersion: "77", Generation: r.Int64() - r.Int64(),
			DeletionGracePeriodSeconds: ptr(int64(30)), Finalizers: []string{"a/b"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Service", Name: "web", Controller: ptr(true)}},
			Annotations:     map[string]string{"a": "b", "": ""},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}},
		},
		AddressType: discoveryv1.AddressType(pick("IPv4", "IPv4", "IPv4", "IPv6", "IPv6", "FQDN", "", "MAC")),
	}
	if r.IntN(2) == 0 {
		o.CreationTimestamp = metav1.Unix(r.Int64N(1<<40)-1<<39, r.Int64N(1e9))
		o.DeletionTimestamp = ptr(metav1.Unix(5, 0))
	}
	if r.IntN(8) > 0 {
		o.Labels = map[string]string{"app": "x", discoveryv1.LabelServiceName: pick("web", "web", "web", "", "Web.Shop", strings.Repeat("x", 64))}
	}
	for range r.IntN(4) {
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{
			Name: maybe("http", "HTTP", "", "a b"), AppProtocol: maybe("h2c"),
			Protocol: (*corev1.Protocol)(maybe("TCP", "UDP", "SCTP", "", "QUIC")), Port: [...]*int32{nil, ptr(int32(80)), ptr(int32(-1)), ptr(int32(65536))}[r.IntN(4)],
		})
	}
	for range r.IntN(8) {
		e := discoveryv1.Endpoint{
			Conditions: discoveryv1.EndpointConditions{Ready: flag(), Serving: flag(), Terminating: flag()},
			Hostname:   maybe("web-0", "WEB-1", "", "a.b", "-", "ſ"), NodeName: maybe("n1", "n2", ""), Zone: maybe("a", "b", ""),
		}
		for range r.IntN(3) {
			e.Addresses = append(e.Addresses, pick("10.0.0.1", "10.0.0.2", "2001:db8::1", "::ffff:10.0.0.1", "fe80::1%eth0", "web.example", ""))
		}
		if r.IntN(2) == 0 {
			e.TargetRef = &corev1.ObjectReference{Kind: pick("Pod", "Pod", "Node", ""), Name: pick("web-7d4b9c", "x", ""), Namespace: "shop", UID: "1", FieldPath: "f"}
		}
		if r.IntN(3) == 0 {
			e.DeprecatedTopology = map[string]string{"zone": "z", "": ""}
		}
		if r.IntN(2) == 0 {
			e.Hints = &discoveryv1.EndpointHints{}
			for range r.IntN(3) {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: pick("a", "b", "")})
			}
			for range r.IntN(2) {
				e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: pick("n1", "")})
			}
		}
		o.Endpoints = append(o.Endpoints, e)
	}
	return o
}

func marshalled(t testing.TB, o *discoveryv1.EndpointSlice) []byte {
	t.Helper()
	octets, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return octets
}

// An object means the same whether it is decoded or translated.
func TestDecodeSlice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		o := anySlice(r)
		octets := marshalled(t, o)
		if err := compare(octets); err != nil {
			t.Fatalf("%v\n%+v", err, o)
		}
		if _, err := DecodeSlice(octets); err != nil {
			t.Fatalf("%v\n%+v", err, o)
		}
		if o := reduced(octets, meaning); len(o) > len(octets) {
			t.Fatal("reduced to more than it was")
		}
	}
}

// So do octets that are cut off or damaged, if they are an object at all.
func TestDecodeDamagedSlice(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 10 {
		octets := marshalled(t, anySlice(r))
		for i := range octets {
			if err := compare(octets[:i]); err != nil {
				t.Fatalf("the first %d of %q: %v", i, octets, err)
			}
			for _, flip := range []byte{0x01, 0x02, 0x08, 0x10, 0x80, 0xff} {
				bad := bytes.Clone(octets)
				bad[i] ^= flip
				if err := compare(bad); err != nil {
					t.Fatalf("%q: %v", bad, err)
				}
			}
		}
	}
}

// Fields in any order and number: the last one of a text or number counts, messages are
// merged, and what is not known is stepped over.
func TestDecodeOddSlice(t *testing.T) {
	join := func(parts ...[]byte) string { return string(bytes.Join(parts, nil)) }
	label := func(key, value string) []byte { return field(11, join(field(1, key), field(2, value))) }
	service := "kubernetes.io/service-name"
	meta := func(parts ...[]byte) []byte { return field(1, join(parts...)) }
	endpoint := func(parts ...[]byte) []byte { return field(2, join(parts...)) }
	ipv4, address := field(4, "IPv4"), field(1, "10.0.0.1")
	huge := []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	for _, c := range []struct {
		what   string
		octets string
		want   string // of the Slice and its problems
	}{
		{"nothing", "", `/ svc= ports=[] [] ["addressType \"\" is not known"]`},
		{"all of it in reverse", join(ipv4, field(3, "\x18\x50"), endpoint(address), meta(label(service, "web"), field(3, "shop"), field(1, "web-1"))),
			`shop/web-1 svc=web ports=[{ TCP 80}] [10.0.0.1] []`},
		{"metadata twice", join(meta(field(1, "a"), label(service, "web")), ipv4, meta(field(3, "shop"), field(1, "b"))), `shop/b svc=web ports=[] [] []`},
		{"a label twice", join(ipv4, meta(field(3, "shop"), label(service, "a"), label("x", "y"), label(service, "b"))), `shop/ svc=b ports=[] [] []`},
		{"a label without a value", join(ipv4, meta(field(3, "shop"), label(service, "a"), field(11, string(field(1, service))))), `shop/ svc= ports=[] [] []`},
		{"a label whose value comes first", join(ipv4, meta(field(3, "shop"), field(11, join(field(2, "web"), field(1, service), field(9, "?"))))), `shop/ svc=web ports=[] [] []`},
		{"a text twice", join(field(4, "IPv6"), ipv4, endpoint(field(6, "a"), field(6, "b"), address)), `/ svc= ports=[] [10.0.0.1,node=b] []`},
		{"conditions twice", join(ipv4, endpoint(address, field(2, "\x08\x00"), field(2, "\x18\x05"))), `/ svc= ports=[] [10.0.0.1,not-ready,terminating] []`},
		{"a condition twice", join(ipv4, endpoint(address, field(2, "\x08\x00\x08\x01"))), `/ svc= ports=[] [10.0.0.1] []`},
		{"a target twice", join(ipv4, endpoint(address, field(4, "\x1a\x01p"), field(4, "\x0a\x03Pod"))), `/ svc= ports=[] [10.0.0.1,pod=p] []`},
		{"hints twice", join(ipv4, endpoint(address, field(8, join(field(1, "\x0a\x01a"))), field(8, join(field(1, "\x0a\x01b"), field(2, "\x0a\x01n"))))),
			`/ svc= ports=[] [10.0.0.1,zones=[a b],nodes=[n]] []`},
		{"hints of the endpoint before", join(ipv4, endpoint(address, field(8, "\x0a\x03\x0a\x01a")), endpoint(address)), `/ svc= ports=[] [10.0.0.1,zones=[a],nodes=[] 10.0.0.1] []`},
		{"the first address counts", join(ipv4, endpoint(address, field(1, "10.0.0.2"))), `/ svc= ports=[] [10.0.0.1] []`},
		{"endpoints without an address", join(ipv4, endpoint(), endpoint(field(6, "n"))), `/ svc= ports=[] [] ["endpoints[0]: no address" "endpoints[1]: no address"]`},
		{"a number of ten octets", join(ipv4, field(3, "\x18"+string(huge))), `/ svc= ports=[] [] ["ports[0]: port -1 is not between 0 and 65535"]`},
		{"unknown fields", join(ipv4, field(99, "x"), num(98, 1<<63), []byte("\xa1\x0612345678\xa5\x061234"), endpoint(field(99, "x"), address)), `/ svc= ports=[] [10.0.0.1] []`},
		{"an unknown group", join(ipv4, []byte("\xa3\x06\x08\x05\xab\x06\x12\x01x\xac\x06\xa4\x06"), endpoint(address)), `/ svc= ports=[] [10.0.0.1] []`},

		{"the end of a group", join(ipv4, []byte("\xa4\x06")), "EndpointSlice: field 100 is of wire type 4"},
		{"a group without an end", join(ipv4, []byte("\xa3\x06\x08\x05")), "EndpointSlice: after field 100: unexpected EOF"},
		{"field 0", join(ipv4, []byte("\x00\x00")), "EndpointSlice: field number 0"},
		{"no such wire type", join(ipv4, []byte("\x0f\x00")), "EndpointSlice: field 1 is of wire type 7"},
		{"a number without an end", join(ipv4, huge[:9], huge[:9]), "EndpointSlice: after field 4: a number has no end"},
		{"a length without an end", "\x22\xff", "EndpointSlice: after field 4: unexpected EOF"},
		{"a text of 2^63 octets", "\x22\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "EndpointSlice: field 4 is longer than what it is in: unexpected EOF"},
		{"endpoints that are a number", join(num(2, 7)), "EndpointSlice: field 2 is of wire type 0"},
		{"ports that are a number", join(num(3, 7)), "EndpointSlice: field 3 is of wire type 0"},
		{"a name that is a number", join(meta(num(1, 7))), "EndpointSlice: metadata: field 1 is of wire type 0"},
		{"a time that is a text", join(meta(field(8, join(field(1, "x"))))), "EndpointSlice: metadata: creationTimestamp: field 1 is of wire type 2"},
		{"a label longer than its entry", join(meta(field(11, "\x0a\x05k"), field(1, "abcdef"))), "EndpointSlice: metadata: field 11: entry of a map: field 1 is longer than what it is in: unexpected EOF"},
		{"a port that is a text", join(field(3, "\x18\x50"), field(3, join(field(3, "x")))), "EndpointSlice: ports[1]: field 3 is of wire type 2"},
		{"an address cut off", join(ipv4, endpoint(address), endpoint([]byte("\x0a\x0810."))), "EndpointSlice: endpoints[1]: field 1 is longer than what it is in: unexpected EOF"},
		{"a condition that is a text", join(ipv4, endpoint(field(2, join(field(1, "x"))))), "EndpointSlice: endpoints[0]: field 2: field 1 is of wire type 2"},
		{"a hint that is a number", join(ipv4, endpoint(field(8, string(num(1, 1))))), "EndpointSlice: endpoints[0]: field 8: field 1 is of wire type 0"},
		{"of type FQDN, but damaged", join(field(4, "FQDN"), endpoint([]byte("\x0a"))), "EndpointSlice: endpoints[0]: after field 1: unexpected EOF"},
	} {
		d, err := DecodeSlice([]byte(c.octets))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = tellSlice(d)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if err := compare([]byte(c.octets)); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func tellSlice(d *Digest) string {
	s := d.of.(*Slice)
	endpoints := []string{}
	for _, e := range s.Endpoints.All() {
		text := e.Addr.String()
		if e.Node != "" {
			text += ",node=" + e.Node
		}
		if e.Pod != "" {
			text += ",pod=" + e.Pod
		}
		if e.Hints != (Hints{}) {
			text += fmt.Sprintf(",zones=%v,nodes=%v", e.Hints.Zones(), e.Hints.Nodes())
		}
		if !e.Ready {
			text += ",not-ready"
		}
		if e.Terminating {
			text += ",terminating"
		}
		endpoints = append(endpoints, text)
	}
	return fmt.Sprintf("%s/%s svc=%s ports=%v %v %q", d.Namespace(), d.Name(), s.Service, s.Ports, endpoints, d.problems)
}

// Any octets at all mean the same to us as to the generated code.
func FuzzDecodeSlice(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		f.Add(marshalled(f, anySlice(r)))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, octets []byte) {
		if err := compare(octets); err != nil {
			t.Error(err)
		}
	})
}

// A label is what the API takes for one.
func TestIsLabel(t *testing.T) {
	for _, s := range []string{"", "a", "-", "a-", "-a", "a-b", "0", "A", "a.b", "a_b", "é", "a\n", "`", "{", "/", ":", strings.Repeat("a", 63), strings.Repeat("a", 64)} {
		if want := len(validation.IsDNS1123Label(s)) == 0; isLabel(s) != want {
			t.Errorf("%q: %t", s, !want)
		}
	}
}

// BenchmarkDecodeSlice is what the registry has to do with an object that comes.
func BenchmarkDecodeSlice(b *testing.B) {
	for _, endpoints := range []int{1, 10, 100} {
		octets := marshalled(b, cluster{1, 1, endpoints}.slice(0, 0))
		b.Run(fmt.Sprint("endpoints=", endpoints), func(b *testing.B) {
			b.SetBytes(int64(len(octets)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeSlice(octets); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

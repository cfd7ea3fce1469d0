package proxyproto_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	pires "github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
)

var (
	v4  = netip.MustParseAddrPort("192.0.2.1:5555")
	v4b = netip.MustParseAddrPort("198.51.100.2:443")
	v6  = netip.MustParseAddrPort("[2001:db8::1]:5555")
	v6b = netip.MustParseAddrPort("[2001:db8::2]:443")
)

// v2 makes a header of version 2 from the bytes after the signature.
func v2(command, family byte, body ...byte) []byte {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), command, family)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(body))), body...)
}

var body4 = []byte{192, 0, 2, 1, 198, 51, 100, 2, 0x15, 0xb3, 0x01, 0xbb}

func TestParse(t *testing.T) {
	long := strings.Repeat("f", 0) + "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	all := netip.AddrPortFrom(netip.MustParseAddr(long), 65535)
	for name, test := range map[string]struct {
		b    string
		want proxyproto.Info
	}{
		"v1 TCP4":             {"PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\n", proxyproto.Info{Version: 1, Source: v4, Destination: v4b}},
		"v1 TCP6":             {"PROXY TCP6 2001:db8::1 2001:db8::2 5555 443\r\n", proxyproto.Info{Version: 1, Source: v6, Destination: v6b}},
		"v1 the longest":      {"PROXY TCP6 " + long + " " + long + " 65535 65535\r\n", proxyproto.Info{Version: 1, Source: all, Destination: all}},
		"v1 port 0":           {"PROXY TCP4 192.0.2.1 198.51.100.2 0 443\r\n", proxyproto.Info{Version: 1, Source: netip.MustParseAddrPort("192.0.2.1:0"), Destination: v4b}},
		"v1 mapped":           {"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.2 5555 443\r\n", proxyproto.Info{Version: 1, Source: v4, Destination: v4b}},
		"v1 TCP6, half IPv4":  {"PROXY TCP6 192.0.2.1 2001:db8::2 5555 443\r\n", proxyproto.Info{Version: 1, Source: v4, Destination: v6b}},
		"v1 UNKNOWN":          {"PROXY UNKNOWN\r\n", proxyproto.Info{Version: 1}},
		"v1 UNKNOWN and more": {"PROXY UNKNOWN " + long + " " + long + " 65535 65535\r\n", proxyproto.Info{Version: 1}},
		"v2 TCP4":             {string(v2(0x21, 0x11, body4...)), proxyproto.Info{Version: 2, Source: v4, Destination: v4b}},
		"v2 TLVs": {
			string(v2(0x21, 0x11, slices.Concat(body4, []byte{2, 0, 3, 'a', '.', 'b', 4, 0, 0})...)),
			proxyproto.Info{Version: 2, Source: v4, Destination: v4b, TLVs: []byte{2, 0, 3, 'a', '.', 'b', 4, 0, 0}},
		},
		"v2 LOCAL": {string(v2(0x20, 0x00)), proxyproto.Info{Version: 2, Local: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var p *proxyproto.Policy
			for at := range len(test.b) {
				need, err := p.Length([]byte(test.b[:at]))
				if err != nil || need <= at || need > len(test.b) {
					t.Fatalf("after %d of %d bytes: requests %d, %v", at, len(test.b), need, err)
				}
			}
			got := proxyproto.Info{Version: 9, Source: v6, TLVs: []byte("of the one before")}
			n, err := p.Parse([]byte(test.b+"PROXY and what follows"), &got)
			if err != nil || n != len(test.b) {
				t.Fatalf("%d bytes of %d: %v", n, len(test.b), err)
			}
			equal(t, got, test.want)
		})
	}
}

func equal(t *testing.T, got, want proxyproto.Info) {
	t.Helper()
	if got.Version != want.Version || got.Local != want.Local || got.Source != want.Source ||
		got.Destination != want.Destination || !slices.Equal(got.TLVs, want.TLVs) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestRefused(t *testing.T) {
	only := func(n int) *proxyproto.Policy { return &proxyproto.Policy{Versions: []int{n}} }
	for name, test := range map[string]struct {
		policy *proxyproto.Policy
		b      string
		want   error
	}{
		"HTTP":                   {nil, "GET / HTTP/1.1\r\n", proxyproto.ErrMissing},
		"one byte":               {nil, "\x16", proxyproto.ErrMissing},
		"another word":           {nil, "PROXYING TCP4", proxyproto.ErrMissing},
		"CR and another":         {nil, "\r\n\r\nGET", proxyproto.ErrMissing},
		"v1 is not accepted":     {only(2), "P", proxyproto.ErrVersion},
		"v2 is not accepted":     {only(1), "\r", proxyproto.ErrVersion},
		"v3":                     {nil, string(v2(0x31, 0x11, body4...)), proxyproto.ErrVersion},
		"v1 too long":            {nil, "PROXY UNKNOWN " + strings.Repeat("x", 107-14), proxyproto.ErrTooLong},
		"v1 too long with end":   {nil, "PROXY UNKNOWN " + strings.Repeat("x", 107-14-1) + "\r\n", proxyproto.ErrTooLong},
		"v1 without CR":          {nil, "PROXY UNKNOWN\n", proxyproto.ErrMalformed},
		"v1 LF alone later":      {nil, "PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\n", proxyproto.ErrMalformed},
		"v1 other protocol":      {nil, "PROXY UDP4 192.0.2.1 198.51.100.2 5555 443\r\n", proxyproto.ErrMalformed},
		"v1 in small letters":    {nil, "PROXY tcp4 192.0.2.1 198.51.100.2 5555 443\r\n", proxyproto.ErrMalformed},
		"v1 a field missing":     {nil, "PROXY TCP4 192.0.2.1 198.51.100.2 5555\r\n", proxyproto.ErrMalformed},
		"v1 a field too many":    {nil, "PROXY TCP4 192.0.2.1 198.51.100.2 5555 443 \r\n", proxyproto.ErrMalformed},
		"v1 two spaces":          {nil, "PROXY TCP4  192.0.2.1 198.51.100.2 5555 443\r\n", proxyproto.ErrMalformed},
		"v1 IPv6 as TCP4":        {nil, "PROXY TCP4 ::1 ::1 5555 443\r\n", proxyproto.ErrMalformed},
		"v1 zone":                {nil, "PROXY TCP6 fe80::1%eth0 ::1 5555 443\r\n", proxyproto.ErrMalformed},
		"v1 a name":              {nil, "PROXY TCP4 localhost 198.51.100.2 5555 443\r\n", proxyproto.ErrMalformed},
		"v1 octets with zeros":   {nil, "PROXY TCP4 192.0.2.001 198.51.100.2 5555 443\r\n", proxyproto.ErrMalformed},
		"v1 port too large":      {nil, "PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n", proxyproto.ErrMalformed},
		"v1 port much too large": {nil, "PROXY TCP4 192.0.2.1 198.51.100.2 99999999999999999999999 443\r\n", proxyproto.ErrMalformed},
		"v1 port with zeros":     {nil, "PROXY TCP4 192.0.2.1 198.51.100.2 0443 443\r\n", proxyproto.ErrMalformed},
		"v1 port with sign":      {nil, "PROXY TCP4 192.0.2.1 198.51.100.2 +443 443\r\n", proxyproto.ErrMalformed},
		"v1 no port":             {nil, "PROXY TCP4 192.0.2.1 198.51.100.2 443 \r\n", proxyproto.ErrMalformed},
		"v2 too long":            {nil, string(v2(0x21, 0x11, make([]byte, 4081)...)), proxyproto.ErrTooLong},
		"v2 too long for policy": {&proxyproto.Policy{Max: 20}, string(v2(0x21, 0x11)), nil},
		"v2 checksum too short":  {nil, string(v2(0x21, 0x11, slices.Concat(body4, []byte{3, 0, 2, 1, 2})...)), proxyproto.ErrMalformed},
		"v1 incomplete":          {nil, "PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r", proxyproto.ErrIncomplete},
		"v2 incomplete":          {nil, string(v2(0x21, 0x11, body4...)[:27]), proxyproto.ErrIncomplete},
		"nothing":                {nil, "", proxyproto.ErrIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			got := proxyproto.Info{Version: 2, Source: v4, TLVs: []byte("x")}
			n, err := test.policy.Parse([]byte(test.b), &got)
			if test.want == nil {
				test.want = proxyproto.ErrMalformed
			}
			if !errors.Is(err, test.want) {
				t.Fatalf("%d, %v; want %v", n, err, test.want)
			}
			equal(t, got, proxyproto.Info{})
		})
	}
}

func networks(list ...string) *source.Set {
	var rules []source.Rule
	for _, s := range list {
		rules = append(rules, source.Prefix(netip.MustParsePrefix(s)))
	}
	return source.NewSet(rules)
}

func TestPolicy(t *testing.T) {
	from := &proxyproto.Policy{From: networks("10.0.0.0/8", "fe80::/10"), Timeout: time.Second}
	for peer, want := range map[string]bool{
		"10.1.2.3:1": true, "[::ffff:10.1.2.3]:1": true, "11.0.0.1:1": false, "[fe80::1%eth0]:1": true, "[::1]:1": false,
	} {
		if got := from.Expects(source.TCP(netip.MustParseAddrPort(peer))); got != want {
			t.Errorf("expects a header from %s: %v, want %v", peer, got, want)
		}
	}
	user := source.Unix(source.Credentials{UID: 7})
	if from.Expects(user) || from.Expects(source.Source{}) {
		t.Error("expects one on a unix socket, which it does not name, or from a client whose address is not known")
	}
	if !(&proxyproto.Policy{From: source.NewSet([]source.Rule{source.UnixUser(7)})}).Expects(user) {
		t.Error("expects none on a unix socket, which it names")
	}
	var none *proxyproto.Policy
	if !none.Expects(source.TCP(v4)) || !(&proxyproto.Policy{}).Expects(source.TCP(v6)) || !none.Expects(user) {
		t.Error("without a list it does not expect a header from each client")
	}
	if from.Wait() != time.Second || none.Wait() != 3*time.Second {
		t.Errorf("waits %v and %v", from.Wait(), none.Wait())
	}
	if n, err := (&proxyproto.Policy{Max: 1 << 20}).Length(v2(0x21, 0x11, make([]byte, 65535)...)); n != 65551 || err != nil {
		t.Errorf("the longest header there is: %d, %v", n, err)
	}
}

func TestAppend(t *testing.T) {
	for name, test := range map[string]struct {
		c  proxyproto.Connection
		v1 string
		v2 proxyproto.Info
	}{
		"IPv4":           {proxyproto.Connection{Source: v4, Destination: v4b}, "PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\n", proxyproto.Info{Source: v4, Destination: v4b}},
		"IPv6":           {proxyproto.Connection{Source: v6, Destination: v6b}, "PROXY TCP6 2001:db8::1 2001:db8::2 5555 443\r\n", proxyproto.Info{Source: v6, Destination: v6b}},
		"one of each":    {proxyproto.Connection{Source: v4, Destination: v6b}, "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 5555 443\r\n", proxyproto.Info{Source: v4, Destination: v6b}},
		"mapped":         {proxyproto.Connection{Source: netip.MustParseAddrPort("[::ffff:192.0.2.1]:5555"), Destination: v4b}, "PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\n", proxyproto.Info{Source: v4, Destination: v4b}},
		"with a zone":    {proxyproto.Connection{Source: netip.MustParseAddrPort("[2001:db8::1%eth0]:5555"), Destination: v6b}, "PROXY TCP6 2001:db8::1 2001:db8::2 5555 443\r\n", proxyproto.Info{Source: v6, Destination: v6b}},
		"a unix socket":  {proxyproto.Connection{Source: v4}, "PROXY UNKNOWN\r\n", proxyproto.Info{Local: true}},
		"of the proxy":   {proxyproto.Connection{Local: true, Source: v4, Destination: v4b}, "PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\n", proxyproto.Info{Local: true}},
		"with authority": {proxyproto.Connection{Source: v4, Destination: v4b, Authority: "a.b"}, "PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\n", proxyproto.Info{Source: v4, Destination: v4b, TLVs: []byte("\x02\x00\x03a.b")}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(proxyproto.Append([]byte("before "), 1, &test.c)); got != "before "+test.v1 {
				t.Errorf("version 1: %q, want %q", got, test.v1)
			}
			for _, test.c.Checksum = range []bool{false, true} {
				b := proxyproto.Append([]byte("before "), 2, &test.c)[len("before "):]
				want := test.v2
				want.Version = 2
				var got proxyproto.Info
				if n, err := (*proxyproto.Policy)(nil).Parse(b, &got); err != nil || n != len(b) {
					t.Fatalf("%d bytes of %d: %v", n, len(b), err)
				}
				if test.c.Checksum {
					if !want.Local {
						want.TLVs = append(slices.Clone(want.TLVs), got.TLVs[len(got.TLVs)-7:]...)
					}
					b[len(b)-1]++
					if _, err := (*proxyproto.Policy)(nil).Parse(b, new(proxyproto.Info)); !test.c.Local && want.Source.IsValid() && !errors.Is(err, proxyproto.ErrChecksum) {
						t.Errorf("with a checksum that is wrong: %v", err)
					}
				}
				equal(t, got, want)
			}
		})
	}
}

// TestPassedOn: TLVs of the client's header are passed on as they are, except those that the
// proxy replaces.
func TestPassedOn(t *testing.T) {
	came := proxyproto.Append(nil, 2, &proxyproto.Connection{
		Source: v4, Destination: v4b, Authority: "front.example.com", ALPN: "h2",
		UniqueID: []byte("1234"), TLVs: []byte("\xea\x00\x02xy\x04\x00\x01\x00\x30\x00\x02ns"), Checksum: true,
	})
	var info proxyproto.Info
	if _, err := (*proxyproto.Policy)(nil).Parse(came, &info); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		c    proxyproto.Connection
		want string
	}{
		"nothing of its own": {proxyproto.Connection{}, "\x01\x00\x02h2\x02\x00\x11front.example.com\x05\x00\x041234\xea\x00\x02xy\x30\x00\x02ns"},
		"its own": {
			proxyproto.Connection{Authority: "a.b", UniqueID: []byte("9"), ALPN: "x"},
			"\x01\x00\x01x\x02\x00\x03a.b\x05\x00\x019\xea\x00\x02xy\x30\x00\x02ns",
		},
		"TLS": {
			proxyproto.Connection{TLS: &proxyproto.TLS{Version: "TLSv1.3", Cipher: "C", Certificate: true, CommonName: "me"}},
			"\x20\x00\x18\x07\x00\x00\x00\x00\x21\x00\x07TLSv1.3\x22\x00\x02me\x23\x00\x01C" +
				"\x05\x00\x041234\xea\x00\x02xy\x30\x00\x02ns",
		},
		"TLS, resumed": {
			proxyproto.Connection{TLS: proxyproto.TLSOf(&tls.ConnectionState{DidResume: true, PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "me"}}}})},
			"\x20\x00\x1d\x05\x00\x00\x00\x00\x21\x00\x07TLSv1.3\x22\x00\x02me\x23\x00\x060x0000" +
				"\x05\x00\x041234\xea\x00\x02xy\x30\x00\x02ns",
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.c.Source, test.c.Destination, test.c.TLVs = v4, v4b, info.TLVs
			var got proxyproto.Info
			if _, err := (*proxyproto.Policy)(nil).Parse(proxyproto.Append(nil, 2, &test.c), &got); err != nil {
				t.Fatal(err)
			}
			if string(got.TLVs) != test.want {
				t.Errorf("got  %q\nwant %q", got.TLVs, test.want)
			}
		})
	}
	if v, ok := proxyproto.Find(info.TLVs, proxyproto.TypeAuthority); !ok || string(v) != "front.example.com" {
		t.Errorf("authority %q, %v", v, ok)
	}
	if _, ok := proxyproto.Find(info.TLVs, proxyproto.TypeSSL); ok {
		t.Error("found a TLV that is not there")
	}
}

// TestTooMuch: TLVs that do not fit are left out, and the header stays valid.
func TestTooMuch(t *testing.T) {
	var tlvs []byte
	for range 70 {
		tlvs = append(append(tlvs, 0xe0, 4, 0), make([]byte, 1024)...)
	}
	b := proxyproto.Append(nil, 2, &proxyproto.Connection{Source: v4, Destination: v4b, TLVs: tlvs, Checksum: true})
	var got proxyproto.Info
	n, err := (&proxyproto.Policy{Max: 1 << 17}).Parse(b, &got)
	if err != nil || n != len(b) || n > 65551 || n < 64000 {
		t.Fatalf("%d of %d bytes: %v", n, len(b), err)
	}
}

func TestAllocations(t *testing.T) {
	c := &proxyproto.Connection{Source: v6, Destination: v6b, Authority: "a.b", TLVs: []byte("\xea\x00\x02xy"), Checksum: true, TLS: &proxyproto.TLS{Version: "TLSv1.3"}}
	p := &proxyproto.Policy{Versions: []int{1, 2}, From: networks("::/0")}
	var info proxyproto.Info
	buf := make([]byte, 0, 512)
	for _, version := range []int{1, 2} {
		if n := testing.AllocsPerRun(100, func() {
			buf = proxyproto.Append(buf[:0], version, c)
			if !p.Expects(source.TCP(v6)) {
				t.Fatal("not expected")
			}
			if _, err := p.Parse(buf, &info); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("version %d: writing and reading allocates %v times", version, n)
		}
	}
}

// A verdict is the specification's, 2.2, on a header of version 2.
type verdict int

const (
	refuse  verdict = iota // "must drop", "must be rejected as invalid"
	read                   // addresses and TLVs count
	without                // accepted, and without addresses
	free                   // "free to accept the connection anyway ... or to reject it": refused here
)

// families are those that the specification lists, with the bytes of their addresses.
var families = map[byte]int{0x11: 12, 0x12: 12, 0x21: 36, 0x22: 36, 0x31: 216, 0x32: 216}

// specified returns the verdict on a command, a byte of family and transport, and the bytes
// after it.
func specified(command, family byte, body []byte) verdict {
	size, listed := families[family]
	unspecified := (family>>4 == 0 || family&0xf == 0) && family>>4 <= 3 && family&0xf <= 2
	switch {
	case command == 0: // "discard the protocol block including the family which is ignored"
		return without
	case command != 1:
		return refuse // "Receivers must drop connections presenting unexpected values here."
	case family == 0: // "use the real endpoint addresses"; "should ignore address information"
		if !wholeTLVs(body) {
			return without
		}
		return read
	case unspecified:
		return free
	case !listed || len(body) < size || !wholeTLVs(body[size:]):
		return refuse // "must be rejected as invalid by receivers", as is a truncated one
	}
	return read
}

// wholeTLVs is written by the specification's struct pp2_tlv alone.
func wholeTLVs(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 3 || len(b)-3 < int(b[1])<<8+int(b[2]) {
			return false
		}
		b = b[3+int(b[1])<<8+int(b[2]):]
	}
	return true
}

// bodies may follow the length: nothing, addresses, one byte less than these, TLVs behind
// them, and bytes that are neither.
func bodies(family byte) map[string][]byte {
	addresses := make([]byte, families[family])
	copy(addresses, body4)
	tlv, wrong := []byte{0xe0, 0, 2, 'h', 'i'}, []byte{3, 0, 4, 1, 2, 3, 4}
	all := map[string][]byte{
		"nothing": nil, "three bytes": {1, 2, 3}, "addresses": addresses, "and a TLV": slices.Concat(addresses, tlv),
		"and garbage": slices.Concat(addresses, []byte{0xe0, 9}), "and a wrong checksum": slices.Concat(addresses, wrong),
	}
	if len(addresses) > 0 {
		all["a byte less"] = addresses[1:]
	}
	return all
}

// TestSpecification compares the parser with the table of the specification's section 2.2:
// every command, every byte of family and transport.
func TestSpecification(t *testing.T) {
	for command := range byte(16) {
		for family := range 256 {
			for name, body := range bodies(byte(family)) {
				want := specified(command, byte(family), body)
				said := fmt.Sprintf("command %d, family %#02x, %s", command, family, name)
				checkSpecified(t, said, v2(0x20|command, byte(family), body...), want)
			}
		}
	}
}

func checkSpecified(t *testing.T, said string, b []byte, want verdict) {
	t.Helper()
	command, family := b[12]&0xf, b[13]
	size := families[family]
	checksum := want == read && bytes.HasPrefix(b[16+size:], []byte{3, 0, 4})
	var got proxyproto.Info
	n, err := (*proxyproto.Policy)(nil).Parse(append(b, "behind"...), &got)
	switch {
	case checksum:
		if !errors.Is(err, proxyproto.ErrChecksum) {
			t.Errorf("%s: %v, want a wrong checksum", said, err)
		}
		return
	case want == refuse || want == free:
		if !errors.Is(err, proxyproto.ErrMalformed) {
			t.Errorf("%s: %v, want that it is malformed", said, err)
		}
		return
	case err != nil || n != len(b) || got.Version != 2 || got.Local != (command == 0):
		t.Errorf("%s: %d of %d bytes, %+v, %v", said, n, len(b), got, err)
		return
	}
	ip := want == read && (family == 0x11 || family == 0x21) // a connection of TCP is no stream of datagrams
	if got.Known() != ip || ip && family>>4 == 1 && got.Source != netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:])), 5555) {
		t.Errorf("%s: the client comes from %v", said, got.Source)
	}
	if tlvs := b[16+min(size, len(b)-16):]; want == read && !bytes.Equal(got.TLVs, tlvs) || want == without && len(got.TLVs) > 0 {
		t.Errorf("%s: TLVs %x", said, got.TLVs)
	}
}

// FuzzHeader checks the guarantees of Length and Parse, and compares with go-proxyproto: a
// header that it accepts is accepted here, with the same contents.
func FuzzHeader(f *testing.F) {
	pires.V1AcceptIPv4InTCP6 = true // as nginx writes it
	f.Add([]byte("PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\nabc"))
	f.Add([]byte("PROXY TCP6 2001:db8::1 ::2 5555 443\r\n"))
	f.Add([]byte("PROXY UNKNOWN x\r\n"))
	f.Add(v2(0x21, 0x11, body4...))
	f.Add(v2(0x20, 0x00))
	f.Add(v2(0x21, 0x31, make([]byte, 216)...))
	f.Add(proxyproto.Append(nil, 2, &proxyproto.Connection{Source: v6, Destination: v6b, Authority: "a.b", Checksum: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p *proxyproto.Policy
		var info proxyproto.Info
		n, err := p.Parse(b, &info)
		if err == nil {
			promised(t, b, n, &info)
		}
		same(t, b, n, &info, err)
	})
}

func promised(t *testing.T, b []byte, n int, info *proxyproto.Info) {
	var again proxyproto.Info
	if m, err := (*proxyproto.Policy)(nil).Parse(b[:n], &again); m != n || err != nil {
		t.Fatalf("alone it is read as %d bytes, %v", m, err)
	}
	for i := range n {
		if need, err := (*proxyproto.Policy)(nil).Length(b[:i]); err != nil || need <= i || need > n {
			t.Fatalf("of %d bytes %d are requested, %v; it has %d", i, need, err, n)
		}
	}
	if !info.Known() || info.Version == 1 {
		return
	}
	written := proxyproto.Append(nil, 2, &proxyproto.Connection{Source: info.Source, Destination: info.Destination, TLVs: info.TLVs})
	if _, err := (*proxyproto.Policy)(nil).Parse(written, &again); err != nil {
		t.Fatalf("its content was written, and cannot be read: %v", err)
	}
	if again.Source != info.Source || again.Destination != info.Destination {
		t.Fatalf("written and read again: %+v, was %+v", again, info)
	}
}

func same(t *testing.T, b []byte, n int, info *proxyproto.Info, err error) {
	r := bufio.NewReaderSize(bytes.NewReader(b), 1<<17)
	h, other := pires.Read(r)
	if other != nil {
		return // it is stricter: UNSPEC, for one
	}
	if err != nil {
		if tlvs, e := h.TLVs(); e != nil || wrongSum(tlvs) {
			return // not checked by default
		}
		t.Fatalf("refused: %v; the other reads %+v", err, h)
	}
	if rest := r.Buffered(); rest != len(b)-n {
		t.Fatalf("%d of %d bytes read, and the other leaves %d", n, len(b), rest)
	}
	if int(h.Version) != info.Version || h.Version == 2 && h.Command.IsLocal() != info.Local {
		t.Fatalf("%+v, and the other reads %+v", info, h)
	}
	if info.Local || !info.Known() {
		return
	}
	for i, a := range []net.Addr{h.SourceAddr, h.DestinationAddr} {
		got := []netip.AddrPort{info.Source, info.Destination}[i]
		var want netip.AddrPort
		switch a := a.(type) {
		case *net.TCPAddr:
			want = a.AddrPort()
		case *net.UDPAddr:
			want = a.AddrPort()
		}
		if netip.AddrPortFrom(want.Addr().Unmap(), want.Port()) != got {
			t.Fatalf("address %v, and the other reads %v", got, want)
		}
	}
}

func wrongSum(tlvs []pires.TLV) bool {
	return slices.ContainsFunc(tlvs, func(v pires.TLV) bool { return v.Type == pires.PP2_TYPE_CRC32C })
}

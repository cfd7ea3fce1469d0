package header_test

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/header"
	proxyproto "github.com/pires/go-proxyproto"
)

// FuzzHeader holds Length and Parse to what they promise, and against go-proxyproto:
// what that takes for a header is one here, and says the same.
func FuzzHeader(f *testing.F) {
	proxyproto.V1AcceptIPv4InTCP6 = true // as nginx writes it
	f.Add([]byte("PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\nabc"))
	f.Add([]byte("PROXY TCP6 2001:db8::1 ::2 5555 443\r\n"))
	f.Add([]byte("PROXY UNKNOWN x\r\n"))
	f.Add(v2(0x21, 0x11, body4...))
	f.Add(v2(0x20, 0x00))
	f.Add(v2(0x21, 0x31, make([]byte, 216)...))
	f.Add(header.Append(nil, 2, &header.Connection{Source: v6, Destination: v6b, Authority: "a.b", Checksum: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p *header.Policy
		var info header.Info
		n, err := p.Parse(b, &info)
		if err == nil {
			promised(t, b, n, &info)
		}
		same(t, b, n, &info, err)
	})
}

// promised checks what is promised of a header that was read.
func promised(t *testing.T, b []byte, n int, info *header.Info) {
	var again header.Info
	if m, err := (*header.Policy)(nil).Parse(b[:n], &again); m != n || err != nil {
		t.Fatalf("alone it is read as %d bytes, %v", m, err)
	}
	for i := range n {
		if need, err := (*header.Policy)(nil).Length(b[:i]); err != nil || need <= i || need > n {
			t.Fatalf("of %d bytes %d are asked for, %v; it has %d", i, need, err, n)
		}
	}
	if !info.Known() || info.Version == 1 {
		return
	}
	written := header.Append(nil, 2, &header.Connection{Source: info.Source, Destination: info.Destination, TLVs: info.TLVs})
	if _, err := (*header.Policy)(nil).Parse(written, &again); err != nil {
		t.Fatalf("what it says was written, and not read: %v", err)
	}
	if again.Source != info.Source || again.Destination != info.Destination {
		t.Fatalf("written and read again: %+v, was %+v", again, info)
	}
}

// same compares with what go-proxyproto reads.
func same(t *testing.T, b []byte, n int, info *header.Info, err error) {
	r := bufio.NewReaderSize(bytes.NewReader(b), 1<<17)
	h, other := proxyproto.Read(r)
	if other != nil {
		return // it is stricter: UNSPEC, for one
	}
	if err != nil {
		if tlvs, e := h.TLVs(); e != nil || wrongSum(tlvs) {
			return // which it does not look at unless asked
		}
		t.Fatalf("refused: %v; the other reads %+v", err, h)
	}
	if rest := r.Buffered(); rest != len(b)-n {
		t.Fatalf("%d of %d bytes read, and the other leaves %d", n, len(b), rest)
	}
	if int(h.Version) != info.Version || h.Version == 2 && h.Command.IsLocal() != info.Local {
		t.Fatalf("%+v, and the other says %+v", info, h)
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
			t.Fatalf("address %v, and the other says %v", got, want)
		}
	}
}

func wrongSum(tlvs []proxyproto.TLV) bool {
	return slices.ContainsFunc(tlvs, func(v proxyproto.TLV) bool { return v.Type == proxyproto.PP2_TYPE_CRC32C })
}
